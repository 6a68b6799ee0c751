"""How much rows hold, as a driver gives them, and how many of them a batch takes. Pure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

READ_BYTES = 32 << 20
"""Where a batch has as much, it takes no more rows: the others come with the next one."""

_FIRST_SHARE = 16
"""The first rows are asked for in a part of this size: if they are very wide, some tens are too many."""

Row: TypeAlias = Sequence[Any]


class RowsTooWide(Exception):
    """More rows cannot be left where they are. rows: as many as a batch should be asked for."""

    def __init__(self, rows: int) -> None:
        super().__init__(f"{rows} rows are enough")
        self.rows = rows


def fetch_rows(fetch: Callable[[int], Sequence[Row]], at_once: int, enough: int) -> tuple[list[Row], bool]:
    """Rows until there are none, or they hold enough bytes, the last one included; and whether some are left.

    fetch: gives so many rows at most, the next ones. at_once: how many whose sizes nobody knows it may be asked for.
    """
    found: list[Row] = []
    held = 0
    asked = max(1, at_once // _FIRST_SHARE)
    while some := fetch(asked):
        size = measure_rows(some)
        if held + size >= enough:
            taken = _count_rows_within(some, enough - held)
            found += some[:taken]
            return found, taken < len(some) or bool(fetch(1))
        found += some
        held += size
        if len(some) < asked:
            break
        asked = min(at_once, max(1, (enough - held) * len(found) // max(held, 1)))
    return found, False


def measure_rows(rows: Sequence[Row]) -> int:
    """Bytes of their values, about."""
    return sum(map(_measure_column, zip(*rows, strict=True)))


def _measure_column(values: Sequence[Any]) -> int:
    known = filter(None, values)
    match next((value for value in values if value is not None), None):
        case str():
            kind: Any = ""
        case bytes() | bytearray() | memoryview():
            kind = b""
        case _:
            return sum(map(_measure_value, known))
    try:
        return len(kind.join(known))
    except TypeError:  # values of several types
        return sum(map(_measure_value, filter(None, values)))


def _count_rows_within(rows: Sequence[Row], room: int) -> int:
    """How many of them there are when the room is full; all if it never is."""
    for at, row in enumerate(rows):
        room -= sum(map(_measure_value, row))
        if room <= 0:
            return at + 1
    return len(rows)


def _measure_value(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | bytearray | memoryview) else sys.getsizeof(value)
