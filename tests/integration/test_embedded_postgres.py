from __future__ import annotations

import os
from pathlib import Path

import psycopg2
import pytest

from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.errors import StreamerError
from tests.database import Database


def test_every_version_decodes_its_wal_with_pgoutput(every_postgres: Database) -> None:
    every_postgres.execute("CREATE TABLE t (id int PRIMARY KEY)")
    every_postgres.execute("CREATE PUBLICATION p FOR ALL TABLES")
    slot = f"slot_{every_postgres.name}"
    every_postgres.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
    every_postgres.execute("INSERT INTO t VALUES (1), (2)")
    messages = every_postgres.query(
        "SELECT get_byte(data, 0) FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
        " 'proto_version', '1', 'publication_names', 'p')",
        slot,
    )
    assert bytes(kind for (kind,) in messages) == b"BRIIC"


def test_data_survives_every_kind_of_stop(own_postgres: EmbeddedPostgres) -> None:
    database = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    database.execute("CREATE TABLE t (mode text)")
    for mode in ("smart", "fast", "immediate"):
        database.execute("INSERT INTO t VALUES (%s)", mode)
        own_postgres.restart(mode)
    assert [mode for (mode,) in database.query("SELECT mode FROM t")] == ["smart", "fast", "immediate"]


def test_a_server_answers_over_its_socket_and_over_loopback(own_postgres: EmbeddedPostgres) -> None:
    for tcp, over_tcp in ((False, False), (True, True)):
        database = Database("postgres", own_postgres.build_dsn(tcp=tcp), own_postgres.version)
        assert database.value("SELECT inet_client_addr() IS NOT NULL") is over_tcp


def test_settings_given_reach_the_server_with_quotes_intact(own_postgres: EmbeddedPostgres) -> None:
    own_postgres.settings["search_path"] = "it's, public"
    own_postgres.restart()
    database = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    assert database.value("SHOW search_path") == "it's, public"


def test_a_setting_that_the_server_refuses_is_named(own_postgres: EmbeddedPostgres) -> None:
    own_postgres.settings["wal_levle"] = "logical"
    with pytest.raises(StreamerError, match="wal_levle"):
        own_postgres.restart()


def test_a_folder_without_a_server_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StreamerError, match=f"no PostgreSQL server in {tmp_path}"):
        EmbeddedPostgres(tmp_path)


def test_closing_leaves_nothing_behind(own_postgres: EmbeddedPostgres) -> None:
    own_postgres.close()
    assert not own_postgres.socket_dir.exists()
    with pytest.raises(psycopg2.OperationalError):
        psycopg2.connect(own_postgres.build_dsn(tcp=True))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to run the server as another account")
def test_root_runs_a_server_whose_programs_the_account_cannot_reach(
    own_postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    # pytest's folders are closed to others, as /root is.
    hidden = tmp_path / "install"
    hidden.symlink_to(own_postgres.bin_dir.parent)
    with EmbeddedPostgres(hidden / "bin") as server:
        assert server.bin_dir.is_relative_to(server.socket_dir)
        assert Database("postgres", server.build_dsn(), server.version).value("SELECT 1") == 1
