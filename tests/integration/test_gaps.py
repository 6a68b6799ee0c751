"""Changes that are lost to a source: it refuses to go on, names the command, and after that has all rows sent anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.checkpoint.resume import choose_position
from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.errors import PositionRefused, SourceError, SourceUnavailable
from psql_streamer.model import Position
from psql_streamer.snapshots import SnapshotRequest, SnapshotState
from sources.postgres.reader_session import ReaderSession
from sources.postgres.source import PostgresSource
from tests.database import Database, fresh_database
from tests.integration.test_snapshot_races import Consumer, snapshotting
from tests.source_at_work import start_again, wait_for

_SCHEMA = "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t;"
_COMMAND = "psql-streamer snapshot start --source db1 --accept-gap"
_REQUEST = SnapshotRequest("all-again", asked_at=1.0)

Damage = Callable[[Database, str], None]


def _drop_slot(database: Database, slot: str) -> None:
    database.query("SELECT pg_drop_replication_slot(%s)", slot)
    database.execute(_LOST)


def _invalidate_slot(database: Database, slot: str) -> None:
    with database.session(autocommit=True) as session, session.cursor() as cursor:
        cursor.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        cursor.execute("SELECT pg_reload_conf()")
    database.execute(_LOST)

    def is_lost() -> bool:
        database.query("SELECT pg_logical_emit_message(false, '', ''), pg_switch_wal()")
        with database.session(autocommit=True) as session, session.cursor() as cursor:
            cursor.execute("CHECKPOINT")
        return database.value("SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = %s", slot) is True

    wait_for(is_lost, "the slot to be lost")


def _remove_wal(database: Database, _: str) -> None:
    """What an administrator does who is short of disk."""
    database.execute(_LOST)
    for _number in range(2):
        database.query("SELECT pg_logical_emit_message(false, '', ''), pg_switch_wal()")
    current = database.value("SELECT pg_walfile_name(pg_current_wal_insert_lsn())")
    for segment in (Path(database.value("SHOW data_directory")) / "pg_wal").iterdir():
        if len(segment.name) == len(current) and segment.name < current:
            segment.unlink()


def _make_publication_anew(database: Database, _: str) -> None:
    database.execute("DROP PUBLICATION p")
    database.execute(_LOST)
    database.execute("CREATE PUBLICATION p FOR TABLE t")


def _advance_slot(database: Database, slot: str) -> None:
    database.execute(_LOST)
    database.query("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", slot)


_LOST = "UPDATE t SET v = 'in the gap' WHERE id <= 10; INSERT INTO t VALUES (500, 'in the gap')"


@pytest.mark.behaviour("N35")
@pytest.mark.parametrize("damage", [_drop_slot, _invalidate_slot, _remove_wal, _make_publication_anew, _advance_slot])
def test_a_gap_is_refused_with_the_command_that_has_all_rows_sent_anew(
    own_postgres: EmbeddedPostgres, damage: Damage
) -> None:
    database = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    consumer = _delivered(database)
    damage(database, "s_postgres")
    assert _COMMAND in _refused(consumer, database)
    _accept_gap(consumer, database)
    try:
        consumer.until_done()
        database.execute("UPDATE t SET v = 'behind' WHERE id = 100; INSERT INTO t VALUES (501, 'behind')")
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    consumer.fold.assert_equals(database, "public.t")
    [shown] = consumer.source.list_snapshots()
    assert (shown.id, shown.state, shown.rows) == ("all-again", SnapshotState.DONE, 101)


@pytest.mark.behaviour("N35")
def test_a_slot_that_somebody_moves_between_the_look_at_it_and_the_stream_hides_no_gap(
    own_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    consumer = _delivered(database)
    source = snapshotting(database)
    spawn = PostgresSource._spawn

    def spawn_late(self: PostgresSource, *arguments: Any) -> ReaderSession:
        _advance_slot(database, "s_postgres")
        return spawn(self, *arguments)

    monkeypatch.setattr(PostgresSource, "_spawn", spawn_late)
    source.read_stream_identity()
    with pytest.raises(SourceUnavailable, match=r'slot "s_postgres" begins at .* now, behind'):
        source.start(consumer.position)
    with pytest.raises(PositionRefused, match="the first that slot"):
        source.start(consumer.position)
    source.stop()


@pytest.mark.behaviour("N35")
def test_a_database_that_was_restored_in_another_cluster_is_sent_anew(
    database: Database, own_postgres: EmbeddedPostgres
) -> None:
    consumer = _delivered(database)
    stored = StoredPosition(consumer.position, consumer.source.read_stream_identity())  # type: ignore[arg-type]
    with fresh_database(own_postgres.build_dsn(), database.name) as restored:
        restored.execute(_SCHEMA + "INSERT INTO t SELECT i, 'restored' FROM generate_series(1, 100) i;" + _LOST)
        source = snapshotting(restored)
        with pytest.raises(PositionRefused, match=_COMMAND):
            choose_position(source, stored, source.read_stream_identity())
        _accept_gap(consumer, restored)
        try:
            consumer.until_done()
            consumer.until_level(restored)
        finally:
            consumer.source.stop()
        consumer.fold.assert_equals(restored, "public.t")


def test_changes_that_a_slot_can_still_give_are_not_lost_to_an_accepted_gap(database: Database) -> None:
    consumer = _delivered(database)
    _advance_slot(database, f"s_{database.name}")
    database.execute("DELETE FROM t WHERE id = 50")
    _accept_gap(consumer, database)
    try:
        consumer.until_done()
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    consumer.fold.assert_equals(database, "public.t")


@pytest.mark.behaviour("N36")
def test_an_accepted_gap_drops_no_slot_that_somebody_reads_from(database: Database) -> None:
    consumer, other = _delivered(database), snapshotting(database, mode="never")
    other.read_stream_identity()
    assert consumer.position is not None
    start_again(other, consumer.position)
    source = snapshotting(database)
    source.set_snapshots([_REQUEST])
    source.read_stream_identity()
    try:
        with pytest.raises(SourceError, match="is active for PID"):
            source.start(None)
    finally:
        source.stop()
        other.stop()


@pytest.mark.behaviour("N36")
def test_an_accepted_gap_drops_no_slot_of_another_kind(database: Database) -> None:
    database.execute(_SCHEMA)
    slot = f"s_{database.name}"
    database.query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, true)", slot)
    source = snapshotting(database)
    source.set_snapshots([_REQUEST])
    source.read_stream_identity()
    with pytest.raises(SourceError, match="two_phase"):
        source.start(None)
    source.stop()
    assert database.value("SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", slot) == 1


def test_an_accepted_gap_makes_a_slot_that_standbys_keep_anew_as_one_that_they_keep(
    own_postgres: EmbeddedPostgres,
) -> None:
    if own_postgres.version < 17:
        pytest.skip("failover came with PostgreSQL 17")
    database = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    database.execute(_SCHEMA)
    database.query("SELECT pg_create_logical_replication_slot('s_postgres', 'pgoutput', false, false, true)")
    _invalidate_slot_without_rows(database)
    source = snapshotting(database)
    source.set_snapshots([_REQUEST])
    source.read_stream_identity()
    source.start(None)
    source.stop()
    assert database.query("SELECT failover, wal_status FROM pg_replication_slots") == [(True, "reserved")]


def _invalidate_slot_without_rows(database: Database) -> None:
    database.execute("INSERT INTO t SELECT i FROM generate_series(1, 10) i")
    _invalidate_slot(database, "s_postgres")


@pytest.mark.behaviour("N35")
def test_tables_without_a_key_are_sent_anew_where_a_new_slot_begins(database: Database) -> None:
    database.execute("CREATE TABLE keyless (v int); CREATE PUBLICATION p FOR TABLE keyless")
    database.execute("INSERT INTO keyless SELECT i FROM generate_series(1, 1000) i")
    source = snapshotting(database)
    source.set_snapshots([_REQUEST])
    source.read_stream_identity()
    source.start(None)
    database.execute("INSERT INTO keyless VALUES (5000)")
    found: list[str] = []
    try:
        while len(found) < 1001:
            batch = source.read(0.1)
            if batch is not None:
                source.confirm(batch.position)
                found += [kind.action for *_, kind, rows in batch.count_changes() for _ in range(rows)]
    finally:
        source.stop()
    assert found == ["read"] * 1000 + ["insert"]
    assert [one.id for one in source.list_snapshots()] == ["all-again"]


def _delivered(database: Database) -> Consumer:
    """A consumer that has 100 rows, of a source that is stopped."""
    database.execute(_SCHEMA + "INSERT INTO t SELECT i, 'there' FROM generate_series(1, 100) i")
    consumer = Consumer(snapshotting(database))
    consumer.source.read_stream_identity()
    consumer.source.start(None)
    consumer.until_done()
    consumer.until_level(database)
    consumer.keep()
    consumer.source.stop()
    return consumer


def _refused(consumer: Consumer, database: Database) -> str:
    source = snapshotting(database)
    source.read_stream_identity()
    with pytest.raises(PositionRefused) as refused:
        _read_on(source, consumer.position)
    source.stop()
    return str(refused.value)


def _read_on(source: PostgresSource, position: Position | None) -> None:
    assert position is not None
    start_again(source, position)
    while True:
        source.read(0.1)


def _accept_gap(consumer: Consumer, database: Database) -> None:
    """What the command does, and the next start: no position, and a request of all tables."""
    consumer.fold.touched.clear()
    consumer.source = snapshotting(database)
    consumer.source.set_snapshots([_REQUEST])
    consumer.source.read_stream_identity()
    consumer.source.start(None)
