"""Some of the rows of Changes, and how large rows are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from psql_streamer.binary_columns import measure_lengths
from psql_streamer.model import Changes

Chosen = NDArray[np.bool_]


def take_rows(changes: Changes, chosen: Chosen) -> Changes:
    """The chosen rows, with their images. chosen: an element a row."""
    return changes.take(np.flatnonzero(chosen))


def measure_rows(changes: Changes) -> NDArray[np.int64]:
    """Bytes of each row, in all its images."""
    found = np.zeros(len(changes), np.int64)
    for image in (changes.after, changes.before):
        for column in image.columns:
            found[image.rows] += measure_lengths(column)
    return found
