"""What `Sink` promises."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from psql_streamer.errors import SinkUnavailable
from psql_streamer.interfaces import Finding, Sink, Status, Transaction
from psql_streamer.model import Batch
from psql_streamer.testing.batches import batch_of, empty_batch, mixed_batch
from psql_streamer.testing.threads import call_in_a_thread

_ROWS = [{"id": number, "note": f"note {number}"} for number in range(1, 6)]


class SinkContract(ABC):
    """A subclass says how to make a sink. `written`, if it can, how many events are durable where the sink writes."""

    @abstractmethod
    def make_sink(self) -> Sink:
        """A sink that has not been started."""

    def written(self) -> int | None:
        """How many events are there; None where nobody can say."""
        return None

    def test_a_check_changes_nothing(self) -> None:
        before = self.written()
        findings = list(self.make_sink().check())
        assert all(isinstance(finding, Finding) for finding in findings), "check gives a Finding for each problem"
        assert self.written() == before

    def test_a_batch_is_durable_when_write_returns(self) -> None:
        before = self.written()
        with self._started() as sink:
            _write(sink, batch_of(_ROWS, "id"))
            if before is not None:
                assert self.written() == before + len(_ROWS)
            assert sink.status().ok

    def test_batches_of_any_content_are_taken(self) -> None:
        """Each row change is an event at least; truncates and messages may have no place."""
        before, rows = self.written(), 0
        with self._started() as sink:
            for batch in self._batches():
                _write(sink, batch)
                rows += batch.rows.rows
                found = self.written()
                if before is not None and found is not None:
                    assert found >= before + rows, "a row change is no event"

    def test_batches_that_it_takes_together_are_durable_when_they_are_written(self) -> None:
        before = self.written()
        with self._started() as sink:
            if type(sink).write_together is Sink.write_together:
                assert sink.batches_at_once == 1
            elif not sink.is_transactional:
                sink.write_together([batch_of(_ROWS, "id"), empty_batch(), batch_of(_ROWS[:2], "id")])
                if before is not None:
                    assert self.written() == before + len(_ROWS) + 2
                assert sink.status().ok

    def test_it_says_at_any_time_how_it_is(self) -> None:
        sink = self.make_sink()
        assert isinstance(sink.status(), Status)
        with self._started() as started:
            _write(started, batch_of(_ROWS, "id"))
            json.dumps(dict(started.stats()), default=str)
            assert started.status().reason

    def test_an_interrupt_comes_from_another_thread_and_does_not_wait(self) -> None:
        with self._started() as sink:
            interrupting = threading.Thread(target=sink.interrupt)
            interrupting.start()
            interrupting.join(5.0)
            assert not interrupting.is_alive()
            with suppress(SinkUnavailable):
                _write(sink, batch_of(_ROWS, "id"))

    def test_the_note_of_a_transaction_is_found_by_the_next_sink(self) -> None:
        with self._started() as sink:
            if not sink.is_transactional:
                assert sink.find_note("db1") is None
                return
            sink.write_transaction(Transaction([batch_of(_ROWS, "id"), empty_batch(2)], {"db1": b'{"n": 1}'}))
            sink.write_transaction(Transaction([empty_batch(3)], {"db2": b'{"n": 2}'}))
        with self._started() as sink:
            assert [json.loads(sink.find_note(source) or b"null") for source in ("db1", "db2")] == [{"n": 1}, {"n": 2}]

    def test_a_stop_may_come_twice_and_before_a_start(self) -> None:
        sink = self.make_sink()
        sink.stop()
        with self._started() as started:
            started.stop()
            started.stop()

    def _batches(self) -> Iterator[Batch]:
        yield empty_batch(1)
        yield batch_of(_ROWS, "id", first=2)
        yield mixed_batch()
        yield batch_of([{"id": 1, "amount": 1.5, "gone": None}], "id", first=3, table="figures")

    @contextmanager
    def _started(self) -> Iterator[Sink]:
        sink = self.make_sink()
        try:
            call_in_a_thread(sink.start)
            yield sink
        finally:
            call_in_a_thread(sink.stop)


def _write(sink: Sink, batch: Batch) -> None:
    if sink.is_transactional:
        sink.write_transaction(Transaction([batch], {"db1": b"{}"}))
    else:
        sink.write(batch)
