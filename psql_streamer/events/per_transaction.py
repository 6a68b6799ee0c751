"""Texts that events have of their transaction: the same for all changes of one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Fragment: TypeAlias = pa.Array | bytes
"""What stands at one place of every row's text: an element for each row, or the same bytes for all."""


class PerTransaction:
    """A text for each transaction of a batch. make: the texts of all, called when the first is asked for."""

    def __init__(self, make: Callable[[], pa.Array]) -> None:
        self._make = make
        self._texts: pa.Array | None = None

    def take(self, tx: NDArray[np.int32]) -> Fragment:
        """The text of each row, given its transaction; a constant when all rows are of one."""
        first, last = int(tx[0]), int(tx[-1])
        if not np.count_nonzero(tx != first):
            return self.get(first)
        if last - first + 1 == len(tx) and not np.count_nonzero(np.diff(tx) != 1):
            return self.all()[first : last + 1]  # transactions of one row
        return self.all().take(pa.array(tx))

    def get(self, index: int) -> bytes:
        """The text of one transaction."""
        return bytes(self.all()[index].as_py())

    def all(self) -> pa.Array:
        """The text of each transaction."""
        if self._texts is None:
            self._texts = self._make()
        return self._texts
