"""The option `verbose` of a source: a line of the log for each change, which names it and shows no value."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from psql_streamer.events.source_fields import choose_fields
from psql_streamer.model import OUTSIDE, Batch, Marker, RowOp
from psql_streamer.name_counts import show_name


def log_changes(log: logging.Logger, source: str, batch: Batch) -> None:
    """A line for each, in their order."""
    fields = choose_fields(batch.source)
    for _, what, action, commit, seq in sorted(_list_changes(batch)):
        log.info("%s: read %s of %s, commit %s, change %d", source, action, what, fields.show_commit(commit), seq)


def _list_changes(batch: Batch) -> Iterator[tuple[int, str, str, int, int]]:
    """(place in the batch, table or prefix, action, commit number, number in the transaction) of each."""
    commits = batch.transactions.commit.tolist()
    for changes in batch.changes:
        table = str(changes.relation)
        of_rows = (changes.batch_order, changes.op, changes.tx, changes.seq)
        for order, op, tx, seq in zip(*(of.tolist() for of in of_rows), strict=True):
            yield order, table, RowOp(op).action, commits[tx], seq
    for truncate in batch.truncates:
        order, seq = truncate.batch_order, truncate.seq
        yield order, str(truncate.relation), Marker.TRUNCATE.action, commits[truncate.tx], seq
    for message in batch.messages:
        commit = message.place if message.seq == OUTSIDE else commits[message.tx]
        prefix = f'prefix "{show_name(message.prefix)}"'
        yield message.batch_order, prefix, Marker.MESSAGE.action, commit, message.seq
