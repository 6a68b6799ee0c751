"""The contract's tests of handlers and sinks fail for a part that breaks its promise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from psql_streamer import model
from psql_streamer.interfaces import Finding, Handler, Sink, Status
from psql_streamer.options import HandlerOptions, SinkOptions
from psql_streamer.testing import HandlerContract, SinkContract, batch_of
from psql_streamer.testing.batches import mixed_batch

ROWS = [{"id": number, "note": f"note {number}"} for number in range(1, 6)]


class Passes(Handler):
    """Gives batches as they are, but for what a function alters of their changes."""

    Options = HandlerOptions

    def check(self) -> Iterable[Finding]:
        return ()

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def alter(self, changes: model.Changes) -> model.Changes:
        return changes

    def handle(self, batch: model.Batch) -> model.Batch:
        return replace(batch, changes=tuple(map(self.alter, batch.changes)))


class MovesPlaces(Passes):
    def alter(self, changes: model.Changes) -> model.Changes:
        return replace(changes, place=np.arange(len(changes), dtype=np.uint64) + 500)


class MovesRows(Passes):
    def alter(self, changes: model.Changes) -> model.Changes:
        return replace(changes, batch_order=changes.batch_order + 100)


class NumbersAnew(Passes):
    def alter(self, changes: model.Changes) -> model.Changes:
        return replace(changes, seq=changes.seq + 100)


class GoesFurther(Passes):
    def handle(self, batch: model.Batch) -> model.Batch:
        return replace(batch, position=model.Position({"commit": 99}, "99"))


class HangsWhenInterrupted(Passes):
    def interrupt(self) -> None:
        time.sleep(30)


class ChecksWithoutFindings(Passes):
    def check(self) -> Iterable[Finding]:
        return ("all is well",)  # type: ignore[return-value]


KEEPS_IDENTITY = HandlerContract.test_the_position_and_the_identity_of_what_stays_are_kept
HANDLERS: dict[type[Handler], Callable[[Any], None]] = {
    MovesPlaces: KEEPS_IDENTITY,
    MovesRows: KEEPS_IDENTITY,
    NumbersAnew: KEEPS_IDENTITY,
    GoesFurther: KEEPS_IDENTITY,
    HangsWhenInterrupted: HandlerContract.test_an_interrupt_comes_from_another_thread_and_does_not_wait,
    ChecksWithoutFindings: HandlerContract.test_a_check_gives_findings,
}


class HandlerTests(HandlerContract):
    def __init__(self, handler: type[Handler]) -> None:
        self._handler = handler

    def make_handler(self) -> Handler:
        return self._handler("own", HandlerOptions())

    def make_batches(self) -> Sequence[model.Batch]:
        return [batch_of(ROWS, "id"), mixed_batch()]


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.__name__)
def test_a_handler_that_breaks_its_promise_is_caught(handler: type[Handler]) -> None:
    HANDLERS[handler](HandlerTests(Passes))
    with pytest.raises(AssertionError):
        HANDLERS[handler](HandlerTests(handler))


class Keeps(Sink):
    """Counts the events that it was given."""

    Options = SinkOptions
    kept = 0

    def check(self) -> Iterable[Finding]:
        return ()

    def start(self) -> None: ...

    def write(self, batch: model.Batch) -> None:
        type(self).kept += len(batch)

    def interrupt(self) -> None: ...

    def stop(self) -> None: ...

    def status(self) -> Status:
        return Status(True, "well")

    def stats(self) -> model.Stats:
        return {}


class WritesLater(Keeps):
    def __init__(self, name: str, options: SinkOptions) -> None:
        super().__init__(name, options)
        self._waiting: model.Batch | None = None

    def write(self, batch: model.Batch) -> None:
        if self._waiting is not None:
            super().write(self._waiting)
        self._waiting = batch


class LeavesOutDeletes(Keeps):
    def write(self, batch: model.Batch) -> None:
        counted = batch.rows.counted()
        type(self).kept += sum(found.rows for found in counted if found.op is not model.RowOp.DELETE)


class ChecksInWords(Keeps):
    def check(self) -> Iterable[Finding]:
        return ("all is well",)  # type: ignore[return-value]


class SaysManyAtOnce(Keeps):
    @property
    def batches_at_once(self) -> int:
        return 4


class SaysNothing(Keeps):
    def status(self) -> Status:
        return Status(True, "")


SINKS: dict[type[Sink], Callable[[Any], None]] = {
    WritesLater: SinkContract.test_a_batch_is_durable_when_write_returns,
    ChecksInWords: SinkContract.test_a_check_changes_nothing,
    LeavesOutDeletes: SinkContract.test_batches_of_any_content_are_taken,
    SaysManyAtOnce: SinkContract.test_batches_that_it_takes_together_are_durable_when_they_are_written,
    SaysNothing: SinkContract.test_it_says_at_any_time_how_it_is,
}


class SinkTests(SinkContract):
    def __init__(self, sink: type[Keeps]) -> None:
        self._sink = sink

    def make_sink(self) -> Sink:
        return self._sink("own", SinkOptions(type="own", sources=("db1",)))

    def written(self) -> int | None:
        return self._sink.kept


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.__name__)
def test_a_sink_that_breaks_its_promise_is_caught(sink: type[Keeps]) -> None:
    SINKS[sink](SinkTests(Keeps))
    with pytest.raises(AssertionError):
        SINKS[sink](SinkTests(sink))
