"""Records that were taken and come back: they are given again in their order, unless their partition has gone."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from psql_streamer.event_reader.parsed import Message
from sources.kafka.member_state import MemberState
from sources.kafka.offsets import Partition
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.taken import Taken, measure_record
from tests.unit.test_event_reader import Record

FIRST, SECOND = Partition("orders", 0), Partition("orders", 1)


def state_with(*records: Record) -> MemberState:
    """A member of a group that has both partitions, and holds these."""
    section = {"type": "kafka", "hosts": ["k:9092"], "topics": ["orders"], "groupID": "g"}
    state = MemberState(KafkaSourceOptions.model_validate(section), {}, "")
    for partition in (FIRST, SECOND):
        state.begin(partition, -1, 0)
    state.hold(Taken.collect(cast("list[Message]", list(records))))
    return state


def take(state: MemberState) -> Taken:
    taken = state.take(0.0)
    assert taken is not None
    return taken


def record(offset: int, partition: Partition = FIRST) -> Record:
    return Record(b"{}", b"{}", offset, "orders", partition.number)


def test_they_are_given_again_in_front_of_those_that_came_since() -> None:
    state = state_with(record(0), record(1), record(2))
    taken = take(state)
    state.hold(Taken.collect(cast("list[Message]", [record(3)])))
    state.put_back(Taken.collect(taken.messages[1:]), {FIRST: 1})
    assert [one.offset() for one in take(state).messages] == [1, 2, 3]


def test_nothing_is_waited_for_but_what_is_in_front_of_them() -> None:
    state = state_with(record(0), record(1))
    taken = take(state)
    assert not state.is_drained
    state.put_back(Taken.collect(taken.messages[1:]), {FIRST: 1})
    assert not state.is_drained
    state.confirm({FIRST: 1})
    assert state.is_drained


def test_those_of_a_partition_that_is_gone_are_not_waited_for() -> None:
    state = state_with(record(5), record(6))
    taken = take(state)
    state.drop({FIRST})
    state.put_back(taken, {FIRST: 5})
    assert state.is_drained


def test_those_of_a_partition_that_goes_meanwhile_are_not_given_again() -> None:
    state = state_with(record(0), record(0, SECOND))
    taken = take(state)
    state.forget({FIRST})
    state.put_back(taken, {})
    state.drop({FIRST})
    assert [(one.partition(), one.offset()) for one in take(state).messages] == [(1, 0)]
    taken = Taken.collect(cast("list[Message]", [record(0), record(1, SECOND)]))
    state.put_back(taken, {})
    assert [(one.partition(), one.offset()) for one in take(state).messages] == [(1, 1)]


def test_headers_count_whichever_records_have_them() -> None:
    bare, with_headers = record(0), replace(record(0), given_headers=[("tenant", b"t" * 1000), ("empty", None)])
    for given in ([bare, with_headers, bare], [with_headers, bare, bare], [bare, bare, with_headers]):
        messages = cast("list[Message]", given)
        assert Taken.collect(messages).size == sum(map(measure_record, messages))
