"""Texts that events have of their transaction: the same for all changes of one transaction."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Fragment: TypeAlias = pa.Array | bytes
"""What stands at one place of every row's text: an element for each row, or the same bytes for all. Texts that many
rows share come as a pa.DictionaryArray: `join` picks them, and nobody copies them before.
"""


class PerTransaction:
    """A text for each transaction of a batch."""

    def __init__(self, texts: pa.Array) -> None:
        self._texts = texts

    def take(self, tx: NDArray[np.int32]) -> Fragment:
        """The text of each row, given its transaction; a constant when all rows are of one."""
        first, last = int(tx[0]), int(tx[-1])
        if not np.count_nonzero(tx != first):
            return self.get(first)
        if last - first + 1 == len(tx) and not np.count_nonzero(np.diff(tx) != 1):
            return self._texts[first : last + 1]  # transactions of one row
        return pa.DictionaryArray.from_arrays(pa.array(tx), self._texts)

    def get(self, index: int) -> bytes:
        """The text of one transaction."""
        return bytes(self._texts[index].as_py())

    def list_texts(self) -> pa.Array:
        """The text of each transaction."""
        return self._texts


def cache_per_transaction(make: Callable[[Any], pa.Array]) -> cached_property[PerTransaction]:
    """A method that gives the texts of all transactions, as an attribute: it is called when the first is asked for.

    An object that held its own method would stay, with the batch, until the garbage collector runs.
    """
    return cached_property(lambda of_batch: PerTransaction(make(of_batch)))
