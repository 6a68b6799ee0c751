"""What the stream has given, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from psql_streamer import batching
from psql_streamer.model import Batch
from psql_streamer.snapshot.changed_keys import list_xids
from psql_streamer.snapshot.fence import Fence

_REMEMBERED_TRANSACTIONS = 1 << 18
"""Transactions that are remembered: the last ones, by xid."""


class Given(Protocol):
    """What a stream has given. turn: how many batches. latest: what a chunk that is begun now must see, if anything.

    Not for several threads: the caller has a lock.
    """

    turn: int
    latest: Any

    def note_batch(self, batch: Batch) -> None:
        """The next batch is given."""


class Delivered:
    """The transactions of a stream, each with the turn in which its first change came. A turn is a batch, from 1.

    A commit may be streamed before others can see it: while it waits for a synchronous standby, for one. A chunk that
    is read then has the row as it was before, though the change was given before the chunk was asked for; nothing would
    tell that the row is stale. So such a chunk is not read before all that was given can be seen.

    Not for several threads: the caller has a lock.
    """

    def __init__(self) -> None:
        self.turn = 0
        self.latest: int | None = None  # of the xids that were given, the greatest; 32 bits
        self._xid = np.zeros(_REMEMBERED_TRANSACTIONS, np.uint32)  # 0 is no transaction's (InvalidTransactionId)
        self._turn = np.zeros(_REMEMBERED_TRANSACTIONS, np.int64)

    def note_batch(self, batch: Batch) -> None:
        """See Given.note_batch."""
        self.note(list_xids(batch.transactions))

    def note(self, xids: NDArray[np.uint32]) -> None:
        """The next batch has changes of these transactions."""
        self.turn += 1
        if not len(xids):
            return
        if len(xids) <= batching.FEW_ROWS:
            self._remember_one_by_one(xids.tolist())
        else:
            self._remember(xids)

    def _remember(self, xids: NDArray[np.uint32]) -> None:
        at = xids % np.uint32(_REMEMBERED_TRANSACTIONS)
        new = self._xid[at] != xids
        self._xid[at[new]] = xids[new]
        self._turn[at[new]] = self.turn
        self._note_latest(_find_greatest(xids))

    def _remember_one_by_one(self, xids: Sequence[int]) -> None:
        """The same: most batches of a quiet database have a few transactions."""
        for xid in xids:
            if not self._is_known(xid):
                at = xid % _REMEMBERED_TRANSACTIONS
                self._xid[at], self._turn[at] = xid, self.turn
            self._note_latest(xid)

    def _note_latest(self, xid: int) -> None:
        if self.latest is None or _is_later(xid, self.latest):
            self.latest = xid

    def find_hidden_since(self, fence: Fence, turn: int, latest: int | None) -> set[int]:
        """The transactions that were given until a turn, and are not visible behind the fence. 64-bit xids.

        latest: of the xids that were given until that turn.
        """
        hidden = {xid for xid in fence.xip if self._was_given(xid, turn)}
        if latest is not None and (widened := int(fence.widen(np.array([latest], np.uint32))[0])) >= fence.xmax:
            hidden.add(widened)
        return hidden

    def find_unknown(self, fence: Fence, since: int) -> set[int]:
        """The transactions in progress of which nobody knows whether the stream gave them: before this process began,
        or so long ago that it is forgotten.

        since: the xid that came next then, 64 bits; 0 where nothing was given before.
        """
        latest = since if self.latest is None else int(fence.widen(np.array([self.latest], np.uint32))[0])
        oldest = max(since, latest - _REMEMBERED_TRANSACTIONS + 1)
        return {xid for xid in fence.xip if xid < oldest and not self._is_known(xid)}

    def _was_given(self, xid: int, turn: int) -> bool:
        return self._is_known(xid) and int(self._turn[xid % _REMEMBERED_TRANSACTIONS]) <= turn

    def _is_known(self, xid: int) -> bool:
        return int(self._xid[xid % _REMEMBERED_TRANSACTIONS]) == xid & 0xFFFF_FFFF


def _find_greatest(xids: NDArray[np.uint32]) -> int:
    """By the order of xids, which goes in circles: all of them are within half of it."""
    first = xids[0]
    ahead = (xids - first).view(np.int32)
    return int(xids[int(np.argmax(ahead))])


def _is_later(xid: int, other: int) -> bool:
    return 0 < (xid - other) & 0xFFFF_FFFF < 1 << 31
