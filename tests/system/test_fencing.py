"""A stored position belongs to one stream; another one is refused, with the difference and the choices."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from psycopg2.extensions import parse_dsn

from psql_streamer.checkpoint.store import Store
from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.lsn import Lsn
from psql_streamer.model import Position
from psql_streamer.pgoutput.wal_position import WalPosition
from tests.database import Database, fresh_database
from tests.sections import postgres_section
from tests.service import Service
from tests.source_at_work import confirmed_flush_lsn
from tests.tcp_proxy import TcpProxy

_SCHEMA = "CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t; CREATE PUBLICATION q FOR TABLE t"


def _config(database: Database) -> str:
    return f"""
{postgres_section(database)}
[sink.log]
type = "stub_log"
sources = ["db1"]
"""


def _leave_a_position(service: Service, database: Database) -> None:
    """Stream something, and stop."""
    service.start()
    database.execute("INSERT INTO t VALUES (1)")
    service.until_durable(database)
    assert service.stop() == 0


def _complaint(service: Service) -> str:
    """What a service that refuses to start says; it leaves with the code of a failure."""
    service.start(wait=False)
    assert service.wait() == 1
    return service.tail().strip().splitlines()[-1]


def _replace(service: Service, old: str, new: str) -> None:
    text = service.config.read_text()
    assert old in text
    service.config.write_text(text.replace(old, new))


def _system_identifier(database: Database) -> str:
    return str(database.value("SELECT system_identifier FROM pg_control_system()"))


@pytest.mark.behaviour("R5")
def test_a_position_of_another_cluster_is_refused_until_it_is_forgotten(
    database: Database, own_postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    database.execute(_SCHEMA)
    with (
        fresh_database(own_postgres.build_dsn(), database.name) as other,
        Service(tmp_path, _config(database)) as service,
    ):
        other.execute(_SCHEMA)
        _leave_a_position(service, database)
        _replace(service, database.dsn, other.dsn)
        said = _complaint(service)
        assert f'system identifier "{_system_identifier(database)}", now "{_system_identifier(other)}"' in said
        assert "source.db1" in said
        assert "walPositionOverride" in said
        assert "psql-streamer snapshot start --source db1 --accept-gap" in said
        assert not other.query("SELECT FROM pg_replication_slots"), "nothing was begun there"

        forget = [sys.executable, "-m", "psql_streamer", "position", "forget", "db1", "-config", str(service.config)]
        assert subprocess.run(forget, check=False).returncode == 0
        service.start()
        other.execute("INSERT INTO t VALUES (1)")
        service.until_durable(other)
        assert service.stats()["sink.log"]["events"] >= 1
        assert service.stop() == 0


@pytest.mark.behaviour("R5")
@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ('publication = "p"', 'publication = "q"', 'publication "p", now "q"'),
        ('replicationSlot = "', 'replicationSlot = "another_', ', now "another_s_'),
    ],
    ids=["publication", "slot"],
)
def test_a_position_of_another_slot_or_publication_is_refused(
    database: Database, tmp_path: Path, old: str, new: str, difference: str
) -> None:
    database.execute(_SCHEMA)
    with Service(tmp_path, _config(database)) as service:
        _leave_a_position(service, database)
        _replace(service, old, new)
        assert difference in _complaint(service)


@pytest.mark.behaviour("R5")
def test_a_position_that_the_slot_no_longer_reaches_is_refused_with_the_gap(database: Database, tmp_path: Path) -> None:
    database.execute(_SCHEMA)
    with Service(tmp_path, _config(database)) as service:
        _leave_a_position(service, database)
        database.execute("INSERT INTO t SELECT generate_series(2, 100)")
        database.query("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", f"s_{database.name}")
        said = _complaint(service)
        assert "bytes before" in said
        pasted = shlex.split(said.partition("accept the gap (psql-streamer ")[2].partition(")")[0])
        assert pasted == ["snapshot", "start", "--source", "db1", "--accept-gap", "-config", str(service.config)]
        assert subprocess.run([sys.executable, "-m", "psql_streamer", *pasted], check=False).returncode == 0


@pytest.mark.behaviour("R5")
def test_a_reconnect_that_comes_to_another_cluster_stops_before_its_first_row(
    database: Database, own_postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    database.execute(_SCHEMA)
    with (
        fresh_database(own_postgres.build_dsn(), database.name) as other,
        TcpProxy(int(parse_dsn(database.dsn)["port"])) as proxy,
        Service(tmp_path, _config(replace(database, dsn=proxy.dsn(database.dsn)))) as service,
    ):
        other.execute(_SCHEMA)
        slot = f"s_{database.name}"
        other.query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
        other.execute("INSERT INTO t SELECT generate_series(1, 500)")
        confirmed = other.query("SELECT confirmed_flush_lsn FROM pg_replication_slots")
        service.start()
        database.execute("INSERT INTO t VALUES (1)")
        service.until_durable(database)
        proxy.target = own_postgres.port
        proxy.cut()
        assert service.wait() == 1
        said = service.tail().strip().splitlines()[-1]
        stopping = [line for line in service.log.read_text().splitlines() if "stopping: source.db1: " in line]
        assert len(stopping) == 1, "the reason is told when the stop begins, and at the end"
        assert stopping[0].partition("stopping: ")[2] in said
        assert f'system identifier "{_system_identifier(database)}", now "{_system_identifier(other)}"' in said
        assert "was made with" in said
        assert "500 insert" not in service.log.read_text(), "rows of the other cluster"
        assert other.query("SELECT confirmed_flush_lsn FROM pg_replication_slots") == confirmed
        assert WalPosition.from_position(_position(service)).lsn <= Lsn.parse(
            database.value("SELECT pg_current_wal_lsn()::text")
        )


@pytest.mark.soak
@pytest.mark.behaviour("R7")
def test_an_override_is_followed_once_for_every_value_and_told(database: Database, tmp_path: Path) -> None:
    database.execute(_SCHEMA)
    config = _config(database).replace("[source.db1]", '[source.db1]\nwalRetain = "1GB"')
    with Service(tmp_path, config) as service:
        service.start()
        begin = str(confirmed_flush_lsn(database))
        database.execute("INSERT INTO t SELECT generate_series(1, 10)")
        service.until_durable(database)
        assert service.stop() == 0
        before = _position(service)
        plain = service.config.read_text()

        def times_delivered(override: str) -> int:
            """How often the rows have arrived, after a start with this override."""
            wanted = f'[source.db1]\nwalPositionOverride = "{override}"'
            service.config.write_text(plain.replace("[source.db1]", wanted))
            service.start()
            service.until_durable(database)
            assert service.stop() == 0
            return service.log.read_text().count("10 insert")

        assert times_delivered(begin) == 2
        assert f"walPositionOverride: going back from {before} to {begin}" in service.log.read_text()
        assert times_delivered(begin) == 2, "the same value is not followed again"
        assert times_delivered("0/0") == 2
        assert times_delivered(begin) == 3, "after it was taken out it may be set again"


@pytest.mark.soak
def test_an_override_leaves_a_snapshot_where_it_is(database: Database, tmp_path: Path) -> None:
    database.execute(_SCHEMA + "; INSERT INTO t SELECT generate_series(1, 3000)")
    options = {"mode": "initial", "chunkRows": 10, "parallel": 1}
    section = postgres_section(database, snapshot=options)
    with Service(tmp_path, section + '[sink.nothing]\ntype = "stub_discard"\nsources = ["db1"]\n') as service:

        def snapshot() -> dict[str, Any]:
            [found] = json.loads(service.text("/snapshots"))["snapshots"] or [{"rows": 0}]
            return dict(found)

        service.start()
        service.until(lambda: snapshot()["rows"] > 0, "the first rows")
        service.until_durable(database)
        service.kill()
        stored = _position(service)
        [before] = stored.data["snapshots"]
        assert before["state"] == "running", "the snapshot was over too soon: the test shows nothing"
        wanted = f'[source.db1]\nwalPositionOverride = "{WalPosition.from_position(stored).lsn}"'
        service.config.write_text(service.config.read_text().replace("[source.db1]", wanted))
        service.start()
        service.until(lambda: snapshot().get("state") == "done", "the end of the snapshot")
        assert (snapshot()["id"], snapshot()["rows"]) == (before["id"], 3000)


def _position(service: Service) -> Position:
    store = Store(service.lmdb)
    store.open()
    try:
        return store.read_all()["db1"].position
    finally:
        store.close()
