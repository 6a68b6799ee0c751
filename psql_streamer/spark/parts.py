"""Some of the rows of Changes, and how large rows are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.binary_columns import offsets
from psql_streamer.model import Changes, Image

Chosen = NDArray[np.bool_]


def part(changes: Changes, chosen: Chosen) -> Changes:
    """The chosen rows, with their images. chosen: an element a row."""
    if chosen.all():
        return changes
    return replace(
        changes,
        ordinal=changes.ordinal[chosen],
        op=changes.op[chosen],
        seq=changes.seq[chosen],
        lsn=changes.lsn[chosen],
        tx=changes.tx[chosen],
        tally=changes.tally[chosen],
        after=_part(changes.after, chosen),
        before=_part(changes.before, chosen),
    )


def sizes(changes: Changes) -> NDArray[np.int64]:
    """Bytes of each row, in all its images."""
    found = np.zeros(len(changes), np.int64)
    for image in (changes.after, changes.before):
        for column in image.columns:
            found[image.rows] += _lengths(column)
    return found


def _part(image: Image, chosen: Chosen) -> Image:
    kept = chosen[image.rows]
    number = np.cumsum(chosen) - 1
    at = pa.array(np.flatnonzero(kept))
    absent = {column: mask[kept] for column, mask in image.absent.items() if mask[kept].any()}
    return Image(tuple(array.take(at) for array in image.columns), number[image.rows[kept]], absent)


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    """What another handler made is as large as the average of its column."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return np.diff(offsets(column)).astype(np.int64)
    return np.full(len(column), column.nbytes // max(1, len(column)), np.int64)
