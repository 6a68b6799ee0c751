"""What becomes of the rows of a shape: which topics they go to, and what keys them there; made once for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psql_streamer.cells import CellTable, OfShapes, Shape
from psql_streamer.errors import SinkRefused
from psql_streamer.events.rows import Keys


@dataclass(frozen=True, slots=True)
class Way:
    """One way of a relation's rows to topics: the columns that key them, and the topics."""

    key: tuple[int, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of the rows of one shape. table: as records name it. refusal: why it can have none. excluded:
    whether it is left out on purpose.
    """

    table: str
    ways: tuple[Way, ...]
    refusal: SinkRefused | None = None
    excluded: bool = False


class Ways:
    """One way of each shape. topics: for each place in a way, names, and for each shape which it is or -1."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self.keys = Keys([way.key for way in ways])
        most = max((len(way.topics) for way in ways), default=0)
        self.topics = [
            _index_names([way.topics[place] if place < len(way.topics) else None for way in ways])
            for place in range(most)
        ]


class Plans:
    """What becomes of the rows of all shapes of a list, as it was. of_way: the first way of each shape, the second.

    excluded: which shapes are left out on purpose.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.tables = [plan.table for plan in plans]
        self.ways = np.array([len(plan.ways) for plan in plans], np.int64)
        self.excluded = np.array([plan.excluded for plan in plans], np.bool_)
        self._refused = {number: plan.refusal for number, plan in enumerate(plans) if plan.refusal is not None}
        self.of_way = [
            Ways([plan.ways[number] if number < len(plan.ways) else NO_WAY for plan in plans])
            for number in range(int(self.ways.max(initial=0)))
        ]

    def refuse_rows(self, table: CellTable) -> None:
        """Raise for a shape that cannot be written, if it has rows. A table that has none may be as it likes."""
        if not self._refused:
            return
        there = set(np.flatnonzero(np.bincount(table.shape)).tolist())
        for number, refusal in self._refused.items():
            if number in there:
                raise copy_refusal(refusal)


def copy_refusal(refusal: SinkRefused) -> SinkRefused:
    """The same error, to be raised once more."""
    return SinkRefused(refusal.what, refusal.remedy)


NO_WAY = Way((), ())


class SourcePlans:
    """Plans for the shapes of one source's batches."""

    def __init__(self, make: Callable[[Shape], Plan]) -> None:
        self._of_shapes = OfShapes(make)
        self._last: tuple[Sequence[Shape], int, Plans] | None = None

    def list_plans(self, shapes: Sequence[Shape]) -> Sequence[Plan]:
        """For each of the shapes."""
        return self._of_shapes.make_each(shapes)

    def collect_plans(self, shapes: Sequence[Shape]) -> Plans:
        """For the shapes that the list has now, as arrays."""
        if self._last is None or self._last[0] is not shapes or self._last[1] != len(shapes):
            plans = self._of_shapes.make_each(shapes)
            self._last = shapes, len(plans), Plans(plans)
        return self._last[2]


def _index_names(names: Sequence[str | None]) -> tuple[Sequence[str], NDArray[np.int32]]:
    """Each name once, and for each of those given its number; -1 for none."""
    numbers = number_names(name for name in names if name is not None)
    return list(numbers), np.array([-1 if name is None else numbers[name] for name in names], np.int32)


def number_names(names: Iterable[str]) -> dict[str, int]:
    """Each name once, in the order in which they come, with its place."""
    return {name: place for place, name in enumerate(dict.fromkeys(names))}
