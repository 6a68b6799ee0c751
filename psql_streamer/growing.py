"""An array of numbers that grows at its end, each time at the cost of what is added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Number = TypeVar("Number", bound=np.generic)

_FIRST_ROOM = 16


class GrowingArray(Generic[Number]):
    """Numbers in the order in which they were added. kind: their type.

    `array` is a view of them. Those that were given before stay as they are: nothing is written where they reach.
    """

    def __init__(self, kind: type[Number]) -> None:
        self._room: NDArray[Number] = np.empty(_FIRST_ROOM, kind)
        self.array: NDArray[Number] = self._room[:0]

    def extend(self, more: Sequence[int] | Sequence[bool] | ArrayLike) -> NDArray[Number]:
        """All of them, with more at the end."""
        added = np.asarray(more, self._room.dtype)
        held = len(self.array)
        end = held + len(added)
        if end > len(self._room):
            room = np.empty(2 * end, self._room.dtype)
            room[:held] = self.array
            self._room = room
        self._room[held:end] = added
        self.array = self._room[:end]
        return self.array
