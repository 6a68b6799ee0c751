"""Tables with REPLICA IDENTITY FULL through the real source: keyed by what the catalog says is the primary key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from psql_streamer.events.routing import Router
from psql_streamer.model import Batch, Position, Relation
from tests.database import Database
from tests.encoding import encoder_of
from tests.source_at_work import read_all, streaming


def keys(batches: Sequence[Batch]) -> list[Any]:
    """(op, key) of every event."""
    encoder = encoder_of("event", Router({}, "t", ""), {})
    return [
        (chr(op), None if key is None else json.loads(key))
        for records in map(encoder.encode, batches)
        for op, key in zip(records.op.tolist(), records.keys.to_pylist(), strict=True)
    ]


@pytest.mark.behaviour("D3", "D4", "S2")
def test_d3_d4_full_is_keyed_by_the_primary_key_also_after_it_changed(every_postgres: Database) -> None:
    database = every_postgres
    database.execute(
        """
        CREATE TABLE t (note text, b text, a int, big text, PRIMARY KEY (b, a) INCLUDE (note));
        ALTER TABLE t REPLICA IDENTITY FULL;
        CREATE PUBLICATION p FOR ALL TABLES
        """
    )
    with streaming(database) as source:
        database.execute("INSERT INTO t VALUES ('n', 'x', 1, 'big')")
        database.execute("UPDATE t SET note = 'other'")
        database.execute("UPDATE t SET a = 2, big = NULL")
        one, two = {"b": "x", "a": 1}, {"b": "x", "a": 2}
        assert keys(read_all(source, database)) == [("I", one), ("U", one), ("D", one), ("I", two)]

        database.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (a)")
        database.execute("DELETE FROM t")
        assert keys(read_all(source, database)) == [("D", {"a": 2})]


@pytest.mark.behaviour("D9")
@pytest.mark.parametrize("via_root", [False, True])
def test_d9_full_on_a_partitioned_table_is_keyed_either_way(database: Database, via_root: bool) -> None:
    database.execute(
        f"""
        CREATE TABLE t (id int PRIMARY KEY, note text) PARTITION BY RANGE (id);
        CREATE TABLE leaf PARTITION OF t FOR VALUES FROM (0) TO (10);
        ALTER TABLE t REPLICA IDENTITY FULL;
        ALTER TABLE leaf REPLICA IDENTITY FULL;
        CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root = {via_root})
        """
    )
    with streaming(database) as source:
        database.execute("INSERT INTO t VALUES (1, 'a')")
        database.execute("UPDATE t SET note = 'b'")
        assert keys(read_all(source, database)) == [("I", {"id": 1}), ("U", {"id": 1})]


@pytest.mark.behaviour("D5", "D8")
def test_d5_d8_full_without_a_primary_key_and_tables_made_and_dropped_mid_stream(database: Database) -> None:
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    with streaming(database) as source:
        database.execute("CREATE TABLE keyed (id int PRIMARY KEY, n int); ALTER TABLE keyed REPLICA IDENTITY FULL")
        database.execute("CREATE TABLE bare (id int); ALTER TABLE bare REPLICA IDENTITY FULL")
        database.execute("INSERT INTO keyed VALUES (1, 1)")
        database.execute("INSERT INTO bare VALUES (1)")
        assert keys(read_all(source, database)) == [("I", {"id": 1}), ("I", None)]

    database.execute("INSERT INTO keyed VALUES (2, 2)")
    database.execute("DROP TABLE keyed")
    with streaming(database) as source:
        # What was read before and not confirmed comes again; the table is gone, and so is what was known of it.
        assert keys(read_all(source, database))[-1] == ("I", None)


_FULL = """
CREATE TABLE t (a int, b int, PRIMARY KEY (a));
ALTER TABLE t REPLICA IDENTITY FULL;
CREATE PUBLICATION p FOR ALL TABLES
"""
_OTHER_KEY = "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (b)"


@pytest.mark.behaviour("S2")
def test_a_key_that_changed_before_the_first_row_of_a_session_is_the_new_one(every_postgres: Database) -> None:
    database = every_postgres
    database.execute(_FULL)
    with streaming(database) as source:
        database.execute(_OTHER_KEY)
        database.execute("INSERT INTO t VALUES (1, 10)")
        assert keys(read_all(source, database)) == [("I", {"b": 10})]
        assert source.stats()["keys_in_doubt"] == 0


@pytest.mark.behaviour("S2")
@pytest.mark.parametrize(
    "change",
    [f"SAVEPOINT x; {_OTHER_KEY}; RELEASE x", _OTHER_KEY],
    ids=["in a savepoint", "in the transaction itself"],
)
def test_a_key_that_changed_in_the_transaction_of_the_row_is_the_new_one_and_told(
    database: Database, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(f"{_FULL}; CREATE TABLE other ()")
    with streaming(database) as source:
        database.execute("INSERT INTO t VALUES (1, 10)")
        assert keys(read_all(source, database)) == [("I", {"a": 1})]
        database.execute(f"INSERT INTO other DEFAULT VALUES; {change}; INSERT INTO t VALUES (2, 20)")
        database.execute("DELETE FROM t WHERE b = 20")
        assert keys(read_all(source, database)) == [("I", None), ("I", {"b": 20}), ("D", {"b": 20})]
        assert source.stats()["keys_in_doubt"] == 1
    assert "It is not certain whether its next rows in the WAL are older or newer" in caplog.text


@pytest.mark.behaviour("S2")
def test_rows_from_before_a_column_of_the_key_was_renamed_have_its_old_name(database: Database) -> None:
    database.execute(_FULL)
    shapes, position = _shapes_after_a_row(database)
    database.execute("INSERT INTO t VALUES (2, 20)")
    database.execute("ALTER TABLE t RENAME a TO renamed")
    database.execute("INSERT INTO t VALUES (3, 30)")
    with streaming(database, position, shapes) as again:
        assert keys(read_all(again, database)) == [("I", {"a": 2}), ("I", {"renamed": 3})]
        assert again.stats()["keys_in_doubt"] == 1


@pytest.mark.behaviour("S2")
def test_rows_from_before_a_key_was_changed_have_the_key_that_the_table_had_when_it_was_seen(
    every_postgres: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database = every_postgres
    database.execute(_FULL)
    shapes, position = _shapes_after_a_row(database)
    database.execute("INSERT INTO t VALUES (2, 20)")
    database.execute(_OTHER_KEY)
    database.execute("INSERT INTO t VALUES (3, 30)")
    with streaming(database, position, shapes) as again:
        assert keys(read_all(again, database)) == [("I", {"a": 2}), ("I", {"b": 30})]
        assert again.stats()["keys_in_doubt"] == 1
        assert "the primary key of public.t was changed" in caplog.text


def test_rows_of_a_table_that_is_gone_have_the_key_that_it_had(database: Database) -> None:
    database.execute(_FULL)
    shapes, position = _shapes_after_a_row(database)
    database.execute("INSERT INTO t VALUES (2, 20)")
    database.execute("DROP TABLE t")
    with streaming(database, position, shapes) as again:
        assert keys(read_all(again, database)) == [("I", {"a": 2})]
        assert again.stats()["keys_in_doubt"] == 1


def _shapes_after_a_row(database: Database) -> tuple[Sequence[Relation], Position]:
    """What a session that read one row of the table leaves to the next."""
    with streaming(database) as source:
        database.execute("INSERT INTO t VALUES (1, 10)")
        batches = read_all(source, database)
    return [change.relation for batch in batches for change in batch.schema_changes], batches[-1].position
