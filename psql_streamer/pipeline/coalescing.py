"""Several batches of one source as one, and one as several: for handlers whose cost is by the batch more than by the
row, before sinks whose memory is by the row. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import numpy as np

from psql_streamer.cells import NO_CELLS, CellTable, convert_to_cells
from psql_streamer.model import (
    Batch,
    Changes,
    Index,
    LogicalMessage,
    Rejection,
    SchemaChange,
    Shift,
    TableStatement,
    TransactionMetadata,
    Transactions,
    Truncate,
    measure_batch_overhead,
)

_Single = TypeVar("_Single", Truncate, LogicalMessage, SchemaChange, TableStatement)


def merge(batches: Sequence[Batch]) -> Batch:
    """One batch with the changes of all, in their order; it ends where the last one does.

    batches: consecutive ones of one source, at least one. Changes of one relation in one shape become one Changes.
    """
    if len(batches) == 1:
        return batches[0]
    shifts = _compute_shifts(batches)
    truncates: list[Truncate] = []
    messages: list[LogicalMessage] = []
    schema_changes: list[SchemaChange] = []
    statements: list[TableStatement] = []
    rejections: list[Rejection] = []
    for batch, by in zip(batches, shifts, strict=True):
        truncates += _shift_singles(batch.truncates, by)
        messages += _shift_singles(batch.messages, by)
        schema_changes += _shift_singles(batch.schema_changes, by)
        statements += _shift_singles(batch.statements, by)
        rejections += (
            replace(rejection, changes=_shift_changes(rejection.changes, by)) for rejection in batch.rejections
        )
    merged = replace(
        batches[-1],
        transactions=_join_transactions(batches, shifts),
        changes=CellTable.concat(
            [convert_to_cells(batch.changes).shift_rows(by) for batch, by in zip(batches, shifts, strict=True)]
        ),
        truncates=tuple(truncates),
        messages=tuple(messages),
        schema_changes=tuple(schema_changes),
        statements=tuple(statements),
        transaction_metadata=_join_metadata(batches, shifts),
        rejections=tuple(rejections),
        received_at=batches[0].received_at,
    )
    return replace(merged, nbytes=merged.overhead + sum(batch.nbytes - batch.overhead for batch in batches))


def cut(batch: Batch, rows: int) -> Iterator[Batch]:
    """The batch in pieces of about `rows` changes, in order; it is done when the last piece is (Batch.continues)."""
    cells, bounds = _compute_bounds(batch, rows)
    return iter([batch]) if len(bounds) < 2 else _make_pieces(batch, cells, bounds)


def cut_off(batch: Batch, rows: int | None) -> tuple[Batch, Batch | None]:
    """The first piece of about `rows` changes, and what is behind it. rows: None for all of them."""
    if rows is None:
        return batch, None
    cells, bounds = _compute_bounds(batch, rows)
    if len(bounds) < 2:
        return batch, None
    head, tail = _make_pieces(batch, cells, [bounds[0], (bounds[1][0], bounds[-1][1])])
    return head, tail


def _make_pieces(batch: Batch, changes: CellTable, bounds: Sequence[tuple[int, int]]) -> Iterator[Batch]:
    metadata, end = batch.transaction_metadata, bounds[-1][1]
    held = max(0, batch.nbytes - batch.overhead)
    for first, last in bounds:
        piece = changes.select_between(first, last)
        share = piece.rows / changes.rows if changes.rows else (last - first) / end
        yield replace(
            batch,
            changes=piece,
            truncates=tuple(event for event in batch.truncates if first <= event.batch_order < last),
            messages=tuple(event for event in batch.messages if first <= event.batch_order < last),
            # The change that follows them may be in the next batch.
            schema_changes=tuple(
                event for event in batch.schema_changes if first <= min(event.batch_order, end - 1) < last
            ),
            statements=tuple(event for event in batch.statements if first <= min(event.batch_order, end - 1) < last),
            transaction_metadata=metadata and metadata.slice(first, last),
            rejections=tuple(_select_rejections(batch.rejections, first, last)),
            nbytes=measure_batch_overhead(piece) + int(held * share),
            continues=batch.continues or last < end,
        )


def _compute_bounds(batch: Batch, rows: int) -> tuple[CellTable, Sequence[tuple[int, int]]]:
    """The changes, and ranges of batch orders of at most as many rows, of which the first begins at 0. More rows where
    a single change has more parts; no ranges for a batch that is small as a whole.
    """
    end = _find_next_batch_order(batch)
    if max(end, batch.rows.rows) <= rows:
        return NO_CELLS, []
    changes = convert_to_cells(batch.changes)
    orders, found = changes.batch_order, []
    first, last = 0, _find_first_batch_order(batch, orders, end)
    while last < end:
        behind = int(np.searchsorted(orders, last)) + rows
        most = last + rows
        last = max(last + 1, min(most, int(orders[behind]))) if behind < len(orders) else most
        found.append((first, min(last, end)))
        first = last
    return changes, found


def _find_first_batch_order(batch: Batch, orders: Index, end: int) -> int:
    """The first batch_order that is taken: a piece of a batch begins where the one before it has ended."""
    aside = [int(rejection.changes.batch_order.min(initial=end)) for rejection in batch.rejections]
    truncates = [one.batch_order for one in batch.truncates]
    messages = [one.batch_order for one in batch.messages]
    return min([*aside, *truncates, *messages, int(orders[0]) if len(orders) else end, max(0, end - 1)])


def _compute_shifts(batches: Sequence[Batch]) -> Sequence[Shift]:
    rows = np.cumsum([0, *(_find_next_batch_order(batch) for batch in batches[:-1])]).tolist()
    news = [len(batch.transactions) if new else 0 for batch, new in zip(batches, _find_ends(batches), strict=True)]
    transactions = np.cumsum([0, *news[:-1]]).tolist()
    return [Shift(*both) for both in zip(rows, transactions, strict=True)]


def _find_ends(batches: Sequence[Batch]) -> Sequence[bool]:
    """Whether the next one has transactions of its own: pieces of a batch share theirs."""
    return [*(one.transactions is not other.transactions for one, other in pairwise(batches)), True]


def _join_transactions(batches: Sequence[Batch], shifts: Sequence[Shift]) -> Transactions:
    last = [(batch, by) for batch, by, end in zip(batches, shifts, _find_ends(batches), strict=True) if end]
    return Transactions.concat([batch.transactions for batch, _ in last], [by for _, by in last])


def _find_next_batch_order(batch: Batch) -> int:
    """The first batch_order that is free behind a batch: changes that were dropped leave gaps."""
    aside = [int(rejection.changes.batch_order.max(initial=-1)) for rejection in batch.rejections]
    single = [truncate.batch_order for truncate in batch.truncates] + [
        message.batch_order for message in batch.messages
    ]
    metadata = batch.transaction_metadata or TransactionMetadata()
    begins, ends = metadata.begins.batch_order.max(initial=-1), metadata.ends.batch_order.max(initial=0)
    return max(batch.rows.next_batch_order, max([*aside, *single, int(begins)]) + 1, int(ends))


def _shift_changes(changes: Changes, by: Shift) -> Changes:
    return replace(changes, batch_order=changes.batch_order + by.rows, tx=changes.tx + np.int32(by.transactions))


def _shift_singles(singles: Iterable[_Single], by: Shift) -> Iterator[_Single]:
    """A message outside of a transaction (tx -1) stays outside."""
    for single in singles:
        tx = single.tx + by.transactions if single.tx >= 0 else -1
        yield replace(single, batch_order=single.batch_order + by.rows, tx=tx)


def _join_metadata(batches: Sequence[Batch], shifts: Sequence[Shift]) -> TransactionMetadata | None:
    """None where no batch has any. Rows of snapshots are of no transaction, so their batches may have none."""
    if all(batch.transaction_metadata is None for batch in batches):
        return None
    return TransactionMetadata.concat(
        [batch.transaction_metadata or TransactionMetadata() for batch in batches], shifts
    )


def _slice_batch_orders(changes: Changes, first: int, last: int) -> Changes:
    """The rows whose batch order lies in [first, last); it increases."""
    begin, end = np.searchsorted(changes.batch_order, (first, last)).tolist()
    return changes.slice(begin, end)


def _select_rejections(rejections: Iterable[Rejection], first: int, last: int) -> Iterator[Rejection]:
    for rejection in rejections:
        changes = _slice_batch_orders(rejection.changes, first, last)
        if len(changes):
            yield replace(rejection, changes=changes)
