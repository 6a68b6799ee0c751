"""Many records of the format `event`, of one origin and about rows alone: what most batches of most topics are.

They are read by fields and not by records. The result is what `reader` makes of them one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from psql_streamer.event_reader.forms import (
    ACTIONS,
    NOT_OF_THE_FORMAT,
    UUID_LENGTH,
    Event,
    are_uuids,
    decode_event,
    find_snapshot,
)
from psql_streamer.event_reader.parsed import Message, NoEventError, Origin, RowNotes, Transaction, to_micros
from psql_streamer.model import NO_PLACE, POSTGRESQL, RowOp, SnapshotRows


class Plain(NamedTuple):
    """Records, read. events, notes: of each."""

    origin: Origin
    events: Sequence[Event]
    notes: RowNotes


def read_plain(messages: Sequence[Message]) -> Plain | None:
    """The fields; None for records that have to be read one by one."""
    try:
        events = [decode_event(message.value()) for message in messages]  # type: ignore[arg-type]  # None: TypeError
        return _read_fields(events)
    except (*NOT_OF_THE_FORMAT, TypeError, NoEventError, UnicodeEncodeError, RecursionError):
        return None


def _read_fields(events: Sequence[Event]) -> Plain | None:
    origins = {(event.Host, event.Database) for event in events}
    op = [ACTIONS.get(event.Action) for event in events]
    seq, place = [event.Seq for event in events], [event.WALPosition for event in events]
    commits, times = [event.CommitLSN for event in events], [event.Timestamp for event in events]
    uuids = [event.UUID.encode("ascii") for event in events]
    all_uuids = b"".join(uuids)
    snapshots: Sequence[SnapshotRows | None] = [None] * len(events)
    if any(event.Snapshot is not None for event in events):
        snapshots = [find_snapshot(event) for event in events]
        place = [_UNSAID if one is None and of else one for one, of in zip(place, snapshots, strict=True)]
    is_plain = (
        len(origins) == 1
        and set(op) <= _ROW_OPS
        and None not in seq
        and None not in place
        and (not all_uuids or (set(map(len, uuids)) == {UUID_LENGTH} and are_uuids(all_uuids, len(uuids))))
        and not any(map(_says_more, events))
    )
    if not is_plain:
        return None
    transactions, tx = _number_transactions(commits, times, [event.XID for event in events], snapshots)
    origin = Origin(POSTGRESQL, *origins.pop())
    notes = RowNotes(
        np.array(op, np.uint8),
        np.array(seq, np.int64),
        np.array(place, np.uint64),
        np.array(uuids, f"S{UUID_LENGTH}"),
        transactions,
        np.array(tx, np.int32),
    )
    return Plain(origin, events, notes)


def _says_more(event: Event) -> bool:
    """Whether it has a field that is not read here."""
    others = event.Part, event.File, event.Transaction, event.Place, event.Commit
    return bool(event.Unchanged) or others != _NONE_OF_THEM


_NONE_OF_THEM = (None,) * 5

_UNSAID = int(NO_PLACE)
_ROW_OPS: frozenset[object] = frozenset(RowOp)


def _number_transactions(
    commits: Sequence[int | None],
    times: Sequence[str | None],
    xids: Sequence[int | None],
    snapshots: Sequence[SnapshotRows | None],
) -> tuple[list[Transaction], list[int]]:
    """The transactions, and which of them each record is of. Raises TypeError for a record that does not say."""
    found: list[Transaction] = []
    tx = []
    last_commit, last_time, last_xid, last_snapshot = None, None, None, None
    for commit, time, xid, snapshot in zip(commits, times, xids, snapshots, strict=True):
        if commit != last_commit or time != last_time or xid != last_xid or snapshot != last_snapshot:
            if commit is None or time is None or (xid is None and snapshot is None):
                raise TypeError
            transaction = Transaction(commit, to_micros(time), None if xid is None else str(xid), snapshot)
            if found[-1:] != [transaction]:  # a moment may be written in several ways
                found.append(transaction)
            last_commit, last_time, last_xid, last_snapshot = commit, time, xid, snapshot
        tx.append(len(found) - 1)
    return found, tx
