"""TOASTed values that an update left alone, as PostgreSQL sends them: filled in, left out or marked by column."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from psql_streamer.events.routing import Router
from psql_streamer.events.unchanged import Treatment, Unchanged
from psql_streamer.model import Batch
from tests.database import Database
from tests.encoding import encoder_of
from tests.source_at_work import read_all, streaming

RULES: dict[str, Treatment] = {"*": "omit", "a": "fill", "docs.b": "marker"}
LONG = "x" * 5000


def updates(batches: Sequence[Batch], **options: Any) -> list[tuple[Any, list[str]]]:
    """The new row of every update, and what it is said to lack."""
    encoder = encoder_of("event", Router({}, "t", ""), {}, **options)
    events = [json.loads(value) for batch in batches for value in encoder.encode(batch).values.to_pylist()]
    return [(event["Columns"], event.get("Unchanged", [])) for event in events if event["Action"] == "update"]


def left_behind(batches: Sequence[Batch], form: str, **options: Any) -> dict[str, int]:
    """What rows under a new key are said to lack."""
    encoder = encoder_of(form, Router({}, "t", ""), {}, **options)
    return dict(sum((Counter(encoder.encode(batch).left_behind) for batch in batches), Counter()))


@pytest.mark.behaviour("D6")
def test_unchanged_toast_is_treated_as_the_rules_of_its_column_say(every_postgres: Database) -> None:
    database = every_postgres
    database.execute(
        f"""
        CREATE TABLE docs (id int PRIMARY KEY, n int, a text, b text, c bytea);
        ALTER TABLE docs ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL, ALTER c SET STORAGE EXTERNAL;
        INSERT INTO docs VALUES (1, 0, '{LONG}', '{LONG}', decode('{"00" * 5000}', 'hex'));
        CREATE PUBLICATION p FOR ALL TABLES
        """
    )
    with streaming(database) as source:
        database.execute("UPDATE docs SET n = 1")
        by_key = read_all(source, database)
        database.execute("ALTER TABLE docs REPLICA IDENTITY FULL")
        database.execute("UPDATE docs SET n = 2")
        full = read_all(source, database)

    policy = Unchanged(RULES)
    assert updates(by_key) == [({"id": 1, "n": 1}, ["a", "b", "c"])]
    assert updates(by_key, unchanged=policy) == [({"id": 1, "n": 1, "b": "__unchanged__"}, ["a", "b", "c"])]
    ((filled, lacking),) = updates(full)
    assert (filled["a"], filled["b"], len(filled["c"]), lacking) == (LONG, LONG, 6668, [])
    assert updates(full, unchanged=policy) == [({"id": 1, "n": 2, "a": LONG, "b": LONG}, ["c"])]


@pytest.mark.behaviour("D6")
def test_a_value_that_an_update_of_the_key_left_alone_is_told_of_because_nothing_under_the_new_key_has_it(
    every_postgres: Database,
) -> None:
    database = every_postgres
    database.execute(
        f"""
        CREATE TABLE docs (id int PRIMARY KEY, n int, a text, b text);
        ALTER TABLE docs ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL;
        INSERT INTO docs SELECT i, 0, '{LONG}', '{LONG}' FROM generate_series(1, 3) i;
        CREATE PUBLICATION p FOR ALL TABLES
        """
    )
    with streaming(database) as source:
        database.execute("UPDATE docs SET n = 1")
        database.execute("UPDATE docs SET id = id + 10, a = 'short' WHERE id < 3; UPDATE docs SET id = 20 WHERE id = 3")
        by_key = read_all(source, database)
        database.execute("ALTER TABLE docs REPLICA IDENTITY FULL; UPDATE docs SET id = id + 50")
        full = read_all(source, database)
    for form in ("event", "envelope", "debezium", "flat"):
        for rule in ("fill", "omit", "marker"):
            rules: dict[str, Treatment] = {"*": rule}
            lacking = {"public.docs.a": 1, "public.docs.b": 3}
            assert left_behind(by_key, form, unchanged=Unchanged(rules)) == lacking
    assert left_behind(full, "event") == {}


@pytest.mark.behaviour("D6")
def test_a_key_that_is_toasted_is_never_null(every_postgres: Database) -> None:
    database = every_postgres
    # Long enough to be moved out of its row, and short enough for an index.
    long = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 70) i)"
    database.execute(
        f"""
        CREATE TABLE docs (id text PRIMARY KEY, n int, filler text);
        ALTER TABLE docs ALTER id SET STORAGE EXTERNAL;
        INSERT INTO docs VALUES ({long}, 0, '');
        CREATE PUBLICATION p FOR ALL TABLES
        """
    )
    with streaming(database) as source:
        database.execute("UPDATE docs SET n = 1")
        batches = read_all(source, database)
    key = database.value("SELECT id FROM docs")
    for rule in ("fill", "omit", "marker"):
        rules: dict[str, Treatment] = {"*": rule}
        assert updates(batches, unchanged=Unchanged(rules)) == [({"id": key, "n": 1, "filler": ""}, [])]
        keys = [
            encoder_of("flat", Router({}, "t", ""), {}, unchanged=Unchanged(rules)).encode(one).keys for one in batches
        ]
        assert [json.loads(one) for array in keys for one in array.to_pylist()] == [{"id": key}]
