"""What `Handler` promises."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psql_streamer.interfaces import Finding, Handler, Status
from psql_streamer.model import Batch, SnapshotRows
from psql_streamer.testing.batches import as_read, check_batch, empty_batch, identities, row_places
from psql_streamer.testing.threads import call_in_a_thread


class HandlerContract(ABC):
    """A subclass says how to make a handler, and which batches it can take."""

    @abstractmethod
    def make_handler(self) -> Handler:
        """A handler that has not been started."""

    @abstractmethod
    def make_batches(self) -> Sequence[Batch]:
        """Some that it can take, with changes."""

    def test_what_it_gives_is_what_the_model_says(self) -> None:
        with self._started() as handler:
            for batch in self.make_batches():
                check_batch(handler.handle(batch))

    def test_the_position_and_the_identity_of_what_stays_are_kept(self) -> None:
        with self._started() as handler:
            for batch in self.make_batches():
                handled = handler.handle(batch)
                assert handled.position == batch.position
                assert handled.source == batch.source
                assert set(identities(handled)) <= set(identities(batch))
                assert row_places(handled) <= row_places(batch), "batch_order, seq, place and tx stay"

    def test_rows_of_a_snapshot_stay_what_they_are(self) -> None:
        snapshot = SnapshotRows("first", on_demand=True)
        with self._started() as handler:
            for batch in self.make_batches():
                handled = handler.handle(as_read(batch, snapshot))
                check_batch(handled)
                assert handled.transactions.snapshots == {0: snapshot}

    def test_a_batch_comes_out_the_same_when_it_is_tried_again(self) -> None:
        with self._started() as handler:
            for batch in self.make_batches():
                first, again = handler.handle(batch), handler.handle(batch)
                assert identities(first) == identities(again)
                for one, other in zip(first.changes, again.changes, strict=True):
                    assert one.after.columns == other.after.columns

    def test_a_batch_that_only_moves_the_position_passes(self) -> None:
        with self._started() as handler:
            batch = empty_batch()
            assert handler.handle(batch).position == batch.position

    def test_it_says_at_any_time_how_it_is(self) -> None:
        handler = self.make_handler()
        assert isinstance(handler.status(), Status)
        with self._started() as started:
            assert started.status().ok
            assert started.status().reason
            dict(started.stats())

    def test_a_check_gives_findings(self) -> None:
        findings = list(self.make_handler().check())
        assert all(isinstance(finding, Finding) for finding in findings), "check gives a Finding for each problem"

    def test_an_interrupt_comes_from_another_thread_and_does_not_wait(self) -> None:
        with self._started() as handler:
            interrupting = threading.Thread(target=handler.interrupt, daemon=True)
            interrupting.start()
            interrupting.join(5.0)
            assert not interrupting.is_alive()

    def test_a_stop_may_come_twice_and_before_a_start(self) -> None:
        handler = self.make_handler()
        handler.stop()
        with self._started() as started:
            started.stop()
            started.stop()

    @contextmanager
    def _started(self) -> Iterator[Handler]:
        handler = self.make_handler()
        try:
            call_in_a_thread(handler.start)
            yield handler
        finally:
            call_in_a_thread(handler.stop)
