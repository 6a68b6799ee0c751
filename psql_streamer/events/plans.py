"""What becomes of the rows of a shape: which topics they go to, and what keys them there; made once for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psql_streamer.cells import CellTable, OfShapes, Shape
from psql_streamer.errors import SinkRefused
from psql_streamer.events.rows import Keys
from psql_streamer.growing import GrowingArray


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


class _NumberedNames:
    """Names, each once, and for each shape which of them it has; -1 for none."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._places: dict[str, int] = {}
        self._number = GrowingArray(np.int32)

    @property
    def number(self) -> NDArray[np.int32]:
        return self._number.array

    def add(self, names: Iterable[str | None]) -> None:
        """Of shapes that come behind those that are known."""
        self._number.extend([-1 if name is None else self._find_place(name) for name in names])

    def _find_place(self, name: str) -> int:
        if name not in self._places:
            self._places[name] = len(self.names)
            self.names.append(name)
        return self._places[name]


class Ways:
    """One way of each shape. topics: for each place in a way, names, and for each shape which it is or -1."""

    def __init__(self) -> None:
        self.keys = Keys(())
        self._topics: list[_NumberedNames] = []

    @property
    def topics(self) -> Sequence[tuple[Sequence[str], NDArray[np.int32]]]:
        return [(one.names, one.number) for one in self._topics]

    def add(self, ways: Sequence[Way]) -> None:
        """Of shapes that come behind those that are known."""
        known = len(self.keys.of_shapes)
        while len(self._topics) < max((len(way.topics) for way in ways), default=0):
            self._topics.append(_NumberedNames())
            self._topics[-1].add([None] * known)
        for place, names in enumerate(self._topics):
            names.add(way.topics[place] if place < len(way.topics) else None for way in ways)
        self.keys.add([way.key for way in ways])


class Plans:
    """What becomes of the rows of all shapes of a list. of_way: the first way of each shape, the second.

    ways: how many each shape has. excluded: which shapes are left out on purpose. Shapes are added at the cost of those
    alone: a database has thousands of tables, and each is new in some batch.
    """

    def __init__(self) -> None:
        self.tables: list[str] = []
        self.of_way: list[Ways] = []
        self._ways = GrowingArray(np.int64)
        self._excluded = GrowingArray(np.bool_)
        self._refused: dict[int, SinkRefused] = {}

    @property
    def ways(self) -> NDArray[np.int64]:
        return self._ways.array

    @property
    def excluded(self) -> NDArray[np.bool_]:
        return self._excluded.array

    def add(self, plans: Sequence[Plan]) -> None:
        """Of shapes that come behind those that are known."""
        known = len(self.tables)
        while len(self.of_way) < max((len(plan.ways) for plan in plans), default=0):
            self.of_way.append(Ways())
            self.of_way[-1].add([NO_WAY] * known)
        for number, ways in enumerate(self.of_way):
            ways.add([plan.ways[number] if number < len(plan.ways) else NO_WAY for plan in plans])
        self.tables += [plan.table for plan in plans]
        self._ways.extend([len(plan.ways) for plan in plans])
        self._excluded.extend([plan.excluded for plan in plans])
        self._refused.update(
            {known + place: plan.refusal for place, plan in enumerate(plans) if plan.refusal is not None}
        )

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
        self._last: tuple[Sequence[Shape], Plans] | None = None

    def list_plans(self, shapes: Sequence[Shape]) -> Sequence[Plan]:
        """For each of the shapes."""
        return self._of_shapes.make_each(shapes)

    def collect_plans(self, shapes: Sequence[Shape]) -> Plans:
        """For the shapes that the list has now, as arrays."""
        if self._last is None or self._last[0] is not shapes:
            self._last = shapes, Plans()
        plans, each = self._last[1], self._of_shapes.make_each(shapes)
        if len(each) > len(plans.tables):
            plans.add(each[len(plans.tables) :])
        return plans


def number_names(names: Iterable[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Each name once, in the order in which they come, and which of them each is."""
    numbers: dict[str, int] = {}
    which = [numbers.setdefault(name, len(numbers)) for name in names]
    return tuple(numbers), np.array(which, np.int32)
