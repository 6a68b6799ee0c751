"""Values that are looked up in every batch, such as the columns of a table, with their hash: that of 200 columns takes
40 microseconds, that of their Arrow schema 80.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)


class Hashed(Generic[Value]):
    """Equal to another one with an equal value. described: what counts besides, and takes no part in comparisons of
    values.
    """

    __slots__ = ("_described", "_hash", "value")

    def __init__(self, value: Value, described: Hashable = ()) -> None:
        self.value = value
        self._described = described
        self._hash = hash((value, described))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hashed):
            return False
        is_same = self.value is other.value
        return is_same or (self.value == other.value and self._described == other._described)
