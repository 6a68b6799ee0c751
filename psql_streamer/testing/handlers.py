"""What `Handler` promises."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from psql_streamer.errors import HandlerError, HandlerUnavailable
from psql_streamer.interfaces import Handler, Status
from psql_streamer.model import Batch, Rejection, RowOp, SnapshotRows, TransactionMetadata
from psql_streamer.testing.batches import as_read, make_empty_batch
from psql_streamer.testing.checking import check_batch
from psql_streamer.testing.contents import (
    RowContent,
    collect_lacking,
    collect_nulls,
    collect_row_contents,
    find_told_value,
)
from psql_streamer.testing.identities import KeptOfRow, collect_kept_of_rows, list_identities, list_kept_of_rows
from psql_streamer.testing.parts import PartContract, require_findings
from psql_streamer.testing.samples import with_absent_values, with_addresses, with_everything, with_row_fields
from psql_streamer.testing.stats import check_stats
from psql_streamer.testing.threads import call_in_a_thread, end_soon


class HandlerContract(PartContract[Handler]):
    """A subclass says how to make a handler, and which batches it can take."""

    _start_error = HandlerError

    @abstractmethod
    def make_handler(self) -> Handler:
        """A handler that has not been started."""

    @abstractmethod
    def make_batches(self) -> Sequence[Batch]:
        """Some that it can take, with changes."""

    def make_unreachable_handler(self) -> Handler | None:
        """One whose start fails: what it needs is not there. None where there is no such handler."""
        return None

    def test_what_it_gives_is_what_the_model_says(self) -> None:
        with self._make_started() as handler:
            for batch in self.make_batches():
                check_batch(handler.handle(batch))

    def test_the_position_and_the_identity_of_what_stays_are_kept(self) -> None:
        """And all else that a source said of it. Also its action: but an update may stay as the delete of its old
        key.
        """
        with self._make_started() as handler:
            for batch in map(with_row_fields, self.make_batches()):
                kept = collect_kept_of_rows(batch)
                handled = handler.handle(batch)
                assert handled.position == batch.position
                assert handled.source == batch.source
                assert set(list_identities(handled)) <= set(list_identities(batch))
                allowed = kept | {_as_delete(row) for row in kept if row.op == RowOp.UPDATE}
                _require_kept(collect_kept_of_rows(handled), allowed)
                for rejection in handled.rejections:
                    _require_kept(set(list_kept_of_rows(rejection.changes, handled.transactions)), allowed)

    def test_the_batch_that_it_is_given_stays_as_it_was(self) -> None:
        """Other sinks have it, too, and it comes again when it is tried again."""
        with self._make_started() as handler:
            for batch in self.make_batches():
                before = collect_kept_of_rows(batch), collect_row_contents([batch])
                handler.handle(batch)
                assert (collect_kept_of_rows(batch), collect_row_contents([batch])) == before, (
                    "handle alters the batch that it is given"
                )

    def test_what_a_new_row_lacks_is_not_said_to_be_null(self) -> None:
        """A value that an update left alone stays absent (Image.absent), unless the handler gives one."""
        with self._make_started() as handler:
            for batch in map(with_absent_values, self.make_batches()):
                lacking = collect_lacking(batch)
                handled = handler.handle(batch)
                check_batch(handled)
                assert not lacking & collect_nulls(handled), "Image.absent: a value that was left alone is null now"

    def test_addresses_that_a_handler_before_gave_are_not_lost(self) -> None:
        with self._make_started() as handler:
            for batch in map(with_addresses, self.make_batches()):
                for changes in handler.handle(batch).changes:
                    for image in (changes.after, changes.before):
                        assert image.addresses is not None or not len(image), (
                            "Image.addresses: where a handler before sends the event of a row is lost"
                        )

    def test_what_is_no_row_stays_as_it_is(self) -> None:
        with self._make_started() as handler:
            for batch in self.make_batches():
                given = with_everything(batch)
                _check_rest(handler.handle(given), given)

    def test_a_piece_of_a_batch_stays_one(self) -> None:
        with self._make_started() as handler:
            for batch in self.make_batches():
                for continues in (False, True):
                    handled = handler.handle(replace(batch, continues=continues))
                    assert handled.continues is continues, "Batch.continues stays"

    def test_rows_that_are_put_aside_are_announced(self) -> None:
        with self._make_started() as handler:
            aside = [rejection for batch in self.make_batches() for rejection in handler.handle(batch).rejections]
            assert not aside or handler.options.puts_rows_aside, "HandlerOptions.puts_rows_aside is False"

    def test_rows_that_are_put_aside_are_gone_and_the_reason_tells_no_values(self) -> None:
        with self._make_started() as handler:
            for batch in self.make_batches():
                handled = handler.handle(batch)
                for rejection in handled.rejections:
                    both = _find_kept_and_put_aside(handled, rejection)
                    assert not both, f"a row is put aside and stays: batch_order {sorted(both)}"
                    told = find_told_value([rejection.changes], rejection.reason)
                    assert told is None, "the reason of a rejection tells a value of the row"

    def test_rows_of_a_snapshot_stay_what_they_are(self) -> None:
        snapshot = SnapshotRows("first", on_demand=True)
        with self._make_started() as handler:
            for batch in self.make_batches():
                handled = handler.handle(as_read(batch, snapshot))
                check_batch(handled)
                assert handled.transactions.snapshots == {0: snapshot}

    def test_a_batch_comes_out_the_same_when_it_is_tried_again(self) -> None:
        with self._make_started() as handler:
            for batch in self.make_batches():
                first, again = handler.handle(batch), handler.handle(batch)
                assert list_identities(first) == list_identities(again)
                for one, other in zip(first.changes, again.changes, strict=True):
                    assert one.after.columns == other.after.columns

    def test_a_cold_start_gives_what_a_start_gives(self) -> None:
        with self._make_started() as handler:
            expected = self._collect_handled(handler)
        with self._make_started(cold=True) as handler:
            assert self._collect_handled(handler) == expected

    def test_a_batch_that_only_moves_the_position_passes(self) -> None:
        with self._make_started() as handler:
            batch = make_empty_batch()
            assert handler.handle(batch).position == batch.position

    def test_it_says_at_any_time_how_it_is(self) -> None:
        handler = self.make_handler()
        assert isinstance(handler.status(), Status)
        check_stats("handler", handler.stats())
        with self._make_started() as started:
            assert started.status().ok
            assert started.status().reason
            json.dumps(dict(started.stats()), default=str)
            check_stats("handler", started.stats())
        check_stats("handler", started.stats())

    def test_a_check_gives_findings(self) -> None:
        require_findings(self.make_handler().check(), "check")

    def test_a_review_gives_findings_and_leaves_what_it_does_as_it_was(self) -> None:
        with self._make_started() as handler:
            expected = self._collect_handled(handler)
        with self._make_started() as handler:
            require_findings(handler.review({}), "review")
            assert self._collect_handled(handler) == expected

    def test_it_is_told_first_whom_it_works_for_and_what_it_may_read(self) -> None:
        with self._make_started() as handler:
            expected = self._collect_handled(handler)
        handler = self.make_handler()
        handler.serve("contract", [batch.source.name for batch in self.make_batches()])
        handler.attach({}, None)
        try:
            call_in_a_thread(handler.start)
            assert self._collect_handled(handler) == expected
        finally:
            call_in_a_thread(handler.stop)

    def test_what_it_is_told_of_positions_does_not_wait(self) -> None:
        with self._make_started() as handler:
            for batch in self.make_batches():
                source, position = batch.source.name, batch.position
                end_soon(partial(handler.begin_stream, source, None), "begin_stream without a position")
                end_soon(partial(handler.begin_stream, source, position), "begin_stream")
                handler.handle(batch)
                end_soon(partial(handler.note_durable, source, position), "note_durable")

    def test_a_start_may_come_again_without_a_stop(self) -> None:
        """As the pipeline starts it again behind a HandlerUnavailable."""
        with self._make_started() as handler:
            expected = self._collect_handled(handler)
            call_in_a_thread(handler.start)
            assert self._collect_handled(handler) == expected, "a second start changes what handle gives"

    def test_it_takes_some_rows_of_some_batches(self) -> None:
        with self._make_started() as handler:
            for batch in self.make_batches():
                assert handler.batches_at_once >= 1, "batches_at_once: one at least"
                assert handler.most_rows is None or handler.most_rows >= 1, "most_rows: one at least"
                handler.handle(batch)

    def test_an_interrupt_comes_from_another_thread_and_does_not_wait(self) -> None:
        """A batch that comes out behind it is what it was without it."""
        with self._make_started() as handler:
            batches = self.make_batches()
            before = [handler.handle(batch) for batch in batches]
            end_soon(handler.interrupt, "interrupt")
            for batch, expected in zip(batches, before, strict=True):
                try:
                    handled = handler.handle(batch)
                except HandlerUnavailable:
                    continue
                assert collect_row_contents([handled]) == collect_row_contents([expected]), (
                    "an interrupt changes what handle gives"
                )
                _check_rest(handled, expected)

    def _collect_handled(self, handler: Handler) -> Sequence[RowContent]:
        """What it makes of the batches."""
        return collect_row_contents([handler.handle(batch) for batch in self.make_batches()])

    def _make(self) -> Handler:
        return self.make_handler()

    def _make_unreachable(self) -> Handler | None:
        return self.make_unreachable_handler()

    def _start_once(self, part: Handler) -> None:
        call_in_a_thread(part.start)

    @contextmanager
    def _make_started(self, cold: bool = False) -> Iterator[Handler]:
        handler = self.make_handler()
        try:
            call_in_a_thread(handler.start_cold if cold else handler.start)
            yield handler
        finally:
            call_in_a_thread(handler.stop)


def _as_delete(row: KeptOfRow) -> KeptOfRow:
    return row._replace(op=RowOp.DELETE)


def _require_kept(found: set[KeptOfRow], allowed: set[KeptOfRow]) -> None:
    """AssertionError, with what has changed, for rows that are none of those that are allowed."""
    if (other := next(iter(found - allowed), None)) is None:
        return
    alike = next((row for row in allowed if row.batch_order == other.batch_order), None)
    fields = [name for name in other._fields if alike is None or getattr(other, name) != getattr(alike, name)]
    raise AssertionError(f"what the source said of a row stays, and it is another: {', '.join(fields)}")


def _find_kept_and_put_aside(handled: Batch, rejection: Rejection) -> set[int]:
    """The batch_order of rows that are in both; an update that was put aside may stay as the delete of its old key."""
    aside, stay = rejection.changes, set[tuple[int, int]]()
    whole = np.ones(len(aside), np.bool_) if aside.part is None else aside.part["of"] == 0
    for changes in handled.changes:
        stay |= {(order, op) for order, op in zip(changes.batch_order.tolist(), changes.op.tolist(), strict=True)}
    rows = zip(aside.batch_order[whole].tolist(), aside.op[whole].tolist(), strict=True)
    return {
        order
        for order, op in rows
        if any((order, other) in stay for other in RowOp if not (op == RowOp.UPDATE and other is RowOp.DELETE))
    }


def _check_rest(handled: Batch, given: Batch) -> None:
    """AssertionError when something of a batch that is no row's has changed."""
    assert handled.truncates == given.truncates, "truncates stay"
    assert handled.messages == given.messages, "messages stay"
    assert handled.schema_changes == given.schema_changes, "schema changes stay"
    assert handled.statements == given.statements, "statements stay"
    assert _list_marks(handled.transaction_metadata) == _list_marks(given.transaction_metadata), (
        "transaction metadata stays"
    )
    assert handled.continues is given.continues, "Batch.continues stays"
    assert handled.received_at == given.received_at, "Batch.received_at stays"
    found, before = list(map(_describe_rejection, handled.rejections)), list(map(_describe_rejection, given.rejections))
    assert found[: len(before)] == before, "what handlers before have put aside stays, and stands in front"


def _list_marks(metadata: TransactionMetadata | None) -> list[object]:
    """Where transactions begin and end, and how many changes they have."""
    if metadata is None:
        return []
    both, counts = (metadata.begins, metadata.ends), metadata.counts
    marks = [array.tolist() for marks in both for array in (marks.tx, marks.batch_order)]
    return [*marks, *(array.tolist() for array in (counts.tx, counts.table, counts.count)), counts.tables]


def _describe_rejection(rejection: Rejection) -> tuple[str, str, str | None, list[int]]:
    return rejection.rule, rejection.reason, rejection.column, rejection.changes.batch_order.tolist()
