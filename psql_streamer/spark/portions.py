"""How many rows go through the rules at once: fewer, where they make much of one."""

from __future__ import annotations

from collections.abc import Iterable

from psql_streamer.batching import SPARK_FIRST_ROWS, SPARK_MADE_BYTES
from psql_streamer.binary_columns import measure_bytes
from psql_streamer.model import Changes
from psql_streamer.spark.options import TableRule

_SPLITS = ("explode", "inline", "stack", "union", "join", "lateral")
"""What a query names that may make several rows of one."""


class Portions:
    """Learns from what came of each batch. For one thread; rows may be asked for by any."""

    def __init__(self, rules: Iterable[TableRule] = ()) -> None:
        self._rows = SPARK_FIRST_ROWS if any(map(_may_split, rules)) else None

    @property
    def rows(self) -> int | None:
        """How many rows a batch should have at most; None: any number."""
        return self._rows

    def note(self, rows: int, made: Iterable[Changes]) -> int:
        """What the rules made of so many rows. Returns the bytes of the parts of changes among it."""
        size = sum(map(_measure_parts, made))
        if size:
            found = max(1, SPARK_MADE_BYTES * rows // size)
            self._rows = found if self._rows is None else min(found, 2 * self._rows)
        elif self._rows is not None:
            self._rows = 2 * self._rows if 2 * self._rows <= SPARK_MADE_BYTES else None
        return size


def _may_split(rule: TableRule) -> bool:
    return rule.function is not None or any(word in (rule.sql or "").lower() for word in _SPLITS)


def _measure_parts(changes: Changes) -> int:
    """Bytes of rows that are parts of changes; others take about what they took before."""
    if changes.part is None:
        return 0
    return sum(measure_bytes(column) for image in (changes.after, changes.before) for column in image.columns)
