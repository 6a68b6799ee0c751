"""Several batches of one source as one, and one as several: for handlers whose cost is by the batch more than by the
row, before sinks whose memory is by the row. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.model import (
    Batch,
    Bounds,
    Changes,
    Column,
    Image,
    LogicalMessage,
    Rejection,
    Relation,
    SchemaChange,
    Tallies,
    Transactions,
    Truncate,
)

_Shape = tuple[Relation, tuple[Column, ...]]
_Single = TypeVar("_Single", Truncate, LogicalMessage, SchemaChange)


def merge(batches: Sequence[Batch]) -> Batch:
    """One batch with the changes of all, in their order; it ends where the last one does.

    batches: consecutive ones of one source, at least one. Changes of one relation in one shape become one Changes.
    """
    if len(batches) == 1:
        return batches[0]
    rows_before = np.cumsum([0, *(_next_ordinal(batch) for batch in batches[:-1])]).tolist()
    transactions_before = np.cumsum([0, *(len(batch.transactions) for batch in batches[:-1])]).tolist()
    shapes: dict[_Shape, list[Changes]] = {}
    truncates: list[Truncate] = []
    messages: list[LogicalMessage] = []
    schema_changes: list[SchemaChange] = []
    rejections: list[Rejection] = []
    for batch, rows, transactions in zip(batches, rows_before, transactions_before, strict=True):
        for changes in batch.changes:
            shapes.setdefault((changes.relation, changes.columns), []).append(_moved(changes, rows, transactions))
        truncates += _moved_singles(batch.truncates, rows, transactions)
        messages += _moved_singles(batch.messages, rows, transactions)
        schema_changes += _moved_singles(batch.schema_changes, rows, transactions)
        rejections += (replace(one, changes=_moved(one.changes, rows, transactions)) for one in batch.rejections)
    merged = replace(
        batches[-1],
        transactions=_all_transactions(batches, transactions_before),
        changes=tuple(map(_concatenated, shapes.values())),
        truncates=tuple(truncates),
        messages=tuple(messages),
        schema_changes=tuple(schema_changes),
        begins=_all_bounds([batch.begins for batch in batches], rows_before, transactions_before),
        ends=_all_bounds([batch.ends for batch in batches], rows_before, transactions_before),
        tallies=_all_tallies([batch.tallies for batch in batches], transactions_before),
        rejections=tuple(rejections),
        received_at=batches[0].received_at,
    )
    return replace(merged, nbytes=merged.overhead + sum(batch.nbytes - batch.overhead for batch in batches))


def cut(batch: Batch, rows: int) -> Iterator[Batch]:
    """The batch in pieces of about `rows` changes, in order; it is done when the last piece is."""
    end = _next_ordinal(batch)
    if end <= rows:
        yield batch
        return
    for first in range(0, end, rows):
        last = first + rows
        changes = [_between(part, first, last) for part in batch.changes]
        yield replace(
            batch,
            changes=tuple(part for part in changes if len(part)),
            truncates=tuple(event for event in batch.truncates if first <= event.ordinal < last),
            messages=tuple(event for event in batch.messages if first <= event.ordinal < last),
            # The change that follows may be in the next batch.
            schema_changes=tuple(
                event for event in batch.schema_changes if first <= min(event.ordinal, end - 1) < last
            ),
            begins=_bounds_between(batch.begins, batch.begins.ordinal, first, last),
            # An end goes with the change before it, if there is one.
            ends=_bounds_between(batch.ends, np.maximum(batch.ends.ordinal - 1, 0), first, last),
            rejections=tuple(_rejections_between(batch.rejections, first, last)),
            nbytes=batch.nbytes * rows // end,
        )


def _next_ordinal(batch: Batch) -> int:
    """The first ordinal that is free behind a batch: changes that were dropped leave gaps."""
    parts = [*batch.changes, *(rejection.changes for rejection in batch.rejections)]
    largest = [int(changes.ordinal.max(initial=-1)) for changes in parts]
    single = [truncate.ordinal for truncate in batch.truncates] + [message.ordinal for message in batch.messages]
    begins, ends = batch.begins.ordinal.max(initial=-1), batch.ends.ordinal.max(initial=0)
    return max(max([*largest, *single, int(begins)]) + 1, int(ends))


def _moved(changes: Changes, rows: int, transactions: int) -> Changes:
    return replace(changes, ordinal=changes.ordinal + rows, tx=changes.tx + np.int32(transactions))


def _moved_singles(singles: Iterable[_Single], rows: int, transactions: int) -> Iterator[_Single]:
    """A message outside of a transaction (tx -1) stays outside."""
    for single in singles:
        tx = single.tx + transactions if single.tx >= 0 else -1
        yield replace(single, ordinal=single.ordinal + rows, tx=tx)


def _all_transactions(batches: Sequence[Batch], before_each: list[int]) -> Transactions:
    parts = [batch.transactions for batch in batches]
    return Transactions(
        np.concatenate([part.commit_lsn for part in parts]),
        np.concatenate([part.xid for part in parts]),
        np.concatenate([part.commit_ts for part in parts]),
        {
            before + tx: origin
            for part, before in zip(parts, before_each, strict=True)
            for tx, origin in part.origins.items()
        },
    )


def _all_bounds(parts: Sequence[Bounds], rows_before: list[int], transactions_before: list[int]) -> Bounds:
    return Bounds(
        np.concatenate([part.tx + np.int32(before) for part, before in zip(parts, transactions_before, strict=True)]),
        np.concatenate([part.ordinal + before for part, before in zip(parts, rows_before, strict=True)]),
    )


def _all_tallies(parts: Sequence[Tallies], transactions_before: list[int]) -> Tallies:
    tables_before = np.cumsum([0, *(len(part.tables) for part in parts[:-1])]).tolist()
    return Tallies(
        np.concatenate([part.tx + np.int32(before) for part, before in zip(parts, transactions_before, strict=True)]),
        np.concatenate([part.table + before for part, before in zip(parts, tables_before, strict=True)]),
        np.concatenate([part.count for part in parts]),
        tuple(chain.from_iterable(part.tables for part in parts)),
    )


def _bounds_between(bounds: Bounds, places: NDArray[np.int64], first: int, last: int) -> Bounds:
    inside = (places >= first) & (places < last)
    return Bounds(bounds.tx[inside], bounds.ordinal[inside])


def _concatenated(parts: list[Changes]) -> Changes:
    if len(parts) == 1:
        return parts[0]
    rows_before = np.cumsum([0, *map(len, parts[:-1])]).tolist()
    return replace(
        parts[0],
        ordinal=np.concatenate([part.ordinal for part in parts]),
        op=np.concatenate([part.op for part in parts]),
        seq=np.concatenate([part.seq for part in parts]),
        lsn=np.concatenate([part.lsn for part in parts]),
        tx=np.concatenate([part.tx for part in parts]),
        tally=np.concatenate([part.tally for part in parts]),
        after=_images([part.after for part in parts], rows_before),
        before=_images([part.before for part in parts], rows_before),
    )


def _images(images: list[Image], rows_before: list[int]) -> Image:
    columns = tuple(pa.concat_arrays(arrays) for arrays in zip(*(image.columns for image in images), strict=True))
    rows = np.concatenate([image.rows + before for image, before in zip(images, rows_before, strict=True)])
    absent = {column: _mask(images, column) for column in sorted({key for image in images for key in image.absent})}
    return Image(columns, rows, absent)


def _mask(images: list[Image], column: int) -> NDArray[np.bool_]:
    return np.concatenate([image.absent.get(column, np.zeros(len(image), np.bool_)) for image in images])


def _between(changes: Changes, first: int, last: int) -> Changes:
    """The rows whose ordinals lie in [first, last); ordinals increase."""
    begin, end = np.searchsorted(changes.ordinal, (first, last)).tolist()
    if begin == 0 and end == len(changes):
        return changes
    return replace(
        changes,
        ordinal=changes.ordinal[begin:end],
        op=changes.op[begin:end],
        seq=changes.seq[begin:end],
        lsn=changes.lsn[begin:end],
        tx=changes.tx[begin:end],
        tally=changes.tally[begin:end],
        after=_part(changes.after, begin, end),
        before=_part(changes.before, begin, end),
    )


def _rejections_between(rejections: Iterable[Rejection], first: int, last: int) -> Iterator[Rejection]:
    for rejection in rejections:
        changes = _between(rejection.changes, first, last)
        if len(changes):
            yield replace(rejection, changes=changes)


def _part(image: Image, begin: int, end: int) -> Image:
    first, last = np.searchsorted(image.rows, (begin, end)).tolist()
    absent = {column: mask[first:last] for column, mask in image.absent.items() if mask[first:last].any()}
    return Image(tuple(array[first:last] for array in image.columns), image.rows[first:last] - begin, absent)
