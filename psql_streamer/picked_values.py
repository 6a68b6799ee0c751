"""Values that stay in the arrays in which they lie, until somebody needs them in one of their own.

What a handler passes on lies in the table of cells that it was given. Putting it together with what was computed copies
every value, and writing events from it copies every value again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.binary_columns import measure_lengths

Places: TypeAlias = NDArray[np.int32] | NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PickedValues:
    """Values of one type. arrays: where they lie, one array at least. which: for each value its place among the
    elements of all arrays, one array behind the other, and -1 for a null; None: the values are the first array.
    """

    arrays: Sequence[pa.Array]
    which: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.arrays[0]) if self.which is None else len(self.which)

    def make_array(self) -> pa.Array:
        """The values as one array."""
        if self.which is None:
            return self.arrays[0]
        whole = self.arrays[0] if len(self.arrays) == 1 else pa.concat_arrays(self.arrays)
        return _take_or_null(whole, self.which)

    def take(self, at: Places) -> pa.Array:
        """The values at these places, in their order."""
        if self.which is None:
            # One may have 1 GB, and comes alone then.
            return self.arrays[0].slice(int(at[0]), 1) if len(at) == 1 else self.arrays[0].take(pa.array(at))
        which = self.which[at]
        ends = list(accumulate(map(len, self.arrays)))
        of_arrays = np.searchsorted(ends, which, side="right")
        used = np.unique(of_arrays).tolist() or [0]
        if len(used) == 1:
            return _take_or_null(self.arrays[used[0]], which - (ends[used[0]] - len(self.arrays[used[0]])))
        chosen, source = [], np.full(len(which), -1, np.int32)
        first = 0
        for number in used:
            mine = np.flatnonzero((of_arrays == number) & (which >= 0))
            begin = ends[number] - len(self.arrays[number])
            chosen.append(self.arrays[number].take(pa.array(which[mine] - begin)))
            source[mine] = np.arange(first, first + len(mine))
            first += len(mine)
        return _take_or_null(pa.concat_arrays(chosen), source)

    def number_elements(self, first: int) -> NDArray[np.int32]:
        """For each value the place of its element, where `first` stand before those of the arrays. Nulls that are no
        element have any.
        """
        return (
            np.arange(first, first + len(self), dtype=np.int32) if self.which is None else self.which + np.int32(first)
        )

    def count_elements(self) -> int:
        """How many elements the arrays have."""
        return sum(map(len, self.arrays))

    def measure_each(self) -> NDArray[np.int64]:
        """Bytes of each value; of arrays of the type `binary`."""
        lengths = np.concatenate([measure_lengths(array) for array in self.arrays])
        if self.which is None:
            return lengths
        return np.append(lengths, 0)[self.which]  # the last one stands for nulls, whose place is -1

    def find_nulls(self) -> NDArray[np.bool_] | None:
        """Which values are null; None where none is."""
        null = [_find_nulls(array) for array in self.arrays] if any(array.null_count for array in self.arrays) else None
        if self.which is None:
            return None if null is None else null[0]
        found: NDArray[np.bool_] = self.which < 0
        if null is not None:
            found |= np.concatenate(null)[self.which]
        return found if found.any() else None


def _find_nulls(array: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _take_or_null(array: pa.Array, which: Places) -> pa.Array:
    """Null where the place is below zero. Nobody checks that the others are in the array."""
    lacks = len(which) and int(which.min()) < 0
    return pc.take(array, pa.array(which, mask=which < 0) if lacks else pa.array(which), boundscheck=False)
