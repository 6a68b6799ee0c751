"""What `Sink` promises."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial

from psql_streamer.errors import SinkError, SinkRefused, SinkUnavailable
from psql_streamer.interfaces import KeysRequest, Sink, Status, TopicsRead
from psql_streamer.model import Batch
from psql_streamer.testing.arrivals import ArrivalContract
from psql_streamer.testing.batches import make_batch, make_empty_batch, make_mixed_batch
from psql_streamer.testing.parts import require_findings
from psql_streamer.testing.samples import PUT_ASIDE_ROWS, ROWS, make_batch_of_several, make_batches_with_rejections
from psql_streamer.testing.sink_outages import SinkOutageContract
from psql_streamer.testing.sink_transactions import SinkTransactionContract
from psql_streamer.testing.sink_writes import bind_write, succeeds, write, write_waiting
from psql_streamer.testing.stats import check_stats
from psql_streamer.testing.threads import INTERRUPTED_SECONDS, begin, call_in_a_thread, end, end_soon

_NEXT_WRITES = 3

_LARGE_TEXT = 50_000
"""Characters in each row of batches that a sink may take for those of a backlog."""

_INTERRUPTED_BATCHES = 20
"""Batches that are written one behind the other until an interrupt ends it."""


class SinkContract(ArrivalContract, SinkTransactionContract, SinkOutageContract):
    """A subclass says how to make a sink, and `list_written`, if it can, which events are durable where it writes;
    `count_written` how many.
    """

    _start_error = SinkError

    def make_unreachable_sink(self) -> Sink | None:
        """One whose start fails: what it writes to is not there. None where there is no such sink."""
        return None

    def test_a_check_changes_nothing(self) -> None:
        before = self.count_written()
        require_findings(self.make_sink().check(), "check")
        assert self.count_written() == before

    def test_keys_of_a_table_that_nobody_wrote_are_none_or_cannot_be_told(self) -> None:
        """Without a start, and nothing is written for it."""
        before = self.count_written()
        request = KeysRequest("nowhere", "no_schema", "no_table", topic=None, mixed=False, on_wait=lambda _: None)
        with suppress(SinkRefused):
            assert list(self.make_sink().find_alive_keys(request).documents) == []
        assert self.count_written() == before

    def test_a_batch_is_durable_when_write_returns(self) -> None:
        before = self.count_written()
        with self._make_started() as sink:
            write(sink, make_batch(ROWS, "id"))
            if before is not None:
                assert self.count_written() == before + len(ROWS)
            assert sink.status().ok

    def test_batches_of_any_content_are_taken(self) -> None:
        """Each row change is an event at least; truncates and messages may have no place."""
        before, rows = self.count_written(), 0
        with self._make_started() as sink:
            for batch in self._make_batches():
                write(sink, batch)
                rows += batch.rows.rows
                found = self.count_written()
                if before is not None and found is not None:
                    assert found >= before + rows, "a row change is no event"

    def test_rows_of_all_tables_and_transactions_are_written(self) -> None:
        before, batch = self.count_written(), make_batch_of_several()
        with self._make_started() as sink:
            write(sink, batch)
            if before is not None:
                assert self.count_written() == before + batch.rows.rows

    def test_rows_that_were_put_aside_are_counted_where_it_takes_them(self) -> None:
        """And what is left of their batch is written."""
        for batch in make_batches_with_rejections():
            before = self.count_written()
            with self._make_started() as sink:
                options = sink.options
                if not options.takes_rejected_rows or options.key_of_rejected_rows is not None:
                    return
                write(sink, batch)
                counted = sink.stats().get("dead_lettered")
                assert counted == PUT_ASIDE_ROWS, f"stats: dead_lettered is {counted} for {PUT_ASIDE_ROWS} rows"
                found = self.count_written()
                if before is not None and found is not None:
                    assert found >= before + batch.rows.rows

    def test_batches_that_it_takes_together_are_durable_when_they_are_written(self) -> None:
        before = self.count_written()
        with self._make_started() as sink:
            assert sink.rows_at_once >= 1, "rows_at_once: one at least"
            write_waiting(sink, [make_batch(ROWS, "id"), make_empty_batch(), make_batch(ROWS[:2], "id")])
            if before is not None:
                assert self.count_written() == before + len(ROWS) + 2
            assert sink.status().ok

    def test_the_next_write_may_be_begun_while_one_waits(self) -> None:
        """If the sink asks for it. Each write makes its own batch durable, whenever it was begun."""
        before, sink = self.count_written(), self.make_sink()
        if sink.is_transactional:
            return
        rows = [{**row, "text": "x" * _LARGE_TEXT} for row in ROWS]
        batches = iter([make_batch(rows, "id", first=1 + number) for number in range(_NEXT_WRITES)])
        begun: list[Callable[[], None]] = []

        def begin_next() -> bool:
            if not begun and (batch := next(batches, None)) is not None:
                begun.append(sink.begin_write(iter([batch])))
            return bool(begun)

        sink.attach_next(begin_next)
        with self._start(sink):
            for number in range(_NEXT_WRITES):
                assert begin_next()
                call_in_a_thread(begun.pop())
                if before is not None:
                    assert self.count_written() == before + (1 + number) * len(ROWS), "its batch is not there, or more"

    def test_it_says_at_any_time_how_it_is(self) -> None:
        sink = self.make_sink()
        assert isinstance(sink.status(), Status)
        json.dumps(dict(sink.stats()), default=str)
        with self._make_started() as started:
            write(started, make_batch(ROWS, "id"))
            json.dumps(dict(started.stats()), default=str)
            check_stats("sink", started.stats())
            assert started.status().reason
        check_stats("sink", started.stats())

    def test_a_review_gives_findings_without_a_start(self) -> None:
        before = self.count_written()
        require_findings(self.make_sink().review({}), "review")
        assert self.count_written() == before

    def test_topics_that_it_does_not_write_are_no_circle(self) -> None:
        """Whether it writes topics or not; also without a start."""
        read = TopicsRead("no cluster of its brokers", ["no_topic", "^no_topic.*"], {})
        assert self.make_sink().find_circle(read) == "", "find_circle: none of the topics is its own"

    def test_debug_messages_are_switched_at_any_time(self) -> None:
        end_soon(partial(self.make_sink().set_debug, True), "set_debug before a start")
        with self._make_started() as sink:
            for on in (True, False):
                end_soon(partial(sink.set_debug, on), "set_debug")
            write(sink, make_batch(ROWS, "id"))

    def test_a_start_may_come_again_without_a_stop(self) -> None:
        """As the pipeline starts it again behind an attempt that failed."""
        with self._make_started() as sink:
            call_in_a_thread(sink.start)
            before = self.count_written()
            write(sink, make_batch(ROWS, "id"))
            if before is not None:
                assert self.count_written() == before + len(ROWS), "a second start: a batch is not there, or twice"
            assert sink.status().ok

    def test_an_interrupt_comes_from_another_thread_and_does_not_wait(self) -> None:
        """What is written behind it is there, or the write has raised SinkUnavailable."""
        before = self.count_written()
        with self._make_started() as sink:
            end_soon(sink.interrupt, "interrupt")
            returned = succeeds(bind_write(sink, make_batch(ROWS, "id")))
            found = self.count_written()
            if before is not None and found is not None and returned:
                assert found >= before + len(ROWS), "a write returns behind an interrupt, and its batch is not there"

    def test_a_write_that_is_interrupted_is_durable_or_raises(self) -> None:
        before, returned, under_way = self.count_written(), 0, threading.Event()
        with self._make_started() as sink:

            def write_on() -> None:
                nonlocal returned
                for number in range(_INTERRUPTED_BATCHES):
                    write(sink, make_batch(ROWS, "id", first=1 + number))
                    returned += 1
                    under_way.set()

            began = time.monotonic()
            writing = begin(write_on)
            while not under_way.wait(0.01) and not writing.ended:
                pass
            time.sleep(min(1.0, (time.monotonic() - began) / 2))  # in the middle of a write that takes as long
            end_soon(sink.interrupt, "interrupt")
            with suppress(SinkUnavailable):
                end(writing, INTERRUPTED_SECONDS, "a write that was interrupted")
        found = self.count_written()
        if before is not None and found is not None:
            assert found >= before + returned * len(ROWS), "a write returned, and its batch is not there"

    def _make_batches(self) -> Iterator[Batch]:
        yield make_empty_batch(1)
        yield make_batch(ROWS, "id", first=2)
        yield make_mixed_batch()
        yield make_batch([{"id": 1, "amount": 1.5, "gone": None}], "id", first=3, table="figures")

    def _make(self) -> Sink:
        return self.make_sink()

    def _make_unreachable(self) -> Sink | None:
        return self.make_unreachable_sink()

    def _start_once(self, part: Sink) -> None:
        call_in_a_thread(part.start)

    def _make_started(self) -> AbstractContextManager[Sink]:
        return self._start(self.make_sink())

    @contextmanager
    def _start(self, sink: Sink) -> Iterator[Sink]:
        try:
            call_in_a_thread(sink.start)
            yield sink
        finally:
            call_in_a_thread(sink.stop)
