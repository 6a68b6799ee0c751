"""Records without a value: repeated deletes, or all that is left of one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from unittest.mock import Mock

import pytest
from confluent_kafka import OFFSET_BEGINNING
from hypothesis import given, settings
from hypothesis import strategies as st

from psql_streamer.event_reader.reader import EventReader, Read
from sources.kafka.member_state import MemberState
from sources.kafka.offsets import Partition
from tests.event_topics import source_of
from tests.unit.test_event_reader import AFTER, BEFORE, Record, written

TIME = "2026-11-22T10:00:00Z"


def row(at: int, number: int, action: str = "insert", table: str = "t", key: bytes | None = None) -> Record:
    """A record of the row with this id, at an offset; its commit number is twice the offset."""
    event = {"Host": "a", "Schema": "s", "Table": table, "Action": action, "Timestamp": TIME, "XID": 7}
    event |= {"CommitLSN": 2 * at, "WALPosition": 2 * at, "Seq": 3, "Columns": {"id": number, "v": "x"}}
    return Record(key or key_of(number), json.dumps(event).encode(), at)


def key_of(number: int) -> bytes:
    return b'{"id":%d}' % number


def tombstone(at: int, key: bytes | None) -> Record:
    return Record(key, None, at)


class Topic:
    """What the brokers have: it answers who looks back, and counts how often."""

    def __init__(self, *records: Record) -> None:
        self.records = records
        self.looks = 0

    def before(self, message: object) -> Sequence[Record]:
        assert isinstance(message, Record)
        self.looks += 1
        return [record for record in self.records if record.at < message.at and record.value_bytes is not None]


def read(records: Sequence[Record], topic: Topic | None = None, reader: EventReader | None = None) -> Read:
    look_back = (topic or Topic()).before
    return (reader or EventReader("hop")).read(records, BEFORE, lambda _: AFTER, 1.0, stops=False, look_back=look_back)


def events(found: Read) -> list[dict[str, object]]:
    return [json.loads(one.value_bytes or b"") for batch in found.batches for one in written("event", batch)]


def deletes(found: Read) -> list[object]:
    return [one["Columns"] for one in events(found) if one["Action"] == "delete"]


@pytest.mark.behaviour("G1")
def test_behind_the_delete_of_its_key_a_tombstone_says_nothing_new() -> None:
    found = read([row(1, 1), row(2, 1, "delete"), tombstone(3, key_of(1)), tombstone(4, key_of(1))])
    assert (found.tombstones, found.tombstone_deletes, len(events(found))) == (2, 0, 2)


@pytest.mark.behaviour("G1")
def test_another_tombstone_is_a_delete_of_the_row_with_its_key() -> None:
    found = read([row(1, 1), row(2, 2), tombstone(5, key_of(1)), row(6, 1)])
    assert (found.tombstones, found.tombstone_deletes, found.unknown_tombstones) == (1, 1, [])
    *_, delete, again = events(found)
    assert (delete["Action"], delete["Table"], delete["Columns"]) == ("delete", "t", {"id": 1})
    assert delete["Timestamp"] == "2026-11-22T10:00:00.000000Z", "the row's, which is later than the record's"
    assert (delete["CommitLSN"], delete["Seq"]) == (4, 6), "the place of the row in front of it, and three offsets more"
    assert again["Action"] == "insert"
    assert [one.key_bytes for batch in found.batches for one in written("event", batch)][2] == key_of(1)


def test_a_sink_writes_the_delete_and_a_tombstone() -> None:
    (batch,) = read([row(1, 1), tombstone(2, key_of(1))]).batches
    out = written("debezium", batch)
    assert [(one.key_bytes, one.value_bytes is None) for one in out[1:]] == [(key_of(1), False), (key_of(1), True)]


@pytest.mark.parametrize("key", [b"customer-7", b"[1]", b'"x"', b"{}", b""])
def test_a_key_that_names_no_columns_is_the_key_of_the_delete(key: bytes) -> None:
    (batch,) = read([row(1, 1, key=b"other"), tombstone(2, key)]).batches
    out = written("event", batch)
    assert out[1].key_bytes == key
    assert json.loads(out[1].value_bytes or b"")["Columns"] == {}


def test_a_tombstone_without_a_key_deletes_nothing() -> None:
    found = read([row(1, 1), tombstone(2, None)])
    assert (found.tombstones, found.tombstone_deletes, found.unknown_tombstones) == (1, 0, [])


def test_the_first_record_that_is_read_is_explained_by_those_in_front_of_it() -> None:
    topic = Topic(row(1, 1), row(2, 2), row(3, 3, "delete"))
    found = read([tombstone(4, key_of(3)), tombstone(5, key_of(1)), tombstone(6, key_of(9))], topic)
    assert deletes(found) == [{"id": 1}, {"id": 9}]
    assert topic.looks == 1


def test_a_delete_is_the_same_whenever_it_is_read() -> None:
    before, records = [row(1, 1), row(2, 2)], [tombstone(3, key_of(1)), tombstone(4, key_of(2))]
    (first,) = read([*before, *records]).batches
    (again,) = read(records, Topic(*before)).batches
    assert [one.value_bytes for one in written("event", first)[2:]] == [
        one.value_bytes for one in written("event", again)
    ]


def test_what_others_have_read_in_between_is_looked_back_at() -> None:
    reader = EventReader("hop")
    mine = [row(1, 1), row(2, 1, "delete"), tombstone(3, key_of(1))]
    read(mine, reader=reader)
    topic = Topic(*mine, row(4, 1))
    reader.forget_partitions([("orders", 0)])
    assert deletes(read([tombstone(5, key_of(1))], topic, reader)) == [{"id": 1}]
    assert topic.looks == 1


def test_a_source_knows_nothing_of_a_partition_that_comes_back_to_it() -> None:
    source = source_of("broker:9092", "orders")
    forgotten = Mock()
    source._reader = forgotten
    state = MemberState(source._settings, {}, "")
    for number, start in ((0, 7), (1, OFFSET_BEGINNING)):
        state.begin(Partition("orders", number), committed=start, start=start)
    group = Mock(state=state)
    source._note_begun(group)
    assert set(forgotten.forget_partitions.call_args.args[0]) == {("orders", 0), ("orders", 1)}
    assert source._offsets == {Partition("orders", 0): 7}, "where the other begins is not known"
    source._note_begun(group)
    assert set(forgotten.forget_partitions.call_args.args[0]) == set()


def test_many_rows_that_are_read_by_columns_are_looked_back_at() -> None:
    rows = [row(at, at) for at in range(100)]
    reader, topic = EventReader("hop"), Topic(*rows)
    assert len(events(read(rows, topic, reader))) == 100
    assert deletes(read([tombstone(101, key_of(7))], topic, reader)) == [{"id": 7}]
    assert topic.looks == 1


def test_where_no_record_says_the_table_it_is_told_and_looked_for_once() -> None:
    topic, reader = Topic(), EventReader("hop")
    found = read([tombstone(1, key_of(1)), tombstone(2, key_of(2)), row(3, 3), tombstone(4, key_of(1))], topic, reader)
    assert [one.offset() for one in found.unknown_tombstones] == [1, 2]
    assert deletes(found) == [{"id": 1}]
    assert topic.looks == 1


def test_in_a_partition_of_several_tables_it_is_of_the_last_row_with_its_key() -> None:
    rows = [row(1, 1), row(2, 2, table="u"), row(3, 3)]
    found = read([*rows, tombstone(4, key_of(2)), tombstone(5, key_of(9)), tombstone(6, key_of(1))], Topic(*rows))
    told = [(one["Table"], one["Columns"]) for one in events(found) if one["Action"] == "delete"]
    assert told == [("u", {"id": 2}), ("t", {"id": 1})]
    assert [one.offset() for one in found.unknown_tombstones] == [5]


def test_rows_that_were_read_are_not_looked_for_however_many_tombstones_come() -> None:
    rows = [row(at, at, table="tu"[at % 2]) for at in range(3000)]
    topic, reader = Topic(*rows), EventReader("hop")
    for first in range(0, 3000, 20):  # few at a time are read one by one
        read(rows[first : first + 20], topic, reader)
    known, *unknown = [tombstone(3001, key_of(2500)), *(tombstone(3002 + key, key_of(key)) for key in range(10))]
    assert deletes(read([known], topic, reader)) == [{"id": 2500}]
    for one in unknown:
        found = read([one, row(one.at + 100, one.at, table="t")], topic, reader)
        assert len(found.unknown_tombstones) == 1, "further back than is looked"
    assert topic.looks == 1


def key_with_schema(table: str, number: int) -> bytes:
    return b'{"schema":{"type":"struct","name":"shop.s.%s.Key"},"payload":{"id":%d}}' % (table.encode(), number)


@pytest.mark.parametrize("restart_at", range(4))
def test_a_delete_is_of_the_same_table_wherever_reading_begins(restart_at: int) -> None:
    rows = [row(at, number, table=table, key=key_with_schema(table, number)) for at, (table, number) in enumerate(ROWS)]
    (found,) = read([*rows, tombstone(3, key_with_schema("u", 1))][restart_at:], Topic(*rows)).batches
    *_, delete = [json.loads(one.value_bytes or b"") for one in written("event", found)]
    assert (delete["Action"], delete["Table"], delete["Columns"]) == ("delete", "u", {"id": 1})


ROWS = [("t", 1), ("u", 1), ("t", 2)]


def test_a_key_whose_schema_is_of_another_table_deletes_nothing_of_the_one_that_is_known() -> None:
    rows = [row(1, 1, key=key_with_schema("t", 1))]
    found = read([*rows, tombstone(3, key_with_schema("u", 1))], Topic(*rows))
    assert (deletes(found), len(found.unknown_tombstones)) == ([], 1)


@pytest.mark.parametrize("of_row", [b'{"order":1}', b'{"id":1,"part":2}'])
def test_a_key_of_other_columns_deletes_nothing_of_the_table_that_is_known(of_row: bytes) -> None:
    known = row(1, 1, key=of_row)
    found = read([tombstone(2, key_of(1)), tombstone(3, of_row)], Topic(known))
    assert (len(found.unknown_tombstones), found.tombstone_deletes) == (1, 1)


def test_keys_that_are_no_json_do_not_break_it() -> None:
    keys = [b'{"id":"\xff"}', b'{"id":01}', b'{"id":' + b"[" * 2000 + b"]" * 2000 + b"}"]
    found = read([row(1, 1), *(tombstone(at, key) for at, key in enumerate(keys, 2))])
    assert found.tombstone_deletes == 3
    assert [one.key_bytes for batch in found.batches for one in written("event", batch)][1:] == keys


@pytest.mark.parametrize("milliseconds", [-1, 1_795_000_000_000_000, (1 << 63) - 1])
def test_a_record_with_a_time_that_none_can_be_has_the_time_of_the_row_in_front_of_it(milliseconds: int) -> None:
    (batch,) = read([row(1, 1), AtTime(key_of(1), None, 2, milliseconds=milliseconds)]).batches
    _, delete = [json.loads(one.value_bytes or b"") for one in written("event", batch)]
    assert delete["Timestamp"] == "2026-11-22T10:00:00.000000Z"


@dataclass(frozen=True)
class AtTime(Record):
    milliseconds: int = 0

    def timestamp(self) -> tuple[int, int]:
        return 1, self.milliseconds


def test_records_that_are_no_events_are_looked_past() -> None:
    topic = Topic(row(1, 1), Record(b"k", b"nonsense", 2))
    assert deletes(read([tombstone(3, key_of(1))], topic)) == [{"id": 1}]


OPS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["insert", "update", "delete", "tombstone"])), min_size=1)


@pytest.mark.behaviour("G1")
@settings(max_examples=200, deadline=None)
@given(OPS, st.integers(0, 40), st.integers(1, 10))
def test_what_is_left_of_a_compacted_topic_ends_with_the_same_rows(
    ops: list[tuple[int, str]], read_before: int, at_once: int
) -> None:
    """Of what was not read yet, compaction leaves the last record of each key, and what a key's delete was may be the
    tombstone behind it alone.
    """
    log = list[Record]()
    for number, op in ops:
        if op != "tombstone":
            log.append(row(len(log), number, op))
        if op in ("tombstone", "delete"):
            log.append(tombstone(len(log), key_of(number)))
    alive = {one.key_bytes for one in {one.key_bytes: one for one in log}.values() if one.value_bytes is not None}
    last = {one.key_bytes: one.at for one in log}
    held = [one for one in log if one.at < read_before or last[one.key_bytes] == one.at]
    topic, reader, folded = Topic(*held), EventReader("hop"), dict[object, bool]()
    for first in range(0, len(held), at_once):
        found = read(held[first : first + at_once], topic, reader)
        for batch in found.batches:
            for one in written("event", batch):
                folded[one.key_bytes] = json.loads(one.value_bytes or b"")["Action"] != "delete"
    assert {key for key, is_there in folded.items() if is_there} == alive
