"""A snapshot of a table that is streamed in another way, or not at all, for a while: whoever reads it is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from psql_streamer.snapshots import SnapshotProgress, SnapshotRequest, SnapshotState, TableRequest
from tests.database import Database
from tests.integration.test_snapshot import reading, started
from tests.integration.test_snapshot_races import Consumer, snapshotting
from tests.snapshot_fold import rows_of_changes
from tests.source_at_work import wait_for

_CHANGE = "UPDATE t SET v = 'new' WHERE id <= 50; DELETE FROM t WHERE id = 7; INSERT INTO t VALUES (0, 'new')"
_RECONCILE = "psql-streamer snapshot reconcile --source db1 --table public."
_CHUNK_IS_HELD = """
SELECT FROM pg_stat_activity
WHERE application_name = 'psql-streamer snapshot' AND query = 'ROLLBACK' AND state = 'idle'
    AND datname = current_database()
"""
_TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'old' FROM generate_series(1, 700) i;"
_IN_SCHEMA = "CREATE SCHEMA x; CREATE PUBLICATION p FOR TABLES IN SCHEMA public"
_PARTITIONED = (
    "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
    "CREATE TABLE t PARTITION OF root FOR VALUES FROM (0) TO (1000);"
    "INSERT INTO root SELECT i, 'old' FROM generate_series(1, 700) i; CREATE PUBLICATION p FOR TABLE root"
)

AWAY_AND_BACK = [
    pytest.param(
        _TABLE + "CREATE PUBLICATION p FOR TABLE t",
        f"ALTER PUBLICATION p DROP TABLE t; {_CHANGE}; ALTER PUBLICATION p ADD TABLE t",
        "t",
        id="out of the publication",
    ),
    pytest.param(
        _TABLE + "CREATE PUBLICATION p FOR TABLE t",
        f"ALTER PUBLICATION p SET (publish = 'truncate'); {_CHANGE};"
        "ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate')",
        "t",
        id="nothing is published",
    ),
    pytest.param(
        _TABLE + _IN_SCHEMA,
        "ALTER TABLE t SET SCHEMA x;" + _CHANGE.replace(" t ", " x.t ") + "; ALTER TABLE x.t SET SCHEMA public",
        "t",
        id="out of the schema",
    ),
    pytest.param(
        _PARTITIONED,
        f"ALTER TABLE root DETACH PARTITION t; {_CHANGE};"
        "ALTER TABLE root ATTACH PARTITION t FOR VALUES FROM (0) TO (1000)",
        "t",
        id="out of its root",
    ),
    pytest.param(
        _PARTITIONED + " WITH (publish_via_partition_root)",
        f"ALTER TABLE root DETACH PARTITION t; {_CHANGE};"
        "ALTER TABLE root ATTACH PARTITION t FOR VALUES FROM (0) TO (1000)",
        "root",
        id="a partition out of the root that is read",
    ),
    pytest.param(
        _TABLE + "CREATE PUBLICATION p FOR ALL TABLES",
        f"ALTER TABLE t SET UNLOGGED; {_CHANGE}; ALTER TABLE t SET LOGGED",
        "t",
        id="unlogged",
    ),
    pytest.param(
        _PARTITIONED + " WITH (publish_via_partition_root)",
        f"ALTER TABLE t SET UNLOGGED; {_CHANGE}; ALTER TABLE t SET LOGGED",
        "root",
        id="an unlogged partition of the root that is read",
    ),
]


def execute_each(database: Database, statements: str) -> None:
    """Each in a transaction of its own."""
    for statement in statements.split(";"):
        database.execute(statement)


def holding(database: Database, table: str, awaited: str) -> Consumer:
    """A snapshot of a table whose only chunk waits for the stream. awaited: what is changed before."""
    consumer = started(database, mode="never", chunkRows=1000)
    database.execute(awaited)
    consumer.source.set_snapshots([SnapshotRequest("now", (TableRequest(table),), asked_at=1.0)])
    wait_for(lambda: bool(database.query(_CHUNK_IS_HELD)), "a chunk to be read", 20)
    return consumer


@contextmanager
def reading_or_holding(database: Database, held: bool) -> Iterator[Consumer]:
    """A snapshot of `t`, which has given 200 rows, or whose only chunk waits for the stream; done behind the block."""
    if held:
        consumer = holding(database, "public.t", "INSERT INTO t VALUES (900, 'awaited')")
    else:
        consumer = started(database, chunkRows=50, chunkBytes=1000, parallel=1)
    try:
        while not held and consumer.fold.reads < 200:
            consumer.read()
        yield consumer
        consumer.until_done()
        consumer.until_level(database)
    finally:
        consumer.source.stop()


def require_no_other_rows(consumer: Consumer, database: Database, table: str) -> None:
    """Whether the consumer has what SELECT gives, and beside it the row whose delete was not streamed."""
    found = {key: row["v"] for (key,), row in consumer.fold.tables[f"public.{table}"].items()}
    assert found.pop(b"7", b"old") == b"old"
    assert found == {str(key).encode(): v.encode() for key, v in database.query(f"SELECT id, v FROM {table}")}


def require_told(shown: SnapshotProgress, table: str) -> None:
    assert shown.state is SnapshotState.DONE
    assert "may not be in the stream" in shown.reason
    assert _RECONCILE + table in shown.reason
    assert _RECONCILE + table in shown.tables[0].reason


@pytest.mark.behaviour("N28")
@pytest.mark.parametrize("meanwhile", ["running", pytest.param("stopped", marks=pytest.mark.soak)])
@pytest.mark.parametrize(("made", "altered", "table"), AWAY_AND_BACK)
def test_a_table_that_was_not_streamed_between_two_chunks_is_read_from_its_beginning_and_that_is_told(
    database: Database, made: str, altered: str, table: str, meanwhile: str
) -> None:
    if "IN SCHEMA" in made and database.version < 15:
        pytest.skip("publications of schemas came with PostgreSQL 15")
    database.execute(made)
    with reading(database, 200, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        if meanwhile == "stopped":
            consumer.source.stop()
            execute_each(database, altered)
            consumer.keep()
            consumer.lose(snapshotting(database, chunkRows=50))
        else:
            database.execute(altered)  # as one transaction: no chunk is read in the middle of it
        consumer.until_done()
        consumer.until_level(database)
    [shown] = consumer.source.list_snapshots()
    require_told(shown, table)
    require_no_other_rows(consumer, database, table)


@pytest.mark.behaviour("N28")
@pytest.mark.parametrize(("made", "altered", "table"), AWAY_AND_BACK)
def test_a_table_that_was_not_streamed_while_its_last_chunk_was_held_is_read_from_its_beginning_and_that_is_told(
    database: Database, made: str, altered: str, table: str
) -> None:
    if "IN SCHEMA" in made and database.version < 15:
        pytest.skip("publications of schemas came with PostgreSQL 15")
    database.execute(made)
    consumer = holding(database, f"public.{table}", "INSERT INTO t VALUES (900, 'awaited')")
    try:
        execute_each(database, altered)
        consumer.until_done()
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    [shown] = consumer.source.list_snapshots()
    require_told(shown, table)
    require_no_other_rows(consumer, database, table)


def test_partitions_that_become_their_root_while_their_last_chunk_is_held_say_what_to_do(database: Database) -> None:
    database.execute(_PARTITIONED)
    consumer = holding(database, "public.t", "INSERT INTO t VALUES (900, 'awaited')")
    try:
        database.execute("ALTER PUBLICATION p SET (publish_via_partition_root)")
        database.execute(_CHANGE)
        consumer.until_done()
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    [shown] = consumer.source.list_snapshots()
    assert shown.state is SnapshotState.FAILED
    assert "public.t is no longer there, or no longer published under this name" in shown.reason
    assert "ask for a snapshot of the tables that are streamed now" in shown.reason


@pytest.mark.behaviour("N28")
@pytest.mark.parametrize(
    ("altered", "name"),
    [("ALTER TABLE t RENAME TO u", "public.u"), ("CREATE SCHEMA x; ALTER TABLE t SET SCHEMA x", "x.t")],
)
@pytest.mark.parametrize("held", [False, True])
def test_a_table_that_gets_another_name_is_read_from_its_beginning_under_that_and_that_is_told(
    database: Database, altered: str, name: str, held: bool
) -> None:
    database.execute(_TABLE + "CREATE PUBLICATION p FOR TABLE t")
    with reading_or_holding(database, held) as consumer:
        database.execute(altered)
    [shown] = consumer.source.list_snapshots()
    assert shown.state is SnapshotState.DONE
    assert f"public.t is called {name} now" in shown.reason
    consumer.fold.assert_equals(database, name)


def test_other_tables_that_come_and_go_do_not_make_a_table_be_read_from_its_beginning(database: Database) -> None:
    database.execute(_TABLE + "CREATE TABLE other (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t, other")
    with reading(database, 200, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        execute_each(
            database,
            "ALTER PUBLICATION p DROP TABLE other; ALTER PUBLICATION p ADD TABLE other; ALTER TABLE t ADD w int;"
            "CREATE INDEX ON t (v); GRANT SELECT ON t TO PUBLIC; ANALYZE t",
        )
        consumer.until_done()
    [shown] = consumer.source.list_snapshots()
    assert (shown.state, shown.reason) == (SnapshotState.DONE, "")
    assert consumer.fold.reads == 700


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("t (id)", "t", id="more columns"),
        pytest.param("t", "t (id)", id="fewer columns"),
        pytest.param("t WHERE (id > 100)", "t", id="more rows"),
        pytest.param("t", "t WHERE (id > 100)", id="fewer rows"),
    ],
)
@pytest.mark.parametrize("held", [False, True])
def test_a_table_of_which_other_rows_or_columns_are_published_meanwhile_is_read_from_its_beginning(
    database: Database, before: str, after: str, held: bool
) -> None:
    if database.version < 15:
        pytest.skip("row filters and column lists came with PostgreSQL 15")
    database.execute(_TABLE + f"CREATE PUBLICATION p FOR TABLE {before}")
    with reading_or_holding(database, held) as consumer:
        database.execute(f"ALTER PUBLICATION p SET TABLE {after}")
    require_told(consumer.source.list_snapshots()[0], "t")
    rows = consumer.fold.tables["public.t"]
    where = " WHERE id > 100" if "WHERE" in after else ""
    expected = {str(key).encode() for (key,) in database.query(f"SELECT id FROM t{where}")}
    assert {key for (key,) in rows} >= expected
    if "(id)" not in after:
        assert all("v" in row for row in rows.values())


def test_a_row_that_comes_again_with_values_that_the_stream_has_not_is_no_repetition(database: Database) -> None:
    """Whoever has seen its UUID would leave it out."""
    database.execute(_TABLE + "CREATE PUBLICATION p FOR TABLE t")
    consumer = started(database, chunkRows=50, chunkBytes=1000, parallel=1)
    found: dict[bytes, set[bytes | None]] = {}

    def read() -> None:
        batch = consumer.read()
        for changes in batch.changes if batch is not None else ():
            assert changes.uuid is not None
            for (_, row, _), uuid in zip(rows_of_changes(changes), changes.uuid.tolist(), strict=True):
                assert row is not None
                found.setdefault(uuid, set()).add(row["v"])

    try:
        while consumer.fold.reads < 200:
            read()
        database.execute(f"ALTER PUBLICATION p DROP TABLE t; {_CHANGE}; ALTER PUBLICATION p ADD TABLE t")
        while not consumer.done:
            read()
            consumer.keep()
    finally:
        consumer.source.stop()
    assert {b"old"} in found.values()
    assert {b"new"} in found.values()
    assert all(len(values) == 1 for values in found.values())


@pytest.mark.parametrize("alter", ["ALTER v TYPE text USING v || id", "ALTER id TYPE int USING 701 - id"])
def test_a_table_that_gets_other_values_by_alter_table_is_read_from_its_beginning(
    database: Database, alter: str
) -> None:
    database.execute(_TABLE + "UPDATE t SET v = id; CREATE PUBLICATION p FOR TABLE t")
    with reading(database, 200, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        database.execute(f"ALTER TABLE t {alter}")
        consumer.until_done()
    consumer.fold.assert_equals(database, "public.t")


@pytest.mark.parametrize("anew", ["VACUUM FULL t", "CLUSTER t USING t_pkey"])
def test_a_table_whose_rows_move_and_stay_as_they_are_is_read_on(database: Database, anew: str) -> None:
    database.execute(_TABLE + "CREATE PUBLICATION p FOR TABLE t")
    with reading(database, 200, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        with database.session(autocommit=True) as session, session.cursor() as cursor:
            cursor.execute(anew)
        consumer.until_done()
    assert (consumer.fold.reads, consumer.source.list_snapshots()[0].reason) == (700, "")
