"""Values that are looked up in every batch, such as the columns of a table, with their hash: that of 200 columns takes
40 microseconds, that of their Arrow schema 80.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)


class Hashed(Generic[Value]):
    """Equal to another one with an equal value."""

    __slots__ = ("_hash", "value")

    def __init__(self, value: Value) -> None:
        self.value = value
        self._hash = hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed) and (self.value is other.value or self.value == other.value)
