"""Records that differ in nothing but values are read by columns, and give what they give one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from psql_streamer.cells import CellTable
from psql_streamer.event_reader.alike import AlikeReader
from psql_streamer.event_reader.reader import EventReader, Read
from psql_streamer.model import Position
from tests.unit.test_event_reader import Record, written

NOWHERE = Position({"offset": 0}, "0")
EVENT = {
    "Host": "localhost",
    "Database": "shop",
    "Schema": "public",
    "Table": "orders",
    "Action": "insert",
    "Timestamp": "2026-11-22T10:00:00.000001Z",
    "XID": 7,
    "CommitLSN": 1000,
    "WALPosition": 900,
    "Seq": 0,
    "UUID": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "Checksum": "777170be",
}


@dataclass(frozen=True)
class Digits:
    """A number that is written as it stands here."""

    text: str


def text_of(value: object) -> str:
    """As an instance writes it: without spaces, characters as they are, numbers digit by digit."""
    if isinstance(value, Digits):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{text_of(name)}:{text_of(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def record(at: int, columns: dict[str, object], **fields: object) -> Record:
    event = EVENT | {"Seq": at, "WALPosition": 900 + at} | fields | {"Columns": columns}
    return Record(text_of({"id": columns.get("id", at)}).encode(), text_of(event).encode(), at)


def read(records: Sequence[Record], reader: EventReader) -> Read:
    return reader.read(records, NOWHERE, lambda count: Position({"offset": count}, str(count)), 1.0, True)


def seen(found: Read) -> object:
    """All that came of records. Of those that were refused, which; what is said of one that is no JSON may differ."""
    batches = [
        (
            batch.source,
            batch.position.data,
            [change.relation for change in batch.schema_changes],
            batch.transactions.commit.tolist(),
            batch.transactions.commit_ts.tolist(),
            batch.transactions.list_id_texts().to_pylist(),
            written("event", batch),
        )
        for batch in found.batches
    ]
    return batches, [one.message.offset() for one in found.refused], found.records


def both_ways(*portions: Sequence[Record]) -> tuple[object, object]:
    """What a reader makes of portions, one after the other."""

    def made() -> object:
        reader = EventReader("hop")
        return [seen(read(records, reader)) for records in portions]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("psql_streamer.event_reader.reader._MANY", 1)
        together = made()
        patch.setattr("psql_streamer.event_reader.reader._MANY", 1 << 30)
        return together, made()


def are_read_by_columns(records: Sequence[Record]) -> bool:
    return AlikeReader().read([one.value_bytes or b"" for one in records]) is not None


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False, places=3).map(lambda one: Digits(f"{one:f}"))
    | st.text(max_size=8)
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=3), SCALARS, max_size=2)
KEYS = (None, b"customer-7", b'{"id":', b'{"id":1}')
ROWS = st.lists(
    st.fixed_dictionaries({"id": st.integers(-5, 5), "a": VALUES, 'é "b"': SCALARS, "c": st.just("x") | VALUES}),
    min_size=1,
    max_size=8,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "Action": st.sampled_from(["insert", "update", "delete", "read", "truncate", "no"]),
        "Timestamp": st.sampled_from(["2026-11-22T10:00:00Z", "2026-11-22T10:00:00", "", None, 7]),
        "XID": st.sampled_from([7, 8, None, -1, 1 << 63, 1.5, "7"]),
        "CommitLSN": st.sampled_from([1000, 2000, 0, None, (1 << 63) - 1]),
        "Seq": st.sampled_from([-1, -2, 1 << 62, (1 << 62) + 1]),
        "UUID": st.sampled_from(["", "6ba7b810-9dad-11d1-80b4-00c04fd430cg", "6BA7B810-9dad-11d1-80b4-00c04fd430c8"]),
        "Database": st.sampled_from(["shop", "other"]),
        "Table": st.sampled_from(["orders", "items"]),
        "Unchanged": st.just(["a"]),
        "Before": st.just({"id": 1}),
        "Snapshot": st.just("s"),
        "Place": st.just(901),
        "Commit": st.just(1001),
        "GTID": st.just("1-1-1"),
        "File": st.just("binlog.000007"),
        "ServerID": st.sampled_from([0, 1, 2, None, -1, "1"]),
        "Thread": st.sampled_from([0, 41, 42, None, 1 << 63]),
    },
)


@settings(max_examples=150, deadline=None)
@given(ROWS, st.lists(FIELDS, min_size=8, max_size=8), st.booleans(), st.integers(0, 8), st.integers(0, 3))
@example([{"id": 1}] * 4, [{}, {}, {}, {"Thread": 41}], False, 0, 0)  # as no event but one of a binary log has
@example([{"id": 1}] * 4, [{}, {}, {"Place": 7}, {}], False, 0, 0)  # of another source
@example([{"id": 1}] * 4, [{}, {}, {"Commit": 7}, {}], False, 0, 0)
def test_records_together_give_what_they_give_one_by_one(
    found: list[dict[str, object]], fields: list[dict[str, object]], plain: bool, first: int, other_key: int
) -> None:
    records = [
        record(at, columns, **({} if plain and at % 3 else more))
        for at, (columns, more) in enumerate(zip(found, fields, strict=False))
    ]
    records = [replace(one, key_bytes=KEYS[other_key] if one.at % 2 else one.key_bytes) for one in records]
    together, one_by_one = both_ways(records[:first], records[first:])
    assert together == one_by_one


BYTES = [b"", b'"', b'":', b"\\", b"\\u12", b",", b"}", b"{", b"[", b"1", b"-", b".", b"e5", b"\xff", b"\n", b" "]


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 4),
    st.integers(0, 330),
    st.sampled_from(BYTES),
    st.integers(0, 3),
)
@example(2, 280, b'":', 0)
def test_bytes_that_were_changed_give_what_they_give_one_by_one(which: int, at: int, more: bytes, gone: int) -> None:
    columns: dict[str, object] = {"id": 1, "name": "tëa", "amount": Digits("10.50"), "ok": True, "none": None, "l": [1]}
    records = [record(number, columns | {"id": number}) for number in range(5)]
    value = records[which].value_bytes or b""
    records[which] = replace(records[which], value_bytes=value[:at] + more + value[at + gone :])
    together, one_by_one = both_ways(records)
    assert together == one_by_one


PLAIN: dict[str, object] = {"id": 1, "name": "tea", "amount": Digits("10.50"), "ok": True, "none": None, "list": [1, 2]}


@pytest.mark.parametrize(
    "columns",
    [
        PLAIN,
        PLAIN | {"name": None, "none": "something"},
        PLAIN | {"name": "a colon : and a comma, a {brace} and a back\\slash"},
        PLAIN | {"name": "ünï\ncode", "amount": 0, "ok": False},
        PLAIN | {"amount": Digits("-0.00000000000000000001"), "id": -(1 << 70)},
    ],
)
def test_values_of_any_kind_are_read_by_columns(columns: dict[str, object]) -> None:
    records = [record(0, PLAIN), record(1, columns), record(2, columns, Action="update"), record(3, PLAIN)]
    assert are_read_by_columns(records)
    together, one_by_one = both_ways(records)
    assert together == one_by_one


@pytest.mark.parametrize(
    "other",
    [
        record(1, PLAIN | {"more": 1}),
        record(1, {**PLAIN, "other name": 1}),
        record(1, dict(reversed(PLAIN.items()))),
        record(1, PLAIN, Table="items"),
        record(1, PLAIN, Action="delete"),
        record(1, PLAIN, Before={"id": 1}),
        record(1, PLAIN | {"amount": Digits("1e5")}),
        record(1, PLAIN | {"amount": Digits("01")}),
        record(1, PLAIN | {"amount": Digits("1.")}),
        record(1, PLAIN | {"amount": Digits("1.2.3")}),
        record(1, PLAIN | {"amount": Digits("-")}),
        record(1, PLAIN | {"ok": Digits("truth")}),
        record(1, PLAIN | {"list": {"a": 1}}),
        record(1, PLAIN | {"list": Digits("[1] ")}),
        record(1, PLAIN | {"name": 'a ":quotation'}),
        Record(b'{"id":1}', json.dumps(EVENT | {"Columns": PLAIN | {"amount": 1}}).encode(), 1),
        replace(record(1, PLAIN), value_bytes=b""),
    ],
    ids=lambda one: (one.value_bytes or b"")[-60:].decode(),
)
def test_a_record_that_is_not_like_the_first_is_not_read_by_columns(other: Record) -> None:
    records = [record(0, PLAIN), other, record(2, PLAIN)]
    assert not are_read_by_columns(records)
    together, one_by_one = both_ways(records)
    assert together == one_by_one


@pytest.mark.parametrize("list_", ["[NaN]", "[-Infinity,1]", '["\\ud800"]', '["\\\\ud800"]', '["\\ud83d\\ude00"]'])
def test_what_a_json_column_may_hold_is_the_same_together_and_one_by_one(list_: str) -> None:
    records = [record(at, PLAIN | {"list": Digits(list_)} if at == 3 else PLAIN) for at in range(5)]
    together, one_by_one = both_ways(records)
    assert together == one_by_one
    (_, refused, count) = cast(Any, together)[0]
    assert (refused, count) == (([3], 3) if "N" in list_ or "I" in list_ else ([], 5))


def test_records_that_name_a_file_of_a_binary_log_are_of_it_together_as_one_by_one() -> None:
    of_log = {"GTID": "1-1-1", "File": "binlog.000007", "Position": 4, "ServerID": 1, "Thread": 41}
    together, one_by_one = both_ways([record(at, {"id": at}, **of_log) for at in range(3)])
    assert together == one_by_one


def test_one_moment_may_be_written_in_several_ways() -> None:
    times = ("2026-11-22T10:00:00.000001Z", "2026-11-22T10:00:00.0000011234Z")
    records = [record(at, PLAIN | {"list": {"a": 1}}, Timestamp=times[at % 2]) for at in range(40)]
    (batch,) = read(records, EventReader("hop")).batches
    assert len(batch.transactions) == 1


def test_a_batch_of_both_kinds_of_records_keeps_their_order() -> None:
    alike = [record(at, PLAIN | {"id": at}, XID=at // 700) for at in range(1000)]
    others = [record(at, PLAIN | {"id": at, "list": {"a": at}}, XID=at // 700) for at in range(1000, 1400)]
    more = [record(at, PLAIN | {"id": at}, XID=at // 700) for at in range(1400, 2100)]
    records = [*alike, *others, *more]
    together, one_by_one = both_ways(records)
    assert together == one_by_one
    (batch,) = read(records, EventReader("hop")).batches
    assert len(batch.transactions) == 3
    assert isinstance(batch.rows, CellTable)
    assert np.array_equal(batch.rows.seq, np.arange(len(records)))


def test_patterns_of_many_tables_are_not_remembered_without_bound() -> None:
    reader = AlikeReader()
    for number in range(100):
        assert reader.read([record(0, PLAIN, Table=f"t{number}").value_bytes or b""]) is not None
    assert len(reader._patterns) <= 16
