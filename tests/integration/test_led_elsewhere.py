"""What /status says of a stream whose server is not asked any more, or whose slot is given up: figures are its own."""

from __future__ import annotations

import pytest

from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.errors import SourceUnavailable
from psql_streamer.lsn import Lsn
from sources.postgres import server_watch
from sources.postgres import source as postgres_source
from tests.source_at_work import read_all, rows, streaming, wait_for
from tests.standby import copy_of, database_of
from tests.tcp_proxy import TcpProxy


@pytest.mark.behaviour("R8")
def test_a_copy_to_which_the_address_leads_is_told_of_and_its_wal_counts_for_nothing(
    own_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_watch, "_SERVER_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(server_watch, "WATCH_SESSION_SECONDS", 0.5)
    database = database_of(own_postgres)
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    with (
        copy_of(own_postgres) as copy,
        TcpProxy(own_postgres.port) as proxy,
        streaming(database, dsn=proxy.dsn(database.dsn)) as source,
    ):
        wait_for(lambda: source.stats()["server_lsn"] > 0, "a look at the server")
        database_of(copy).query("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 20000000))")
        end = Lsn.parse(database_of(copy).value("SELECT pg_current_wal_flush_lsn()::text"))
        proxy.target = copy.port
        wait_for(lambda: not source.status().ok, "the other server to be told of", timeout=20.0)
        assert "the server to which the dsn leads now does not have this stream" in source.status().reason
        assert source.stats()["server_lsn"] < end
        assert source.stats()["lag_bytes"] < 10_000_000
        database.execute("INSERT INTO t VALUES (1)")
        assert rows(read_all(source, database)) == [(b"1",)]
        proxy.target = own_postgres.port
        wait_for(lambda: source.status().ok, "the source to be well again", timeout=20.0)
        ahead = Lsn.parse(database.value("SELECT pg_current_wal_flush_lsn()::text"))
        wait_for(lambda: source.stats()["server_lsn"] >= ahead, "figures of the server of the stream")


_FULL = "CREATE TABLE f (a int, b int, PRIMARY KEY (a)); ALTER TABLE f REPLICA IDENTITY FULL"


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("ALTER TABLE f DROP CONSTRAINT f_pkey, ADD PRIMARY KEY (b)", "INSERT INTO f VALUES (1, 2)"),
        ("SELECT", "CREATE TYPE mood AS ENUM ('well'); CREATE TABLE m (v mood); INSERT INTO m VALUES ('well')"),
    ],
    ids=["keys", "types"],
)
def test_what_a_row_needs_of_the_catalog_is_not_asked_of_another_server(
    own_postgres: EmbeddedPostgres, there: str, here: str
) -> None:
    database = database_of(own_postgres)
    database.execute(f"{_FULL}; CREATE PUBLICATION p FOR ALL TABLES")
    with (
        copy_of(own_postgres) as copy,
        TcpProxy(own_postgres.port) as proxy,
        streaming(database, dsn=proxy.dsn(database.dsn)) as source,
    ):
        database_of(copy).execute(there)
        proxy.target = copy.port
        database.execute(here)
        with pytest.raises(SourceUnavailable, match="the dsn leads to another server than the one that the stream"):
            read_all(source, database)


def test_a_slot_that_is_given_up_while_nobody_reads_is_told_of(
    own_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_watch, "_SERVER_LOOK_SECONDS", 0.1)
    # The walsender may have to tell its end before it ends, to a reader that reads no more: until it disconnects.
    monkeypatch.setattr(postgres_source, "_UNREAD_SECONDS", 2.0)
    own_postgres.settings |= {"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "1GB"}
    own_postgres.restart()
    database = database_of(own_postgres)
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    with streaming(database) as source:
        for _ in range(4):
            database.query("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 20000000))")
        wait_for(lambda: "a checkpoint may give it up at any time" in source.status().reason, "the danger to be told")
        assert not source.status().ok
        database.query("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
        with database.session(autocommit=True) as session, session.cursor() as cursor:
            cursor.execute("CHECKPOINT")
        wait_for(lambda: "was invalidated, and its stream has ended" in source.status().reason, "the loss to be told")
        assert not source.status().ok
