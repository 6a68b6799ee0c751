"""The line between the rows of a chunk and the changes of a binary log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psql_streamer.model import Batch, Position
from sources.mysql.places import LogPlace


@dataclass(frozen=True, slots=True)
class BinlogLine:
    """See Line. mark: where the binary log ended behind the reading.

    What the stream gives between the chunk's begin and its rows is newer than what was read, or the same; so all of it
    counts as newer.
    """

    mark: LogPlace
    at_us: int

    def select_newer(self, transactions: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """See Line.select_newer."""
        return np.ones(len(transactions), np.bool_)


@dataclass(frozen=True, slots=True)
class Latest:
    """What was given last. position: behind it. reached: where the stream stood then, or later. inside: whether that is
    where a transaction begins, or before, of which a part was given.
    """

    position: Position
    reached: LogPlace
    inside: bool


class GivenBatches:
    """See Given."""

    def __init__(self) -> None:
        self.turn = 0
        self.latest: Latest | None = None
        self._stands = LogPlace(0, 0), False

    def begin(self, latest: Latest) -> None:
        """What was given before the session."""
        self.latest = latest

    def stand(self, reached: LogPlace, inside: bool) -> None:
        """Where the stream stands when the next batch is given. See Latest."""
        self._stands = reached, inside

    def note_batch(self, batch: Batch) -> None:
        """See Given.note_batch."""
        self.turn += 1
        self.latest = Latest(batch.position, *self._stands)
