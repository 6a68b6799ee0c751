"""The contract's tests of sinks fail for one where something else arrives than was made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from psql_streamer import model
from psql_streamer.events.options import EventOptions
from psql_streamer.interfaces import Finding, Sink, Status
from psql_streamer.testing import SinkContract, WrittenEvent, make_batch
from psql_streamer.testing.samples import make_history_of_keys
from psql_streamer.testing.written import find_difference, render_expected


class Keeps(Sink):
    """Keeps the events of batches, but for what a function alters of them."""

    Options = EventOptions

    def __init__(self, name: str, options: EventOptions) -> None:
        super().__init__(name, options)
        self._options = options
        self.kept: list[WrittenEvent] = []

    def alter(self, events: list[WrittenEvent]) -> list[WrittenEvent]:
        return events

    def check(self) -> Iterable[Finding]:
        return ()

    def start(self) -> None: ...

    def write(self, batch: model.Batch) -> None:
        self.kept += self.alter(render_expected(self._options, [batch]) or [])

    def interrupt(self) -> None: ...

    def stop(self) -> None: ...

    def status(self) -> Status:
        return Status(True, "well")

    def stats(self) -> model.Stats:
        return {}


class TurnsThemRound(Keeps):
    def alter(self, events: list[WrittenEvent]) -> list[WrittenEvent]:
        return events[::-1]


class LosesKeys(Keeps):
    def alter(self, events: list[WrittenEvent]) -> list[WrittenEvent]:
        return [event._replace(key=None) for event in events]


class LosesHeaders(Keeps):
    def alter(self, events: list[WrittenEvent]) -> list[WrittenEvent]:
        return [event._replace(headers={}) for event in events]


class WritesEmptyValues(Keeps):
    def alter(self, events: list[WrittenEvent]) -> list[WrittenEvent]:
        return [event._replace(value=b"") for event in events]


class WritesToOneTopic(Keeps):
    def alter(self, events: list[WrittenEvent]) -> list[WrittenEvent]:
        return [event._replace(topic="events") for event in events]


class LeavesOutTombstones(Keeps):
    def alter(self, events: list[WrittenEvent]) -> list[WrittenEvent]:
        return [event for event in events if event.value is not None]


class LeavesOutMessages(Keeps):
    def alter(self, events: list[WrittenEvent]) -> list[WrittenEvent]:
        return [event for event in events if event.topic != "messages"]


class KeepsNoHeaders(Keeps):
    """Nor topics."""

    def alter(self, events: list[WrittenEvent]) -> list[WrittenEvent]:
        return [WrittenEvent(event.key, event.value) for event in events]


class TakesSeveral(Keeps):
    def begin_write(self, batches: Iterator[model.Batch]) -> Callable[[], None]:
        def write_each() -> None:
            for batch in batches:
                self.write(batch)

        return write_each


class TurnsBatchesRound(TakesSeveral):
    def begin_write(self, batches: Iterator[model.Batch]) -> Callable[[], None]:
        return super().begin_write(iter([*batches][::-1]))


ARRIVE = SinkContract.test_events_arrive_as_they_were_made_and_those_of_a_key_in_their_order
TOGETHER = SinkContract.test_events_of_batches_that_are_written_together_arrive_in_the_order_of_the_batches
ALTERING = (
    TurnsThemRound,
    LosesKeys,
    LosesHeaders,
    WritesEmptyValues,
    WritesToOneTopic,
    LeavesOutTombstones,
    LeavesOutMessages,
)


def contract_of(kind: type[Keeps]) -> SinkContract:
    section = {"type": "own", "sources": ["db1"], "topicPrefix": "shop", "messageTopic": "messages"}
    sink = kind("own", EventOptions.model_validate(section | {"format": "debezium", "headers": True}))

    class Contract(SinkContract):
        def make_sink(self) -> Sink:
            return sink

        def list_written(self) -> Sequence[WrittenEvent]:
            return list(sink.kept)

    return Contract()


@pytest.mark.parametrize("sink", ALTERING, ids=lambda sink: sink.__name__)
def test_a_sink_that_alters_events_is_caught(sink: type[Keeps]) -> None:
    with pytest.raises(AssertionError, match="what arrives: key "):
        ARRIVE(contract_of(sink))


def test_a_sink_that_takes_batches_in_another_order_is_caught() -> None:
    with pytest.raises(AssertionError, match="has its events in another order"):
        TOGETHER(contract_of(TurnsBatchesRound))


@pytest.mark.parametrize(
    ("sink", "promise"), [(Keeps, ARRIVE), (KeepsNoHeaders, ARRIVE), (TakesSeveral, ARRIVE), (TakesSeveral, TOGETHER)]
)
def test_a_sink_that_keeps_events_as_they_are_passes(sink: type[Keeps], promise: Callable[[Any], None]) -> None:
    promise(contract_of(sink))


def test_a_test_that_nobody_can_answer_says_why_it_is_skipped() -> None:
    class Silent(SinkContract):
        def make_sink(self) -> Sink:
            return Keeps("own", EventOptions.model_validate({"type": "own", "sources": ["db1"], "topicFallback": "t"}))

    with pytest.raises(pytest.skip.Exception, match="list_written is not overridden: nobody says what arrived"):
        ARRIVE(Silent())


def test_events_without_a_key_are_in_any_order() -> None:
    options = EventOptions.model_validate({"type": "own", "sources": ["db1"], "topicFallback": "t"})
    found = render_expected(options, [make_batch([{"id": 1}, {"id": 2}], ""), make_history_of_keys()])
    assert found is not None
    first, second, *others = found
    assert first.key is None
    assert find_difference([], [second, first, *others], found) == ""
    assert find_difference([first], [first, *others, second, first], found) == ""
    assert (
        find_difference([first], [first, *others, second], found)
        == "key None in topic t has 1 events and should have 2"
    )
