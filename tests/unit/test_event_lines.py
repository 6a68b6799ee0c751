"""Changes as lines of JSON, and back: nothing is lost, and what a person writes may be short."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.model import (
    ArrowType,
    Batch,
    Changes,
    Column,
    Image,
    Relation,
    ReplicationOrigin,
    RowOp,
    SourceInfo,
    TextType,
    Transactions,
)
from psql_streamer.pgtype import Attribute, JsonForm, PgType, PostgresType
from psql_streamer.pgtypes.builtin import BY_OID
from psql_streamer.testing import check_batch
from psql_streamer.testing.batches import SOURCE, make_mixed_batch, make_snapshot_batch
from psql_streamer.trial.event_lines import EventsUnreadable, EventWriter
from psql_streamer.trial.event_reading import read_events, read_lines
from psql_streamer.trial.type_json import parse_type, render_type
from tests.capture_streams import CAPTURED
from tests.decoding import decode
from tests.pgoutput_wire import split_frames

STREAMS = sorted(CAPTURED.glob("*.bin"))
MANY = 1 << 30

MOOD = PgType("mood", 16401, 16400, JsonForm.TEXT, labels=("sad", "ok"))
PAIR = PgType(
    "pair", 16410, 16409, JsonForm.OBJECT, attributes=(Attribute("a", BY_OID[23]), Attribute("b", MOOD, typmod=7))
)
DOMAIN = replace(BY_OID[1700], name="price", oid=16420, array_oid=16419, base_oid=1700, base_typmod=655366)
ARRAY_OF_OWN = PgType("pair[]", 16409, 0, JsonForm.ARRAY, element=PAIR)


def lines_of(*batches: Batch, fits: Any = lambda *_: True) -> list[str]:
    lines: list[str] = []
    writer = EventWriter(lines.append, fits)
    for batch in batches:
        writer.write(batch, MANY)
    return lines


def read(lines: list[str]) -> list[Batch]:
    return read_lines(lines, "events.jsonl")


def require_same(one: Changes, other: Changes) -> None:
    """All but batch_order and tx, which number what is in a batch."""
    assert one.relation == other.relation
    assert [column.type for column in one.columns] == [column.type for column in other.columns]
    for name in ("op", "seq", "place", "table_seq", "uuid", "record_time"):
        given, found = getattr(one, name), getattr(other, name)
        assert (given is None) == (found is None), name
        assert given is None or given.tolist() == found.tolist(), name
    for given, found in ((one.before, other.before), (one.after, other.after)):
        assert given.rows.tolist() == found.rows.tolist()
        assert given.columns == found.columns
        assert {at: gone.tolist() for at, gone in given.absent.items()} == {
            at: gone.tolist() for at, gone in found.absent.items()
        }


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_what_a_server_sent_comes_back_from_lines_without_loss(path: Path) -> None:
    [batch] = decode(split_frames(path.read_bytes()), MANY)
    lines = lines_of(batch)
    [found] = read(lines)
    check_batch(found)
    assert lines_of(found) == lines
    assert found.source == batch.source
    every = {one.relation: one for one in found.changes}
    assert len(every) == len(batch.changes)
    for one in batch.changes:
        require_same(one, every[one.relation])


def test_rows_of_snapshots_and_changes_of_several_sources_come_back() -> None:
    other = replace(make_mixed_batch(), source=replace(SOURCE, name="other", server_id=7))
    timed = make_snapshot_batch()
    times = np.arange(len(timed.changes[0])) - 1
    timed = replace(timed, changes=tuple(replace(one, record_time=times[: len(one)]) for one in timed.changes))
    batches = [timed, other, make_snapshot_batch(commit=3)]
    found = read(lines_of(*batches))
    assert [one.source.name for one in found] == ["test", "other", "test"]
    for given, one in zip(batches, found, strict=True):
        check_batch(one)
        require_same(given.changes[0], one.changes[0])
        assert one.transactions.snapshots == given.transactions.snapshots
        assert one.transactions.commit_ts.tolist() == given.transactions.commit_ts.tolist()


def test_transactions_keep_their_ids_times_origins_and_sessions() -> None:
    batch = replace(
        make_mixed_batch(),
        transactions=Transactions(
            np.array([2**63], np.uint64),
            np.array([-1], np.int64),
            pa.array([b"uuid:1"], pa.binary()),
            {0: ReplicationOrigin("origin", 77)},
            threads=np.array([41]),
        ),
    )
    [found] = read(lines_of(batch))
    assert found.transactions.commit.tolist() == [2**63]
    assert found.transactions.commit_ts.tolist() == [-1]
    assert found.transactions.find_id(0) == "uuid:1"
    assert found.transactions.origins == batch.transactions.origins
    assert found.transactions.threads is not None
    assert found.transactions.threads.tolist() == [41]


@pytest.mark.parametrize(
    "kind",
    [
        *(PostgresType(one.oid, -1, one) for one in BY_OID.values()),
        PostgresType(1700, 786438, BY_OID[1700]),
        PostgresType(1043, 24, BY_OID[1043]),
        PostgresType(1231, 786438, BY_OID[1231]),
        PostgresType(1184, 3, BY_OID[1184]),
        PostgresType(1186, 2147418112, BY_OID[1186]),
        PostgresType(99_999),
        *(PostgresType(one.oid, 5, one) for one in (MOOD, PAIR, DOMAIN, ARRAY_OF_OWN)),
        TextType("bigint unsigned", PostgresType(1700, -1, BY_OID[1700])),
        ArrowType(pa.decimal128(12, 2), "DECIMAL(12,2)"),
        ArrowType(pa.list_(pa.struct([("a", pa.int64())]))),
    ],
    ids=str,
)
def test_a_type_comes_back_with_all_that_is_known_of_it(kind: Any) -> None:
    found = parse_type(json.loads(json.dumps(render_type(kind))))
    assert found == kind
    if isinstance(kind, PostgresType) and isinstance(found, PostgresType):
        assert found.known == kind.known
    if isinstance(kind, ArrowType) and isinstance(found, ArrowType):
        assert found.native == kind.native


ARROW = {
    "whole": pa.array([1, None, -(2**63)], pa.int64()),
    "real": pa.array([0.1, float("inf"), None]),
    "exact": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(12, 2)),
    "text": pa.array(["ż🐘", "", None]),
    "moment": pa.array([datetime(2026, 1, 31, 12, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
    "bytes": pa.array([b"\xff\x00", b"", None]),
    "nested": pa.array([[{"a": 1}], None, []], pa.list_(pa.struct([("a", pa.int64())]))),
    "not a number": pa.array([float("nan"), 1.0, None]),
    "flag": pa.array([True, False, None]),
}


@pytest.mark.parametrize("name", ARROW)
def test_values_of_arrows_types_come_back(name: str) -> None:
    array = ARROW[name]
    relation = Relation("t", "main", "t", (Column(name, ArrowType(array.type), key=True),))
    changes = Changes.from_new_rows(relation, [array], np.zeros(3, np.int32))
    batch = replace(make_snapshot_batch(), changes=(changes,), transactions=Transactions(*map(np.array, ([1], [1]))))
    [found] = read(lines_of(batch))
    column = found.changes[0].after.columns[0]
    assert column.type == array.type
    assert str(column) == str(array), "NaN is not equal to itself"


def test_bytes_that_are_no_text_come_back() -> None:
    relation = Relation("1", "public", "t", (Column("c", PostgresType(25)),))
    array = pa.array([b"\xe9t\xe9", b"plain", None], pa.binary())
    changes = Changes.from_new_rows(relation, [array], np.zeros(3, np.int32))
    batch = replace(make_snapshot_batch(), changes=(changes,), transactions=Transactions(*map(np.array, ([1], [1]))))
    [found] = read(lines_of(batch))
    assert found.changes[0].after.columns[0] == array


def test_only_wanted_tables_are_written_and_no_more_changes_than_wanted() -> None:
    lines: list[str] = []
    writer = EventWriter(lines.append, lambda schema, table: (schema, table) == ("public", "orders"))
    writer.write(make_mixed_batch(), 2)
    assert writer.written == 2
    assert [next(iter(json.loads(line))) for line in lines] == ["events", "relation", "op", "op"]
    assert lines_of(make_mixed_batch(), fits=lambda *_: False) == []


def test_lines_that_a_person_writes_may_be_short() -> None:
    lines = [
        (
            '{"relation": {"table": "orders", "columns": [{"name": "id", "type": "bigint", "key": true},'
            ' {"name": "amount", "type": "numeric(12,2)"}, {"name": "meta", "type": "jsonb"},'
            ' {"name": "tags", "type": "text[]"}, {"name": "paid", "type": "boolean"}]}}'
        ),
        "",
        (
            '{"op": "insert", "after": {"id": 1, "amount": "10.00", "meta": {"a": [1, null]},'
            ' "tags": ["x", null, "y\\""], "paid": true}}'
        ),
        '{"op": "delete", "before": {"id": 1}}',
    ]
    [batch] = read(lines)
    check_batch(batch)
    [changes] = batch.changes
    assert str(changes.relation) == "public.orders"
    assert changes.columns[1].type == PostgresType(1700, ((12 << 16) | 2) + 4)
    assert [array.to_pylist() for array in changes.after.columns] == [
        [b"1"],
        [b"10.00"],
        [b'{"a": [1, null]}'],
        [b'{"x",NULL,"y\\""}'],
        [b"t"],
    ]
    assert changes.op.tolist() == [RowOp.INSERT, RowOp.DELETE]
    assert batch.transactions.commit.tolist() == [1, 2], "each is a transaction of its own"
    assert {at: gone.tolist() for at, gone in changes.before.absent.items()} == {key: [True] for key in range(1, 5)}


RELATION = '{"relation": {"table": "t", "columns": [{"name": "id", "type": "int8"}]}}'


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["{"], "line 1: it is no JSON (column 2"),
        (["[]"], "line 1: it is no JSON object"),
        (["{}"], "line 1: it has none of events, relation and op"),
        (['{"events": 2}'], "line 1: it is of version 2 of the format, and this release reads 1"),
        (['{"op": "insert", "after": {"a": "hunter2"}}'], "line 1: no line with a relation is before it"),
        ([RELATION, '{"op": "upsert", "after": {}}'], 'line 2: op "upsert" is none of insert, update, delete, read'),
        ([RELATION, '{"op": "delete", "after": {"id": "hunter2"}}'], "line 2: delete has no before"),
        ([RELATION, '{"op": "insert", "after": {"x": "hunter2"}}'], 'line 2: after has the column "x", which public.t'),
        ([RELATION, '{"op": "insert", "after": "hunter2"}'], "line 2: "),
        ([RELATION.replace("int8", "int9")], 'line 1: there is no built-in type "int9"'),
        ([RELATION.replace('"name"', '"nom"')], "line 1: there is no name"),
        ([RELATION, "[" * 2000 + "]" * 2000], "line 2: it is nested too deeply"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_its_values_are_not(lines: list[str], says: str) -> None:
    with pytest.raises(EventsUnreadable) as refused:
        read(lines)
    assert f"events.jsonl, {says}" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_file_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(EventsUnreadable, match="No such file"):
        read_events(tmp_path / "events.jsonl")


def test_an_image_that_lacks_everything_comes_back() -> None:
    relation = Relation("1", "public", "t", (Column("id", PostgresType(20)),))
    empty = Image((pa.array([], pa.binary()),), np.empty(0, np.int64))
    lacks = Image((pa.nulls(1, pa.binary()),), np.zeros(1, np.int64), {0: np.array([True])})
    changes = Changes(
        relation,
        relation.columns,
        *(np.zeros(1, np.int64), np.array([RowOp.DELETE], np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int32)),
        after=empty,
        before=lacks,
    )
    source = SourceInfo("sql", "db1", "localhost", "shop")
    batch = replace(make_snapshot_batch(), source=source, changes=(changes,))
    [found] = read(lines_of(batch))
    require_same(changes, found.changes[0])
