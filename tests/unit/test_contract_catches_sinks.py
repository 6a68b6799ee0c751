"""The contract's tests of sinks fail for one that breaks its promise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pytest

from psql_streamer import model
from psql_streamer.errors import SinkUnavailable, SourceError
from psql_streamer.interfaces import Finding, Published, Sink, Status, TopicsRead, Transaction
from psql_streamer.options import SinkOptions
from psql_streamer.testing import SinkContract, sink_outages

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


class LikesNoRows(Keeps):
    @property
    def rows_at_once(self) -> int:
        return 0


class SaysNothing(Keeps):
    def status(self) -> Status:
        return Status(True, "")


class StartsOnce(Keeps):
    started = False

    def start(self) -> None:
        assert not self.started, "it is started"
        self.started = True


class TellsOnlyOnceStarted(StartsOnce):
    def stats(self) -> model.Stats:
        assert self.started, "it is not started"
        return super().stats()

    def start(self) -> None:
        self.started = True


class HoldsPiecesBack(Keeps):
    def __init__(self, name: str, options: SinkOptions) -> None:
        super().__init__(name, options)
        self._held: list[model.Batch] = []

    def write(self, batch: model.Batch) -> None:
        self._held.append(batch)
        while self._held and not batch.continues:
            super().write(self._held.pop(0))


class LeavesOutPieces(Keeps):
    def write(self, batch: model.Batch) -> None:
        if not batch.continues:
            super().write(batch)


class KnowsBatchesByTheirPosition(Keeps):
    """What is durable need not be written again: but another batch may have the same position."""

    _last: model.Position | None = None

    def write(self, batch: model.Batch) -> None:
        if batch.position != self._last:
            super().write(batch)
        self._last = batch.position


class FlushesWithItsStop(Keeps):
    _left = 0

    def keep(self, events: int) -> None:
        super().keep(events)
        self._left = 0

    def write(self, batch: model.Batch) -> None:
        self._left = len(batch)
        super().write(batch)

    def stop(self) -> None:
        type(self).kept += self._left
        self._left = 0


class WaitsThroughInterrupts(Keeps):
    def require(self) -> None:
        if type(self).is_away:
            NEVER.wait(1.0)
        super().require()


class TakesSeveral(Keeps):
    def begin_write(self, batches: Iterator[model.Batch]) -> Callable[[], None]:
        return partial(self.write_all, [*batches])

    def write_all(self, batches: Sequence[model.Batch]) -> None:
        self.require()
        for batch in batches:
            self.write(batch)


class LosesSeveralThatFail(TakesSeveral):
    def write_all(self, batches: Sequence[model.Batch]) -> None:
        with suppress(SinkUnavailable):
            super().write_all(batches)


class WritesTheNextTooSoon(Keeps):
    def __init__(self, name: str, options: SinkOptions) -> None:
        super().__init__(name, options)
        self._waits = False

    def attach_next(self, begin_next: Callable[[], bool]) -> None:
        self._begin_next = begin_next

    def begin_write(self, batches: Iterator[model.Batch]) -> Callable[[], None]:
        batch = next(batches)
        if self._waits:
            self.write(batch)

        def write() -> None:
            self._waits = True
            self._begin_next()
            self._waits = False
            self.write(batch)

        return write


class WritesTransactionsTwice(WritesTransactions):
    """Where it does not know whether it was written."""

    def require(self) -> None:
        if type(self).is_away:
            self.keep(5)
        super().require()


class NotesInFront(WritesTransactions):
    def write_transaction(self, transaction: Transaction) -> None:
        self.notes.update(transaction.notes)
        super().write_transaction(transaction)


class AsksBehindWhatItWrites(WritesTransactions):
    def write_transaction(self, transaction: Transaction) -> None:
        super().write_transaction(replace(transaction, consumed=tuple))
        transaction.consumed()


class WritesWhatOthersHave(WritesTransactions):
    def write_transaction(self, transaction: Transaction) -> None:
        with suppress(SourceError):
            transaction.consumed()
        super().write_transaction(replace(transaction, consumed=tuple))


class KeepsTheFirstNote(WritesTransactions):
    def write_transaction(self, transaction: Transaction) -> None:
        super().write_transaction(replace(transaction, notes={**transaction.notes, **self.notes}))


class LocksItsNotesWhileItWrites(WritesTransactions):
    def __init__(self, name: str, options: SinkOptions) -> None:
        super().__init__(name, options)
        self._lock = threading.Lock()

    def write_transaction(self, transaction: Transaction) -> None:
        with self._lock:
            super().write_transaction(transaction)

    def find_note(self, source: str) -> bytes | None:
        if not self._lock.acquire(timeout=0.1):
            raise RuntimeError("a write is under way")
        self._lock.release()
        return super().find_note(source)


EVERY_PIECE = SinkContract.test_every_piece_of_a_batch_is_written
INTERRUPTED = SinkContract.test_an_interrupt_ends_a_write_that_waits_and_a_stop_abandons_it
NOT_WRITTEN = SinkContract.test_a_transaction_whose_offsets_cannot_be_said_is_not_written
TOGETHER_AGAIN = SinkContract.test_batches_that_wait_and_could_not_be_written_are_written_when_they_come_again
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
    LikesNoRows: SinkContract.test_batches_that_it_takes_together_are_durable_when_they_are_written,
    StartsOnce: SinkContract.test_a_start_may_come_again_without_a_stop,
    TellsOnlyOnceStarted: SinkContract.test_it_says_at_any_time_how_it_is,
    HoldsPiecesBack: EVERY_PIECE,
    LeavesOutPieces: EVERY_PIECE,
    KnowsBatchesByTheirPosition: EVERY_PIECE,
    FlushesWithItsStop: INTERRUPTED,
    WaitsThroughInterrupts: INTERRUPTED,
    LosesSeveralThatFail: TOGETHER_AGAIN,
    WritesTheNextTooSoon: SinkContract.test_the_next_write_may_be_begun_while_one_waits,
    WritesTransactionsTwice: COMES_AGAIN,
    NotesInFront: IN_TRANSACTIONS,
    AsksBehindWhatItWrites: IN_TRANSACTIONS,
    LocksItsNotesWhileItWrites: IN_TRANSACTIONS,
    WritesWhatOthersHave: NOT_WRITTEN,
    KeepsTheFirstNote: SinkContract.test_the_note_of_a_transaction_is_found_by_the_next_sink,
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


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to end soon has ended by then, and what does not is not waited for."""
    monkeypatch.setattr(sink_outages, "INTERRUPTED_SECONDS", 0.5)


SOUND = (WritesTransactions, TakesSeveral, Keeps)


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.__name__)
def test_a_sink_that_breaks_its_promise_is_caught(sink: type[Keeps]) -> None:
    WritesTransactions.notes.clear()
    SINKS[sink](SinkTests(next(sound for sound in SOUND if issubclass(sink, sound))))
    WritesTransactions.notes.clear()
    with pytest.raises(AssertionError):
        SINKS[sink](SinkTests(sink))
