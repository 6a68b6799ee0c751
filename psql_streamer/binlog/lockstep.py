"""Rows events of one table walked side by side: a step goes over one column of an image of each of them.

An event has no lengths of rows, so that a walker goes from row to row. Of many events it can take the first images,
then the second ones, and so on: the work for each step is numpy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psql_streamer.binlog.cell_bytes import Block
from psql_streamer.binlog.layouts import Layout
from psql_streamer.errors import ProtocolError
from psql_streamer.model import Index

LEAST_LANES = 32
"""Events from which on a step side by side costs less than one event after the other."""


class Walked(NamedTuple):
    """Images: the part of each, where it begins, how many cells with a length it has; and the lengths of these."""

    part: Index
    at: Index
    variable: Index
    lengths: Index


@dataclass(slots=True)
class Lanes:
    """The events: the part that each is, and where in the block it has got, and ends. name: of their table."""

    part: Index
    cursor: Index
    end: Index
    name: str

    def take(self, chosen: NDArray[np.bool_]) -> Lanes:
        """Those that are chosen."""
        return Lanes(self.part[chosen], self.cursor[chosen], self.end[chosen], self.name)

    def check(self) -> None:
        """No cursor is behind the end of its event."""
        if np.count_nonzero(self.cursor > self.end):
            raise ProtocolError(f"a row of {self.name} is longer than its event")


class _Plan:
    """How an image of a layout is walked.

    A run is the cells of fixed length up to a cell with a length, or up to the end. For each byte of a NULL bitmap, and
    each value that it may have, skips has what the byte's columns add to the runs; there whether its cells with a
    length are there. prefixes: bytes of the length of each.
    """

    def __init__(self, layout: Layout) -> None:
        self.nulls = layout.nulls
        widths = np.array([width for width, _ in layout.cells], np.int64)
        prefixes = np.array([prefix for _, prefix in layout.cells], np.int64)
        variable = np.flatnonzero(prefixes)
        self.prefixes = prefixes[variable]
        by_run = np.zeros((8 * self.nulls, len(variable) + 1), np.int64)
        by_run[np.arange(len(widths)), np.searchsorted(variable, np.arange(len(widths)))] = widths
        by_length = np.zeros((8 * self.nulls, len(variable)), np.int64)
        by_length[variable, np.arange(len(variable))] = 1
        self.skips = _BITS @ by_run.reshape(self.nulls, 8, -1)
        self.there = _BITS @ by_length.reshape(self.nulls, 8, -1)


_BITS = (np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") == 0).astype(np.int64)
"""By byte of a NULL bitmap and bit: 1 where the cell is not NULL."""


def walk_side_by_side(block: Block, lanes: Lanes, layouts: tuple[Layout, ...]) -> tuple[list[Walked], Lanes]:
    """The images of events of one table; and the events that are left when they are few. All layouts have a bitmap.

    ProtocolError where an image does not end with its event.
    """
    plans = [_Plan(layout) for layout in layouts]
    found: list[Walked] = []
    while True:
        going_on = lanes.cursor < lanes.end
        if np.count_nonzero(going_on) < len(going_on):
            lanes = lanes.take(going_on)
        if len(lanes.part) < LEAST_LANES:
            return found, lanes
        for plan in plans:
            found.append(_walk_images(block, lanes, plan))
            lanes.check()


def _walk_images(block: Block, lanes: Lanes, plan: _Plan) -> Walked:
    """One image of each; moves the cursors behind it. What lies behind the block is read as its last byte."""
    at = lanes.cursor
    skips, there = plan.skips[0], plan.there[0]
    bitmap = block.u8.take(at, mode="clip")
    skips, there = skips[bitmap], there[bitmap]
    for byte in range(1, plan.nulls):
        bitmap = block.u8.take(at + byte, mode="clip")
        skips, there = skips + plan.skips[byte][bitmap], there + plan.there[byte][bitmap]
    cursor = at + plan.nulls
    sizes = np.empty((len(at), len(plan.prefixes)), np.int64)
    for place, prefix in enumerate(plan.prefixes.tolist()):
        cursor += skips[:, place]
        size = sizes[:, place]
        np.add(block.read_lengths(cursor, prefix), prefix, out=size)
        size *= there[:, place]
        cursor += size
    cursor += skips[:, -1]
    lanes.cursor = cursor
    chosen = there > 0
    return Walked(lanes.part, at, there.sum(axis=1), (sizes - plan.prefixes)[chosen])
