"""The line between the rows of a chunk and the changes of the stream: which of these the rows have already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from psql_streamer.lsn import Lsn

_EPOCH = 1 << 32


class Line(Protocol):
    """What a chunk was read behind."""

    @property
    def at_us(self) -> int:
        """When it was read by the server's clock, microseconds since 1970-01-01 UTC."""

    @property
    def mark(self) -> Any:
        """Where the stream must have got before the rows are given; places of a source compare with each other."""

    def select_newer(self, transactions: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Of changes, each by its transaction (changed_keys.list_xids), which may be newer than what was read."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The Line of PostgreSQL: the snapshot of a reading transaction (pg_current_snapshot()), and the end of the WAL
    after it.

    xmin, xmax, xip: 64-bit transaction IDs of transactions, not of their subtransactions. lsn: every transaction that
    is visible has committed before it. at_us: when it was taken by the server's clock, microseconds since 1970-01-01
    UTC.
    """

    xmin: int
    xmax: int
    xip: tuple[int, ...]
    lsn: int
    at_us: int

    @property
    def mark(self) -> Lsn:
        """See Line.mark."""
        return Lsn(self.lsn)

    def select_newer(self, transactions: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """See Line.select_newer. transactions: xids, 32 bits."""
        return ~self.select_visible(self.widen(transactions))

    def select_visible(self, xids: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether the reading transaction sees what committed transactions did. xids: 64 bits."""
        running = np.array(self.xip, np.uint64)
        found: NDArray[np.bool_] = (xids < np.uint64(self.xmax)) & ~np.isin(xids, running)
        return found

    def widen(self, xids: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """The 64-bit transaction IDs nearest to xmax that end with these 32 bits; the stream has no others."""
        distance = (xids.astype(np.uint32) - np.uint32(self.xmax % _EPOCH)).view(np.int32).astype(np.int64)
        wide = distance + np.int64(self.xmax)
        return np.where(wide < 0, wide + _EPOCH, wide).astype(np.uint64)
