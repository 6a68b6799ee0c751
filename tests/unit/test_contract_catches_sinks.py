"""The contract's tests of sinks fail for one that breaks its promise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from psql_streamer import model
from psql_streamer.errors import SinkUnavailable
from psql_streamer.interfaces import Finding, Published, Sink, Status, TopicsRead, Transaction
from psql_streamer.options import SinkOptions
from psql_streamer.testing import SinkContract

NEVER = threading.Event()


class KeepsOptions(SinkOptions):
    @property
    def takes_rejected_rows(self) -> bool:
        return True


class Keeps(Sink):
    """Counts the events that it was given, unless what it writes to is away."""

    Options = KeepsOptions
    kept = 0
    is_away = False

    def __init__(self, name: str, options: SinkOptions) -> None:
        super().__init__(name, options)
        self.dead_lettered = 0
        self.works = True

    def check(self) -> Iterable[Finding]:
        return ()

    def start(self) -> None: ...

    def write(self, batch: model.Batch) -> None:
        self.require()
        self.keep(len(batch))
        self.dead_lettered += sum(len(rejection.changes) for rejection in batch.rejections)

    def require(self) -> None:
        self.works = not type(self).is_away
        if not self.works:
            raise SinkUnavailable("what it writes to is away")

    def keep(self, events: int) -> None:
        type(self).kept += events

    def interrupt(self) -> None: ...

    def stop(self) -> None: ...

    def status(self) -> Status:
        return Status(self.works, "as it was the last time")

    def stats(self) -> model.Stats:
        return {"dead_lettered": self.dead_lettered}


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
        counted = batch.rows.count_rows()
        type(self).kept += sum(found.rows for found in counted if found.op is not model.RowOp.DELETE)


class WritesTheFirstTable(Keeps):
    def write(self, batch: model.Batch) -> None:
        self.keep(len(batch.changes[0]) if len(batch.changes) else 0)


class WritesTheFirstTransaction(Keeps):
    def write(self, batch: model.Batch) -> None:
        self.keep(sum(int((changes.tx == 0).sum()) for changes in batch.changes))


class ForgetsRejections(Keeps):
    def write(self, batch: model.Batch) -> None:
        super().write(replace(batch, rejections=()))


class LeavesOutRowsBesideRejections(Keeps):
    def write(self, batch: model.Batch) -> None:
        super().write(replace(batch, changes=()) if batch.rejections else batch)


class ReturnsOnceInterrupted(Keeps):
    _interrupted = False

    def interrupt(self) -> None:
        self._interrupted = True

    def write(self, batch: model.Batch) -> None:
        if not self._interrupted:
            super().write(batch)


class GivesUpWhatIsUnderWay(ReturnsOnceInterrupted):
    """What an interrupt ends counts as written; what comes behind it is refused."""

    def write(self, batch: model.Batch) -> None:
        if self._interrupted:
            raise SinkUnavailable("it was interrupted")
        end = time.monotonic() + 0.05
        while time.monotonic() < end and not self._interrupted:
            time.sleep(0.001)
        super().write(batch)


class TakesABatchThatFailedForWritten(Keeps):
    def __init__(self, name: str, options: SinkOptions) -> None:
        super().__init__(name, options)
        self._last: model.Batch | None = None

    def write(self, batch: model.Batch) -> None:
        if self._last is batch:
            self.works = True
            return
        self._last = batch
        super().write(batch)


class SaysThatItIsWellThoughItFails(Keeps):
    def status(self) -> Status:
        return Status(True, "well")


class LosesWhatFails(Keeps):
    def write(self, batch: model.Batch) -> None:
        with suppress(SinkUnavailable):
            super().write(batch)


class FailsToBeInterruptedLate(Keeps):
    stopped = False

    def stop(self) -> None:
        self.stopped = True

    def interrupt(self) -> None:
        assert not self.stopped, "it is stopped"


class CountsInWords(Keeps):
    def stats(self) -> model.Stats:
        return {"events": "many"}


class StartsThreadsWhenItIsMade(Keeps):
    def __init__(self, name: str, options: SinkOptions) -> None:
        super().__init__(name, options)
        threading.Thread(target=NEVER.wait, daemon=True).start()


class WritesTransactions(Keeps):
    is_transactional = True
    notes: ClassVar[dict[str, bytes]] = {}

    def write_transaction(self, transaction: Transaction) -> None:
        transaction.consumed()
        for batch in transaction.batches:
            self.write(batch)
        self.notes.update(transaction.notes)

    def find_note(self, source: str) -> bytes | None:
        return self.notes.get(source)


class WritesTheFirstBatchOfATransaction(WritesTransactions):
    def write_transaction(self, transaction: Transaction) -> None:
        super().write_transaction(replace(transaction, batches=transaction.batches[:1]))


class AsksForNoOffsets(WritesTransactions):
    def write_transaction(self, transaction: Transaction) -> None:
        super().write_transaction(replace(transaction, consumed=tuple))


class ChecksInWords(Keeps):
    def check(self) -> Iterable[Finding]:
        return ("all is well",)  # type: ignore[return-value]


class ReviewsInWords(Keeps):
    def review(self, published: Published) -> Iterable[Finding]:  # noqa: ARG002
        return ("all is well",)  # type: ignore[return-value]


class FindsCircles(Keeps):
    def find_circle(self, read: TopicsRead) -> str:
        return read.names[0]


class FailsToSwitchDebug(Keeps):
    def set_debug(self, on: bool) -> None:
        raise RuntimeError(f"debug {on}")


class SaysManyAtOnce(Keeps):
    @property
    def batches_at_once(self) -> int:
        return 4


class SaysNothing(Keeps):
    def status(self) -> Status:
        return Status(True, "")


EVERY_ROW = SinkContract.test_rows_of_all_tables_and_transactions_are_written
IN_TRANSACTIONS = SinkContract.test_a_transaction_has_all_its_batches_and_asks_what_was_consumed
PUT_ASIDE = SinkContract.test_rows_that_were_put_aside_are_counted_where_it_takes_them
COMES_AGAIN = SinkContract.test_a_batch_that_could_not_be_written_is_written_when_it_comes_again
SINKS: dict[type[Sink], Callable[[Any], None]] = {
    WritesLater: SinkContract.test_a_batch_is_durable_when_write_returns,
    WritesTheFirstTable: EVERY_ROW,
    WritesTheFirstTransaction: EVERY_ROW,
    WritesTheFirstBatchOfATransaction: IN_TRANSACTIONS,
    AsksForNoOffsets: IN_TRANSACTIONS,
    ForgetsRejections: PUT_ASIDE,
    LeavesOutRowsBesideRejections: PUT_ASIDE,
    ReturnsOnceInterrupted: SinkContract.test_an_interrupt_comes_from_another_thread_and_does_not_wait,
    GivesUpWhatIsUnderWay: SinkContract.test_a_write_that_is_interrupted_is_durable_or_raises,
    FailsToBeInterruptedLate: SinkContract.test_an_interrupt_may_come_before_a_start_and_behind_a_stop,
    TakesABatchThatFailedForWritten: COMES_AGAIN,
    SaysThatItIsWellThoughItFails: COMES_AGAIN,
    LosesWhatFails: COMES_AGAIN,
    CountsInWords: SinkContract.test_it_says_at_any_time_how_it_is,
    StartsThreadsWhenItIsMade: SinkContract.test_making_one_does_no_io,
    ReviewsInWords: SinkContract.test_a_review_gives_findings_without_a_start,
    FindsCircles: SinkContract.test_topics_that_it_does_not_write_are_no_circle,
    FailsToSwitchDebug: SinkContract.test_debug_messages_are_switched_at_any_time,
    ChecksInWords: SinkContract.test_a_check_changes_nothing,
    LeavesOutDeletes: SinkContract.test_batches_of_any_content_are_taken,
    SaysManyAtOnce: SinkContract.test_batches_that_it_takes_together_are_durable_when_they_are_written,
    SaysNothing: SinkContract.test_it_says_at_any_time_how_it_is,
}


class SinkTests(SinkContract):
    def __init__(self, sink: type[Keeps]) -> None:
        self._sink = sink

    def make_sink(self) -> Sink:
        return self._sink("own", self._sink.Options(type="own", sources=("db1",)))

    def count_written(self) -> int | None:
        return self._sink.kept

    @contextmanager
    def cause_outage(self) -> Iterator[None]:  # type: ignore[override]
        self._sink.is_away = True
        try:
            yield
        finally:
            self._sink.is_away = False


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.__name__)
def test_a_sink_that_breaks_its_promise_is_caught(sink: type[Keeps]) -> None:
    SINKS[sink](SinkTests(WritesTransactions if issubclass(sink, WritesTransactions) else Keeps))
    with pytest.raises(AssertionError):
        SINKS[sink](SinkTests(sink))
