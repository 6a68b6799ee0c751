"""First phase: where the images of rows begin, and how long their cells are that have no fixed length.

Rows in an event have no lengths. A walker goes from one to the next: over the NULL bitmap, the cells of fixed length,
and those with a length in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from psql_streamer.binlog.layouts import Layout, LayoutArrays
from psql_streamer.cells import ragged
from psql_streamer.errors import ProtocolError
from psql_streamer.model import Index

RowsPart: TypeAlias = tuple[int, int, tuple[Layout, ...], str]
"""The images of one rows event: where in the block they begin and end, the layouts of the images of a row in turn, and
the table's name.
"""


@dataclass(frozen=True, slots=True)
class WalkedImages:
    """All images, one behind the other. at: where each begins. images: how many each part has. lengths: of the cells
    with a length, in their order.
    """

    at: Index
    images: Index
    lengths: Index


def walk(data: bytes, parts: Sequence[RowsPart]) -> WalkedImages:
    """ProtocolError where an image does not end with its event."""
    at: list[int] = []
    lengths: list[int] = []
    images: list[int] = []
    for part in parts:
        before = len(at)
        try:
            _walk_part(data, part, at, lengths)
        except IndexError:
            raise _too_long(part[-1]) from None
        images.append(len(at) - before)
    return WalkedImages(np.array(at, np.int64), np.array(images, np.int64), np.array(lengths, np.int64))


def _walk_part(data: bytes, part: RowsPart, starts: list[int], lengths: list[int]) -> None:
    cursor, end, layouts, name = part
    while cursor < end:
        for layout in layouts:
            starts.append(cursor)
            behind = cursor + layout.nulls
            variable, rest = layout.steps(data[cursor:behind])
            cursor = behind
            for skip, prefix in variable:
                cursor += skip
                length = data[cursor] if prefix == 1 else int.from_bytes(data[cursor : cursor + prefix], "little")
                lengths.append(length)
                cursor += prefix + length
            cursor += rest
            if cursor > end:
                raise _too_long(name)
            if cursor == starts[-1]:
                raise ProtocolError(f"a rows event of {name} has rows without columns")


def _too_long(name: str) -> ProtocolError:
    return ProtocolError(f"a row of {name} is longer than its event")


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of all images. begins: where those of each image begin, and where the last one's end.

    start, end: in the block; of cells that are NULL or absent they mean nothing. kind: number of the cell type.
    """

    begins: Index
    start: Index
    end: Index
    kind: NDArray[np.uint16]
    null: NDArray[np.bool_]
    absent: NDArray[np.bool_] | None


def find_cells(data: NDArray[np.uint8], walked: WalkedImages, layout: Index, arrays: LayoutArrays) -> Cells:
    """layout: the number of each image's."""
    columns = arrays.columns[layout]
    begins = np.zeros(len(layout) + 1, np.int64)
    np.cumsum(columns, out=begins[1:])
    which = ragged(arrays.first[layout], begins)
    bit = arrays.bit[which]
    absent = bit < 0
    bit[absent] = 0
    null = (data[np.repeat(walked.at, columns) + (bit >> 3)] >> (bit & 7).astype(np.uint8) & 1).view(np.bool_)
    null |= absent
    prefix, size = arrays.prefix[which], arrays.width[which]
    prefix[null] = 0
    size[null] = 0
    variable = np.flatnonzero(prefix)
    size[variable] = walked.lengths + prefix[variable]
    end = np.cumsum(size)
    before = np.append(0, end)[begins[:-1]]
    end += np.repeat(walked.at + arrays.nulls[layout] - before, columns)
    start = end - size + prefix
    return Cells(begins, start, end, arrays.kind[which], null, absent if absent.any() else None)
