"""Every event has the shape that its table had when it was written: S1 to S4 of docs/behaviour.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from psql_streamer.model import Batch
from tests.flatten import flatten_all
from tests.shared_stream import SharedStream, events, rows
from tests.source_at_work import identities, read_all

Told = list[tuple[str, str, Any]]

HOW = ("in one transaction", "in a transaction each", "while the source is away")


def told_when(stream: SharedStream, how: str, steps: Sequence[str]) -> list[Batch]:
    """What the steps gave, run in one of the ways of HOW."""
    if how == "in one transaction":
        stream.run(";".join(steps))
        return stream.batches()
    if how == "in a transaction each":
        batches = []
        for step in steps:
            stream.run(step)
            batches += stream.batches()
        return batches
    with stream.away():
        stream.run(*steps)
    return stream.batches()


_CHANGES_OF_COLUMNS = (
    "INSERT INTO t VALUES (1, 'one')",
    "ALTER TABLE t ADD price numeric(8, 2) DEFAULT 1.5",
    "INSERT INTO t VALUES (2, 'two', 2.25); UPDATE t SET note = 'uno' WHERE id = 1",
    "ALTER TABLE t RENAME price TO cost",
    "UPDATE t SET cost = 3 WHERE id = 2",
    "ALTER TABLE t ALTER cost TYPE text USING '<' || cost || '>'",
    "INSERT INTO t VALUES (3, 'three', 'free'); UPDATE t SET note = 'zwei' WHERE id = 2",
    "ALTER TABLE t DROP note",
    "INSERT INTO t VALUES (4, 'a'); DELETE FROM t WHERE id = 1",
    "ALTER TABLE t ADD note jsonb, ALTER id TYPE bigint",
    "INSERT INTO t VALUES (5000000000, NULL, '{\"a\": 1}')",
    "ALTER TABLE t RENAME id TO code; ALTER TABLE t RENAME cost TO id",
    "UPDATE t SET code = 40, id = 'b' WHERE code = 4",
)
_SHAPES: Told = [
    ("I", "public.t", {"id": 1, "note": "one"}),
    ("I", "public.t", {"id": 2, "note": "two", "price": 2.25}),
    ("U", "public.t", {"id": 1, "note": "uno", "price": 1.5}),
    ("U", "public.t", {"id": 2, "note": "two", "cost": 3}),
    ("I", "public.t", {"id": 3, "note": "three", "cost": "free"}),
    ("U", "public.t", {"id": 2, "note": "zwei", "cost": "<3.00>"}),
    ("I", "public.t", {"id": 4, "cost": "a"}),
    ("D", "public.t", {"id": 1}),
    ("I", "public.t", {"id": 5000000000, "cost": None, "note": {"a": 1}}),
    ("D", "public.t", {"code": 4}),
    ("I", "public.t", {"code": 40, "id": "b", "note": None}),
]


@pytest.mark.behaviour("S1")
@pytest.mark.parametrize("how", HOW)
def test_columns_added_renamed_retyped_and_dropped_leave_each_event_in_the_shape_of_its_time(
    stream: SharedStream, how: str
) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY, note text)")
    assert rows(events(told_when(stream, how, _CHANGES_OF_COLUMNS))) == _SHAPES


@pytest.mark.behaviour("S1", "S4")
@pytest.mark.parametrize("separator", [";", ";COMMIT;"])
def test_a_restart_anywhere_between_the_shapes_goes_on_with_the_right_one(stream: SharedStream, separator: str) -> None:
    database = stream.database
    stream.run("CREATE TABLE t (id int PRIMARY KEY, note text)")
    with stream.another(batchSize=2) as source:
        stream.run(separator.join(_CHANGES_OF_COLUMNS))
        batches = read_all(source, database)
        everything = identities(batches)
        assert rows(events(batches)) == _SHAPES
        ends = [place for place, batch in enumerate(batches) if batch.changes]
        for place in ends[:-1:2]:
            source.start(batches[place].position)
            again = read_all(source, database)
            had = len(identities(batches[: place + 1]))
            assert identities(again) == everything[had:]
            assert rows(events(again)) == rows(events(batches[place + 1 :]))


@pytest.mark.behaviour("S1")
def test_a_table_that_is_rewritten_tells_no_rows(stream: SharedStream) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY, note text)", "INSERT INTO t SELECT generate_series(1, 100), 'a'")
    stream.batches()
    assert stream.told("ALTER TABLE t ALTER note TYPE varchar(9), ADD at timestamptz DEFAULT clock_timestamp()") == []
    assert stream.told("CLUSTER t USING t_pkey") == []
    assert [row["note"] for _, _, row in stream.told("UPDATE t SET note = 'b' WHERE id = 7")] == ["b"]


@pytest.mark.behaviour("S2")
@pytest.mark.parametrize("how", HOW)
def test_precision_length_and_not_null_may_change(stream: SharedStream, how: str) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY, n numeric(6, 2) NOT NULL, v varchar(3), at timestamp(0))")
    batches = told_when(
        stream,
        how,
        (
            "INSERT INTO t VALUES (1, 1.5, 'abc', '2024-01-01 00:00:00.25')",
            "ALTER TABLE t ALTER n TYPE numeric(12, 4), ALTER v TYPE varchar(9), ALTER at TYPE timestamp(3)",
            "INSERT INTO t VALUES (2, 1.5, 'abcdefghi', '2024-01-01 00:00:00.25')",
            "ALTER TABLE t ALTER n DROP NOT NULL, ALTER v SET NOT NULL, ALTER n TYPE numeric",
            "INSERT INTO t VALUES (3, NULL, 'x'), (4, 1.12345678, '')",
            "ALTER TABLE t ALTER v TYPE text, ALTER n TYPE numeric(3, 0) USING round(n)",
            "UPDATE t SET n = 7 WHERE id = 3",
        ),
    )
    told = [(str(row["n"]), row["v"], row["at"]) for _, _, row in rows(events(batches))]
    assert told == [
        ("1.50", "abc", "2024-01-01T00:00:00"),
        ("1.5000", "abcdefghi", "2024-01-01T00:00:00.25"),
        ("None", "x", None),
        ("1.12345678", "", None),
        ("7", "x", None),
    ]
    shapes = [change.relation.columns[1:3] for change in flatten_all(batches) if change.relation]
    modifiers = [tuple(column[2] for column in columns) for columns in shapes]
    assert modifiers == [
        *(((6 << 16 | 2) + 4, 3 + 4), ((12 << 16 | 4) + 4, 9 + 4)),
        *((-1, 9 + 4), (-1, 9 + 4), ((3 << 16) + 4, -1)),
    ]


@pytest.mark.behaviour("S2")
@pytest.mark.parametrize("how", HOW)
def test_the_key_of_a_table_may_become_another_one(stream: SharedStream, how: str) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL, note text)")
    batches = told_when(
        stream,
        how,
        (
            "INSERT INTO t VALUES (1, 'a', 'n')",
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code)",
            "UPDATE t SET note = 'm'; UPDATE t SET id = 2; UPDATE t SET code = 'b'",
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code, id)",
            "UPDATE t SET note = 'l'",
            "ALTER TABLE t DROP CONSTRAINT t_pkey",
            "INSERT INTO t VALUES (3, 'c', 'k')",
            "CREATE UNIQUE INDEX u ON t (code); ALTER TABLE t REPLICA IDENTITY USING INDEX u",
            "DELETE FROM t WHERE id = 3",
        ),
    )
    assert [(event.op, event.key) for event in events(batches)] == [
        ("I", {"id": 1}),
        ("U", {"code": "a"}),
        ("U", {"code": "a"}),
        ("D", {"code": "a"}),
        ("I", {"code": "b"}),
        ("U", {"id": 2, "code": "b"}),
        ("I", None),
        ("D", {"code": "c"}),
    ]


@pytest.mark.behaviour("S3")
@pytest.mark.parametrize("how", ["in a transaction each", "while the source is away"])
def test_labels_of_enums_come_as_they_were_called_when_the_row_was_written(stream: SharedStream, how: str) -> None:
    stream.run("CREATE TYPE mood AS ENUM ('ok')", "CREATE TABLE t (id int PRIMARY KEY, m mood, many mood[])")
    batches = told_when(
        stream,
        how,
        (
            "INSERT INTO t VALUES (1, 'ok', '{ok}')",
            "ALTER TYPE mood ADD VALUE 'ko' BEFORE 'ok'",
            "INSERT INTO t VALUES (2, 'ko', '{ko,ok}')",
            "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'",
            "INSERT INTO t VALUES (3, 'fine', '{fine,NULL}')",
            "ALTER TYPE mood RENAME TO feeling",
            "INSERT INTO t VALUES (4, 'ko', '{}')",
        ),
    )
    told = [(row["m"], row["many"]) for _, _, row in rows(events(batches))]
    assert told == [("ok", ["ok"]), ("ko", ["ko", "ok"]), ("fine", ["fine", None]), ("ko", [])]


@pytest.mark.behaviour("S3")
def test_types_that_are_made_mid_stream_stay_apart_though_they_share_a_name(stream: SharedStream) -> None:
    told = stream.told(
        "CREATE SCHEMA a; CREATE SCHEMA b; CREATE TYPE a.pair AS (x int, y text); CREATE TYPE b.pair AS (z boolean)",
        "CREATE DOMAIN a.amount AS numeric(8, 2); CREATE DOMAIN b.amount AS a.amount CHECK (VALUE > 0);"
        "CREATE DOMAIN amounts AS b.amount[]",
        "CREATE TABLE t (id int PRIMARY KEY, one a.pair, two b.pair, amount b.amount, amounts amounts)",
        "INSERT INTO t VALUES (1, '(1,x)', '(t)', 1.5, '{2.25,NULL}')",
    )
    told += stream.told(
        "ALTER TABLE t DROP one; DROP TYPE a.pair; CREATE TYPE a.pair AS ENUM ('(1,x)'); ALTER TABLE t ADD one a.pair;"
        "UPDATE t SET one = '(1,x)'",
    )
    before = {"id": 1, "one": {"x": 1, "y": "x"}, "two": {"z": True}, "amount": 1.5, "amounts": [2.25, None]}
    assert [row for _, _, row in told] == [before, {**before, "one": "(1,x)"}]
    assert str(told[0][2]["amount"]) == "1.50"


@pytest.mark.behaviour("S4")
@pytest.mark.parametrize("how", HOW)
def test_a_table_that_is_dropped_and_made_again_under_its_name_is_another_table(stream: SharedStream, how: str) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY, note text)")
    batches = told_when(
        stream,
        how,
        (
            "INSERT INTO t VALUES (1, 'one')",
            "DROP TABLE t; CREATE TABLE t (note bigint, code uuid PRIMARY KEY)",
            "INSERT INTO t VALUES (2, '123e4567-e89b-12d3-a456-426614174000')",
            "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, note text)",
            "INSERT INTO t VALUES (1, 'again'); UPDATE t SET note = 'more'; DELETE FROM t",
        ),
    )
    told = events(batches)
    uuid = "123e4567-e89b-12d3-a456-426614174000"
    assert rows(told) == [
        ("I", "public.t", {"id": 1, "note": "one"}),
        ("I", "public.t", {"note": 2, "code": uuid}),
        ("I", "public.t", {"id": 1, "note": "again"}),
        ("U", "public.t", {"id": 1, "note": "more"}),
        ("D", "public.t", {"id": 1}),
    ]
    assert [event.key for event in told] == [{"id": 1}, {"code": uuid}, *[{"id": 1}] * 3]
    relations = {change.relation.oid for change in flatten_all(batches) if change.relation}
    assert len(relations) == 3


@pytest.mark.behaviour("S4")
def test_after_a_reconnect_tables_are_described_again_and_the_stream_goes_on(stream: SharedStream) -> None:
    stream.run("CREATE TABLE t (id int PRIMARY KEY, note text)")
    assert stream.told("INSERT INTO t VALUES (1, 'a')") == [("I", "public.t", {"id": 1, "note": "a"})]
    with stream.away():
        pass
    assert stream.told("INSERT INTO t VALUES (2, 'b')") == [("I", "public.t", {"id": 2, "note": "b"})]
    with stream.away():
        stream.run("ALTER TABLE t DROP note")
    assert stream.told("INSERT INTO t VALUES (3)") == [("I", "public.t", {"id": 3})]
