"""`check` sees what the service would refuse: stored positions, overrides, the slot, the store, the HTTP address."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from psycopg2.extensions import make_dsn

from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.lsn import Lsn
from psql_streamer.model import Position
from psql_streamer.pgoutput.wal_position import WalPosition
from tests.database import Database
from tests.sections import postgres_section
from tests.service import Service
from tests.source_at_work import source_of, streaming

_SCHEMA = "CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t"
_SINK = '[sink.s]\ntype = "stub_discard"\nsources = ["db1"]\n'

Check = Callable[..., list[tuple[str, str, str]]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """`check` of a source of this database and a stub sink: (part, severity, problem and remedy) of every finding."""

    def run(database: Database, http: str = "127.0.0.1:0", **options: Any) -> list[tuple[str, str, str]]:
        file = tmp_path / "check.toml"
        lmdb = tmp_path / "positions.lmdb"
        file.write_text(f'http = "{http}"\nlmdb = "{lmdb}"\n{postgres_section(database, **options)}\n{_SINK}')
        command = [sys.executable, "-m", "psql_streamer", "check", "--json", "-config", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = json.loads(done.stdout)["findings"]
        assert done.returncode == (3 if any(one["severity"] == "error" for one in found) else 0)
        return [(one["part"], one["severity"], f"{one['problem']}: {one['remedy']}") for one in found]

    return run


def _store(tmp_path: Path, database: Database, position: Lsn, **fence: str) -> None:
    """Leave a position behind, as a service of this database would."""
    source = source_of(database)
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    store.put("db1", StoredPosition(WalPosition(position).position, {**source.read_stream_identity(), **fence}))
    store.close()


def _wal_end(database: Database) -> Lsn:
    return Lsn.parse(database.value("SELECT pg_current_wal_lsn()::text"))


def _make_slot(database: Database) -> None:
    database.query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", f"s_{database.name}")


def test_a_position_that_fits_is_passed_over_in_silence(database: Database, tmp_path: Path, check: Check) -> None:
    database.execute(_SCHEMA)
    _make_slot(database)
    _store(tmp_path, database, _wal_end(database))
    assert check(database) == []


def test_a_position_of_another_cluster_is_found(database: Database, tmp_path: Path, check: Check) -> None:
    database.execute(_SCHEMA)
    _make_slot(database)
    _store(tmp_path, database, _wal_end(database), **{"system identifier": "4711"})
    [(part, severity, said)] = check(database)
    assert (part, severity) == ("source.db1", "error")
    assert 'was made with system identifier "4711", now "' in said


def test_a_position_without_its_slot_is_found(database: Database, tmp_path: Path, check: Check) -> None:
    database.execute(_SCHEMA)
    _store(tmp_path, database, _wal_end(database))
    [(part, severity, said)] = check(database)
    assert (part, severity) == ("source.db1", "error")
    assert "does not exist, but changes up to" in said


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (
            {"file": "shop.sqlite"},
            'orders.rowid=7 was made with file "shop.sqlite", of which this source knows nothing',
        ),
        ({}, "the stored position orders.rowid=7 is not a position in WAL"),
    ],
)
@pytest.mark.parametrize("with_slot", [True, False])
def test_a_position_of_another_kind_of_source_is_found(
    database: Database, tmp_path: Path, check: Check, with_slot: bool, stream: dict[str, str], expected: str
) -> None:
    database.execute(_SCHEMA)
    if with_slot:
        _make_slot(database)
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    store.put("db1", StoredPosition(Position({"rowid": 7}, "orders.rowid=7"), stream))
    store.close()
    [(part, severity, said)] = check(database)
    assert (part, severity) == ("source.db1", "error")
    assert expected in said
    assert ("psql-streamer snapshot start --source db1 --accept-gap" if stream else "position forget db1") in said


def test_a_gap_between_the_position_and_the_slot_is_found(database: Database, tmp_path: Path, check: Check) -> None:
    database.execute(_SCHEMA)
    _store(tmp_path, database, Lsn(8))
    _make_slot(database)
    [(_, severity, said)] = check(database)
    assert severity == "error"
    assert "the stored position 0/8 is " in said
    assert "psql-streamer snapshot start --source db1 --accept-gap" in said


@pytest.mark.parametrize(
    ("override", "problem", "remedy"),
    [("0/8", "walPositionOverride 0/8 is", "use a later one, or 0"), ("FFFF/0", "after the end", "use an earlier one")],
)
def test_an_override_that_would_be_refused_is_found(
    database: Database, check: Check, override: str, problem: str, remedy: str
) -> None:
    database.execute(_SCHEMA)
    _make_slot(database)
    [(_, severity, said)] = check(database, walPositionOverride=override)
    assert severity == "error"
    assert problem in said
    assert remedy in said


def test_junk_in_place_of_the_store_is_found(database: Database, tmp_path: Path, check: Check) -> None:
    database.execute(_SCHEMA)
    (tmp_path / "positions.lmdb").write_bytes(b"no LMDB file" * 1000)
    [(part, severity, said)] = check(database)
    assert (part, severity) == ("store", "error")
    assert "is not an LMDB file of this service" in said


def test_an_http_address_that_is_taken_is_found(database: Database, check: Check) -> None:
    database.execute(_SCHEMA)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        [(part, severity, said)] = check(database, http=f"127.0.0.1:{taken.getsockname()[1]}")
    assert (part, severity) == ("http", "error")
    assert "already in use" in said


def test_beside_its_own_running_service_check_says_so_and_goes_on(
    database: Database, tmp_path: Path, check: Check
) -> None:
    database.execute(_SCHEMA)
    with Service(tmp_path, f"{postgres_section(database)}\n{_SINK}") as service:
        service.start()
        found = check(database, http=f"127.0.0.1:{service.port}")
        assert [(part, severity) for part, severity, _ in found] == [("store", "warning"), ("source.db1", "warning")]
        assert f"is in use by PID {service.pid}: the service is running" in found[0][2]
        assert "a source of this name: the service is running" in found[1][2]
        service.until_durable(database)
        assert service.stop() == 0


def test_a_slot_that_somebody_else_reads_is_an_error(database: Database, check: Check) -> None:
    database.execute(_SCHEMA)
    dsn = str(make_dsn(database.dsn, application_name="somebody else"))
    with streaming(Database(database.name, dsn, database.version)):
        [(_, severity, said)] = check(database)
    assert severity == "error"
    assert "is active for PID" in said


def test_a_publication_that_is_younger_than_the_next_change_is_found(
    every_postgres: Database, tmp_path: Path, check: Check
) -> None:
    database = every_postgres
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    _make_slot(database)
    _store(tmp_path, database, _wal_end(database))
    database.execute("INSERT INTO t VALUES (1)")
    database.execute("CREATE PUBLICATION p FOR TABLE t")
    end = _wal_end(database)
    [(part, severity, said)] = check(database)
    assert (part, severity) == ("source.db1", "error")
    assert "cannot continue: " in said
    assert 'publication "p"' in said
    offered = re.search('walPositionOverride = "([0-9A-F/]+)"', said)
    assert offered  # the server writes WAL of its own, too
    assert end <= Lsn.parse(offered[1]) <= _wal_end(database)
    assert (
        database.value("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", f"s_{database.name}") is None
    )


def test_a_slot_with_two_phase_is_refused(database: Database, check: Check) -> None:
    database.execute(_SCHEMA)
    database.query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', twophase => true)", f"s_{database.name}")
    [(_, severity, said)] = check(database)
    assert severity == "error"
    assert "was created with two_phase" in said


def test_on_amazon_rds_membership_is_enough(database: Database, check: Check) -> None:
    role, member = "rds_replication", f"r_{database.name}"
    database.execute(_SCHEMA + f"; CREATE ROLE {member} LOGIN")
    mine = Database(database.name, str(make_dsn(database.dsn, user=member)), database.version)
    try:
        [(_, severity, said)] = check(mine)
        assert severity == "error"
        assert f'role "{member}" may not replicate' in said
        assert f'GRANT rds_replication TO "{member}"' in said
        database.execute(f"CREATE ROLE {role}; GRANT {role} TO {member}")
        # Here the server itself still wants the attribute, which is not what is looked at.
        assert all("may not replicate" not in said for _, _, said in check(mine))
    finally:
        with psycopg2.connect(database.dsn) as session, session.cursor() as cursor:
            cursor.execute(f"DROP ROLE IF EXISTS {member}; DROP ROLE IF EXISTS {role}")
