"""What the model says of a batch that a source has just read, beyond what it says of any batch."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from psql_streamer.model import OUTSIDE, Batch, Changes, RowOp
from psql_streamer.testing.checking import check_batch, check_size

_EARLIEST_COMMIT = 631_152_000_000_000
"""Microseconds from 1970 to 1990. A commit before that was counted in something else."""


def check_read_batch(batch: Batch) -> None:
    """AssertionError when a source cannot have read it."""
    check_batch(batch)
    check_size(batch)
    assert not batch.continues, "Batch.continues: a source makes no pieces"
    assert not batch.rejections, "Batch.rejections: a source puts nothing aside"
    assert batch.received_at <= time.monotonic(), "Batch.received_at: time.monotonic() when its last byte arrived"
    _check_times(batch)
    for changes in batch.changes:
        _check_old_keys(changes)


def list_actions(batches: Iterable[Batch]) -> list[str]:
    """What happened, in the order in which it did: the actions of rows, `truncate` and `message`."""
    found: list[tuple[int, int, str]] = []
    for number, batch in enumerate(batches):
        for changes in batch.changes:
            found += _list_row_actions(number, changes)
        found += [(number, truncate.batch_order, "truncate") for truncate in batch.truncates]
        found += [(number, message.batch_order, "message") for message in batch.messages]
    return [action for *_, action in sorted(found)]


def _check_times(batch: Batch) -> None:
    moments = batch.transactions.commit_ts
    wrong = (moments != 0) & (moments < _EARLIEST_COMMIT)
    assert not wrong.any(), "Transactions.commit_ts: microseconds since 1970-01-01 UTC"
    for message in batch.messages:
        assert message.seq == OUTSIDE or message.moment == moments[message.tx], "LogicalMessage.moment: of the commit"


def _check_old_keys(changes: Changes) -> None:
    image = changes.before
    for index in changes.relation.key_columns if changes.columns == changes.relation.columns else ():
        known = image.columns[index].is_valid().to_numpy(zero_copy_only=False)
        absent = image.absent.get(index, np.zeros(len(image), np.bool_))
        assert (known & ~absent).all(), f"{changes.relation}: an old row lacks its key"


def _list_row_actions(number: int, changes: Changes) -> list[tuple[int, int, str]]:
    names = {op: RowOp(op).action for op in np.unique(changes.op).tolist()}
    rows = zip(changes.batch_order.tolist(), changes.op.tolist(), strict=True)
    return [(number, order, names[op]) for order, op in rows]
