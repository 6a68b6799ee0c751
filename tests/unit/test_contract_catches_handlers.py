"""The contract's tests of handlers fail for one that breaks its promise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from psql_streamer import model
from psql_streamer.interfaces import Finding, Handler, Published
from psql_streamer.options import HandlerOptions
from psql_streamer.testing import HandlerContract, make_batch, threads
from psql_streamer.testing.batches import make_mixed_batch
from psql_streamer.testing.samples import ROWS


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


class MakesAllInserts(Passes):
    def alter(self, changes: model.Changes) -> model.Changes:
        rows = np.flatnonzero(changes.op == model.RowOp.READ)
        op = changes.op.copy()
        op[rows] = model.RowOp.INSERT
        return replace(changes, op=op)


class MovesTime(Passes):
    def handle(self, batch: model.Batch) -> model.Batch:
        of = batch.transactions
        return replace(batch, transactions=replace(of, commit_ts=of.commit_ts + 1))


class Leaves(Passes):
    """Makes a new batch, and leaves something out."""

    left_out: str

    def handle(self, batch: model.Batch) -> model.Batch:
        default = next(one.default for one in fields(model.Batch) if one.name == self.left_out)
        return replace(batch, **{self.left_out: default})


class LeavesOutTruncates(Leaves):
    left_out = "truncates"


class LeavesOutMessages(Leaves):
    left_out = "messages"


class LeavesOutSchemaChanges(Leaves):
    left_out = "schema_changes"


class LeavesOutStatements(Leaves):
    left_out = "statements"


class LeavesOutMetadata(Leaves):
    left_out = "transaction_metadata"


class LeavesOutRejections(Leaves):
    left_out = "rejections"


class EndsPieces(Leaves):
    left_out = "continues"


class PutsAsideWithoutAWord(Passes):
    def handle(self, batch: model.Batch) -> model.Batch:
        aside = tuple(model.Rejection(changes, "why", None, "a rule") for changes in batch.changes)
        return replace(batch, changes=(), rejections=(*batch.rejections, *aside))


class GivesNothingOnceInterrupted(Passes):
    _interrupted = False

    def interrupt(self) -> None:
        self._interrupted = True

    def handle(self, batch: model.Batch) -> model.Batch:
        return replace(batch, changes=()) if self._interrupted else batch


class FailsToBeInterrupted(Passes):
    def interrupt(self) -> None:
        raise RuntimeError("there is nothing to interrupt")


class HasLookupsInANumber(Passes):
    def stats(self) -> model.Stats:
        return {"lookups": 3}


class HangsWhenInterrupted(Passes):
    def interrupt(self) -> None:
        time.sleep(30)


class ChecksWithoutFindings(Passes):
    def check(self) -> Iterable[Finding]:
        return ("all is well",)  # type: ignore[return-value]


class ReviewsInWords(Passes):
    def review(self, published: Published) -> Iterable[Finding]:  # noqa: ARG002
        return ("all is well",)  # type: ignore[return-value]


class GivesNothing(Passes):
    """Once something has happened."""

    _happened = False

    def handle(self, batch: model.Batch) -> model.Batch:
        return replace(batch, changes=()) if self._happened else batch


class GivesNothingOnceReviewed(GivesNothing):
    def review(self, published: Published) -> Iterable[Finding]:  # noqa: ARG002
        self._happened = True
        return ()


class GivesNothingOnceServing(GivesNothing):
    def serve(self, sink: str, sources: Sequence[str]) -> None:
        super().serve(sink, sources)
        self._happened = True


class WaitsWhenRowsAreDurable(Passes):
    def note_durable(self, source: str, position: model.Position | None) -> None:  # noqa: ARG002
        time.sleep(30)


class FailsWhenAStreamBegins(Passes):
    def begin_stream(self, source: str, position: model.Position | None) -> None:
        raise RuntimeError(f"{source} begins at {position}")


class TakesNoRows(Passes):
    most_rows = 0  # type: ignore[assignment]


class TakesNoBatches(Passes):
    batches_at_once = 0


class StartsOnce(Passes):
    _started = False

    def start(self) -> None:
        assert not self._started, "it is started"
        self._started = True

    def stop(self) -> None:
        self._started = False


class ForgetsRowFields(Passes):
    def alter(self, changes: model.Changes) -> model.Changes:
        one = changes
        order, images = (one.batch_order, one.op, one.seq, one.tx), (one.after, one.before)
        return model.Changes(one.relation, one.columns, *order, *images, place=one.place)


class ForgetsIds(Passes):
    def handle(self, batch: model.Batch) -> model.Batch:
        return replace(batch, transactions=replace(batch.transactions, ids=None))


class NamesAnotherShape(Passes):
    def alter(self, changes: model.Changes) -> model.Changes:
        return replace(changes, relation=replace(changes.relation, version=99))


class ForgetsWhatIsAbsent(Passes):
    def alter(self, changes: model.Changes) -> model.Changes:
        return replace(changes, after=replace(changes.after, absent={}))


class ForgetsAddresses(Passes):
    def alter(self, changes: model.Changes) -> model.Changes:
        return replace(changes, after=replace(changes.after, addresses=None))


class AltersTheBatch(Passes):
    def alter(self, changes: model.Changes) -> model.Changes:
        changes.op[changes.op == model.RowOp.INSERT] = model.RowOp.READ
        return changes


class LeavesOutWhenItCame(Leaves):
    left_out = "received_at"


class LeavesOutCounts(Passes):
    def handle(self, batch: model.Batch) -> model.Batch:
        metadata = batch.transaction_metadata
        if metadata is None:
            return batch
        return replace(batch, transaction_metadata=replace(metadata, counts=model.TransactionCounts()))


class PutsAside(Passes):
    """The first row of each table."""

    reason = "it is the first one"
    stays = False

    def handle(self, batch: model.Batch) -> model.Batch:
        aside = tuple(self.reject(changes.slice(0, 1)) for changes in batch.changes)
        kept = tuple(
            one if self.stays else one.slice(1, len(one)) for one in batch.changes if self.stays or len(one) > 1
        )
        return replace(batch, changes=kept, rejections=(*batch.rejections, *aside))

    def reject(self, changes: model.Changes) -> model.Rejection:
        return model.Rejection(changes, self.reason, None, "a rule")


class KeepsWhatItPutsAside(PutsAside):
    stays = True


class TellsValues(PutsAside):
    def reject(self, changes: model.Changes) -> model.Rejection:
        return replace(super().reject(changes), reason=f"of {[one.to_pylist() for one in changes.after.columns]}")


class PutsOtherRowsAside(PutsAside):
    def reject(self, changes: model.Changes) -> model.Rejection:
        return super().reject(replace(changes, seq=changes.seq + 77))


class NumbersPartsBackwards(Passes):
    def alter(self, changes: model.Changes) -> model.Changes:
        if len(changes.before):
            return changes
        twice = np.repeat(np.arange(len(changes)), 2)
        part = np.zeros(len(twice), model.PART)
        part["number"], part["of"] = np.tile([1, 0], len(changes)), 2
        after = model.Image([one.take(twice) for one in changes.after.columns], np.arange(len(twice)))
        return replace(
            changes,
            op=changes.op[twice],
            after=after,
            **(model.select_row_fields(changes, twice) | {"part": part}),
        )


KEEPS_ROWS_ASIDE = HandlerContract.test_rows_that_are_put_aside_are_gone_and_the_reason_tells_no_values
HEARS_OF_POSITIONS = HandlerContract.test_what_it_is_told_of_positions_does_not_wait
IS_REVIEWED = HandlerContract.test_a_review_gives_findings_and_leaves_what_it_does_as_it_was
TAKES_SOME = HandlerContract.test_it_takes_some_rows_of_some_batches
KEEPS_THE_REST = HandlerContract.test_what_is_no_row_stays_as_it_is
KEEPS_IDENTITY = HandlerContract.test_the_position_and_the_identity_of_what_stays_are_kept
HANDLERS: dict[type[Handler], Callable[[Any], None]] = {
    MovesPlaces: KEEPS_IDENTITY,
    MovesRows: KEEPS_IDENTITY,
    NumbersAnew: KEEPS_IDENTITY,
    GoesFurther: KEEPS_IDENTITY,
    MakesAllInserts: KEEPS_IDENTITY,
    MovesTime: KEEPS_IDENTITY,
    LeavesOutTruncates: KEEPS_THE_REST,
    LeavesOutMessages: KEEPS_THE_REST,
    LeavesOutSchemaChanges: KEEPS_THE_REST,
    LeavesOutStatements: KEEPS_THE_REST,
    LeavesOutMetadata: KEEPS_THE_REST,
    LeavesOutRejections: KEEPS_THE_REST,
    EndsPieces: HandlerContract.test_a_piece_of_a_batch_stays_one,
    PutsAsideWithoutAWord: HandlerContract.test_rows_that_are_put_aside_are_announced,
    HasLookupsInANumber: HandlerContract.test_it_says_at_any_time_how_it_is,
    HangsWhenInterrupted: HandlerContract.test_an_interrupt_comes_from_another_thread_and_does_not_wait,
    GivesNothingOnceInterrupted: HandlerContract.test_an_interrupt_comes_from_another_thread_and_does_not_wait,
    FailsToBeInterrupted: HandlerContract.test_an_interrupt_may_come_before_a_start_and_behind_a_stop,
    ChecksWithoutFindings: HandlerContract.test_a_check_gives_findings,
    ReviewsInWords: IS_REVIEWED,
    GivesNothingOnceReviewed: IS_REVIEWED,
    GivesNothingOnceServing: HandlerContract.test_it_is_told_first_whom_it_works_for_and_what_it_may_read,
    WaitsWhenRowsAreDurable: HEARS_OF_POSITIONS,
    FailsWhenAStreamBegins: HEARS_OF_POSITIONS,
    StartsOnce: HandlerContract.test_a_start_may_come_again_without_a_stop,
    ForgetsRowFields: KEEPS_IDENTITY,
    ForgetsIds: KEEPS_IDENTITY,
    NamesAnotherShape: KEEPS_IDENTITY,
    PutsOtherRowsAside: KEEPS_IDENTITY,
    ForgetsWhatIsAbsent: HandlerContract.test_what_a_new_row_lacks_is_not_said_to_be_null,
    ForgetsAddresses: HandlerContract.test_addresses_that_a_handler_before_gave_are_not_lost,
    AltersTheBatch: HandlerContract.test_the_batch_that_it_is_given_stays_as_it_was,
    LeavesOutWhenItCame: KEEPS_THE_REST,
    LeavesOutCounts: KEEPS_THE_REST,
    KeepsWhatItPutsAside: KEEPS_ROWS_ASIDE,
    TellsValues: KEEPS_ROWS_ASIDE,
    NumbersPartsBackwards: HandlerContract.test_what_it_gives_is_what_the_model_says,
    TakesNoRows: TAKES_SOME,
    TakesNoBatches: TAKES_SOME,
}


class HandlerTests(HandlerContract):
    def __init__(self, handler: type[Handler]) -> None:
        self._handler = handler

    def make_handler(self) -> Handler:
        return self._handler("own", HandlerOptions())

    def make_batches(self) -> Sequence[model.Batch]:
        return [make_batch(ROWS, "id"), make_mixed_batch()]


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to end soon has ended by then, and what does not is not waited for."""
    monkeypatch.setattr(threads, "INTERRUPTED_SECONDS", 1.0)


def test_a_handler_that_puts_rows_aside_passes() -> None:
    KEEPS_IDENTITY(HandlerTests(PutsAside))
    KEEPS_ROWS_ASIDE(HandlerTests(PutsAside))


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.__name__)
def test_a_handler_that_breaks_its_promise_is_caught(handler: type[Handler]) -> None:
    HANDLERS[handler](HandlerTests(Passes))
    with pytest.raises(AssertionError):
        HANDLERS[handler](HandlerTests(handler))
