"""What `Sink` promises of a time in which it cannot write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

import pytest

from psql_streamer.errors import SinkUnavailable
from psql_streamer.interfaces import Sink
from psql_streamer.testing.batches import make_batch, make_empty_batch
from psql_streamer.testing.parts import NO_OUTAGE, require_error
from psql_streamer.testing.samples import ROWS
from psql_streamer.testing.sink_writes import WritingContract, bind_write, bind_writes, succeeds
from psql_streamer.testing.threads import (
    INTERRUPTED_SECONDS,
    NEVER,
    PART_ANSWER_SECONDS,
    begin,
    call_in_a_thread,
    end,
    end_soon,
)

_BEFORE_AN_INTERRUPT_SECONDS = 0.1


class SinkOutageContract(WritingContract):
    """A part of SinkContract."""

    def test_a_batch_that_could_not_be_written_is_written_when_it_comes_again(self) -> None:
        """The same object, as the pipeline gives it. In transactions it is written once, whatever became of them."""
        self._check_that_it_is_written_again(len(ROWS), lambda sink: iter([bind_write(sink, make_batch(ROWS, "id"))]))

    def test_batches_that_wait_and_could_not_be_written_are_written_when_they_come_again(self) -> None:
        """Those that a sink has taken together as well as those behind them."""
        batches = [make_batch(ROWS, "id"), make_empty_batch(2), make_batch(ROWS[:2], "id", first=3)]
        self._check_that_it_is_written_again(len(ROWS) + 2, lambda sink: bind_writes(sink, batches))

    def test_an_interrupt_ends_a_write_that_waits_and_a_stop_abandons_it(self) -> None:
        """What is not written by then comes again behind the next start, and is not flushed."""
        outage = self.cause_outage()
        if outage is None:
            pytest.skip(NO_OUTAGE)
        with self._make_started() as sink:
            with outage:
                writing = begin(bind_write(sink, make_batch(ROWS, "id")))
                writing.wait(_BEFORE_AN_INTERRUPT_SECONDS, NEVER)
                end_soon(sink.interrupt, "interrupt")
                require_error(
                    partial(end, writing, INTERRUPTED_SECONDS, "a write that was interrupted"),
                    SinkUnavailable,
                    "a write returns though nothing can be written",
                )
            found = self.count_written()
            call_in_a_thread(sink.stop)
            assert self.count_written() == found, "a stop writes what was not confirmed"

    def _check_that_it_is_written_again(self, rows: int, bind: Callable[[Sink], Iterator[Callable[[], None]]]) -> None:
        before, outage = self.count_written(), self.cause_outage()
        if outage is None:
            pytest.skip(NO_OUTAGE)
        with self._make_started() as sink:
            writes = bind(sink)
            with outage:
                first = next(writes)
                assert not succeeds(first), "a write returns though nothing can be written"
                status = sink.status()
                assert not status.ok, "a status says that the last attempt failed"
                assert status.reason
            deadline = time.monotonic() + PART_ANSWER_SECONDS
            for write in chain([first], writes):
                while not succeeds(write):
                    assert time.monotonic() < deadline, "a write fails though everything is there again"
                    time.sleep(0.1)
            found = self.count_written()
            if before is not None and found is not None:
                assert found >= before + rows, "a write returns, and its batch is not there"
                assert not sink.is_transactional or found == before + rows, "a transaction was written twice"
            assert sink.status().ok
