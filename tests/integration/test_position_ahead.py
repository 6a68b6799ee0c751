"""A server that ends in front of the stored position stays refused when its WAL has passed that."""

from __future__ import annotations

from pathlib import Path

import pytest

from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.lsn import Lsn
from psql_streamer.pgoutput.wal_position import WalPosition
from tests.database import Database
from tests.sections import postgres_section
from tests.service import Service
from tests.source_at_work import source_of

_SINK = '[sink.s]\ntype = "stub_discard"\nsources = ["db1"]\n'


@pytest.mark.behaviour("R8")
def test_a_server_that_was_restored_is_refused_also_when_its_wal_has_passed_the_position(
    database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    database.query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", f"s_{database.name}")
    ahead = Lsn(Lsn.parse(database.value("SELECT pg_current_wal_insert_lsn()::text")) + 1_000_000)
    leave_position(tmp_path, database, ahead)
    assert "bytes after the end of the server's WAL" in refuse(tmp_path, database)
    database.query("SELECT pg_logical_emit_message(false, 'fill', repeat('x', 2000000))")
    found = f"an earlier start found that the server ends in front of the stored position {ahead}"
    assert found in refuse(tmp_path, database)
    sent = postgres_section(database, walPositionOverride=str(ahead))
    for section in sent, postgres_section(database):
        with Service(tmp_path, section + _SINK) as service:
            service.start()
            service.until_durable(database)
            assert service.stop() == 0


def leave_position(tmp_path: Path, database: Database, position: Lsn) -> None:
    source = source_of(database)
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    store.put("db1", StoredPosition(WalPosition(position).position, dict(source.read_stream_identity())))
    store.close()


def refuse(tmp_path: Path, database: Database) -> str:
    """What a service says that does not start."""
    with Service(tmp_path, postgres_section(database) + _SINK) as service:
        service.start(wait=False)
        assert service.wait(timeout=20.0) != 0
        return service.log.read_text()
