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

from psql_streamer.binlog.cell_bytes import Block
from psql_streamer.binlog.layouts import Layout, LayoutArrays
from psql_streamer.binlog.lockstep import LEAST_LANES, Lanes, Walked, walk_side_by_side
from psql_streamer.cells import expand_ranges
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


def walk(block: Block, parts: Sequence[RowsPart]) -> WalkedImages:
    """ProtocolError where an image does not end with its event."""
    alone, groups = _group(parts)
    walked = []
    for layouts, members in groups.items():
        begins, ends = np.array([parts[member][:2] for member in members], np.int64).T
        lanes = Lanes(np.array(members, np.int64), begins, ends, parts[members[0]][-1])
        found, left = walk_side_by_side(block, lanes, layouts)
        walked += found
        for part, cursor in zip(left.part.tolist(), left.cursor.tolist(), strict=True):
            alone.append((part, cursor))
    walked.append(_walk_alone(block.data, parts, alone))
    return _order_images(walked, len(parts))


def _group(
    parts: Sequence[RowsPart],
) -> tuple[list[tuple[int, int]], dict[tuple[Layout, ...], list[int]]]:
    """Parts to be walked one after the other, with where each begins; and those with the same layouts, if many."""
    groups: dict[tuple[Layout, ...], list[int]] = {}
    for number, part in enumerate(parts):
        groups.setdefault(part[2], []).append(number)
    many = {
        layouts: members
        for layouts, members in groups.items()
        if len(members) >= LEAST_LANES and all(layout.nulls for layout in layouts)
    }
    alone = [
        (member, parts[member][0]) for layouts, members in groups.items() if layouts not in many for member in members
    ]
    return alone, many


def _walk_alone(data: bytes, parts: Sequence[RowsPart], alone: Sequence[tuple[int, int]]) -> Walked:
    """Parts from some place on."""
    at: list[int] = []
    variable: list[int] = []
    lengths: list[int] = []
    images: list[int] = []
    for part, cursor in alone:
        before = len(at)
        try:
            _walk_part(data, parts[part], cursor, at, variable, lengths)
        except IndexError:
            raise _make_too_long_error(parts[part][-1]) from None
        images.append(len(at) - before)
    return Walked(
        np.repeat(np.array([part for part, _ in alone], np.int64), images),
        *(np.array(found, np.int64) for found in (at, variable, lengths)),
    )


def _walk_part(
    data: bytes, part: RowsPart, cursor: int, starts: list[int], variable: list[int], lengths: list[int]
) -> None:
    _, end, layouts, name = part
    if not any(layout.nulls for layout in layouts):
        # Of rows without columns (INSERT with no values, binlog_row_image=MINIMAL) the server writes one an event.
        if cursor < end:
            raise _make_too_short_error(name)
        starts += [cursor] * len(layouts)
        variable += [0] * len(layouts)
    while cursor < end:
        for layout in layouts:
            starts.append(cursor)
            behind = cursor + layout.nulls
            steps, rest = layout.look_up_steps(data[cursor:behind])
            variable.append(len(steps))
            cursor = behind
            for skip, prefix in steps:
                cursor += skip
                length = data[cursor] if prefix == 1 else int.from_bytes(data[cursor : cursor + prefix], "little")
                lengths.append(length)
                cursor += prefix + length
            cursor += rest
            if cursor > end:
                raise _make_too_long_error(name)


def _order_images(walked: Sequence[Walked], parts: int) -> WalkedImages:
    """The images of a part one behind the other, part by part."""
    part, at, variable, lengths = (np.concatenate(found) for found in zip(*walked, strict=True))
    images = np.bincount(part, minlength=parts)
    if (part[1:] >= part[:-1]).all():
        return WalkedImages(at, images, lengths)
    order = np.argsort(part, kind="stable")
    begins = np.append(0, np.cumsum(variable[order]))
    first = np.append(0, np.cumsum(variable))[:-1]
    return WalkedImages(at[order], images, lengths[expand_ranges(first[order], begins)])


def _make_too_long_error(name: str) -> ProtocolError:
    return ProtocolError(f"a row of {name} is longer than its event")


def _make_too_short_error(name: str) -> ProtocolError:
    return ProtocolError(f"a rows event of {name} has rows without columns, and bytes of them")


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
    which = expand_ranges(arrays.first[layout], begins)
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
