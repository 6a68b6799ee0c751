"""Some of the rows of Changes, and how large rows are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.binary_columns import offsets
from psql_streamer.model import Changes

Chosen = NDArray[np.bool_]


def part(changes: Changes, chosen: Chosen) -> Changes:
    """The chosen rows, with their images. chosen: an element a row."""
    return changes.take(np.flatnonzero(chosen))


def sizes(changes: Changes) -> NDArray[np.int64]:
    """Bytes of each row, in all its images."""
    found = np.zeros(len(changes), np.int64)
    for image in (changes.after, changes.before):
        for column in image.columns:
            found[image.rows] += _lengths(column)
    return found


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    """What another handler made is as large as the average of its column."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return np.diff(offsets(column)).astype(np.int64)
    return np.full(len(column), column.nbytes // max(1, len(column)), np.int64)
