"""What the position of a table rests on: its key, the types of that, and which table it is. Pure.

A key of another order, or the key of another table, says nothing of which rows were read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from psql_streamer.errors import PositionRefused
from psql_streamer.shown_commands import show_command

_PARENTHESES = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_TEXTS = re.compile(r"text|(tiny|medium|long)text|varchar|character varying")


@dataclass(frozen=True, slots=True)
class KeyType:
    """The type of a column of a key, by the database's name for it. collation: by which it is compared; empty where it
    is not known, or there is none.
    """

    native: str
    is_integer: bool
    collation: str = ""

    def describe_beside(self, other: KeyType) -> str:
        """For messages. A collation matters only beside another one."""
        return f"{self.native} COLLATE {self.collation}" if self.collation and other.collation else self.native

    @property
    def stored(self) -> list[str | bool]:
        """What a position has of it."""
        return [self.native, self.is_integer, *filter(None, [self.collation])]

    def keeps_order_of(self, before: KeyType) -> bool:
        """Whether keys that were read before are where they were among those of this type."""
        if self.is_integer or before.is_integer:
            return self.is_integer and before.is_integer
        if self.collation and before.collation and self.collation != before.collation:
            return False
        one, other = _find_name(self.native), _find_name(before.native)
        if _TEXTS.fullmatch(one) and _TEXTS.fullmatch(other):
            return True
        return one == other and _find_fraction(self.native) >= _find_fraction(before.native)


@dataclass(frozen=True, slots=True)
class Basis:
    """types: none where a position does not say them. identity: what tells the table from others; may be empty."""

    key: tuple[str, ...]
    types: tuple[KeyType, ...] = ()
    identity: str = ""

    @classmethod
    def from_position(cls, data: Mapping[str, Any]) -> Self:
        """As it is stored. Positions of the first versions have the key alone."""
        types = tuple(KeyType(*one) for one in data.get("types", ()))
        return cls(tuple(data["key"]), types, data.get("identity", ""))

    @property
    def stored(self) -> dict[str, Any]:
        """What a position has of it."""
        return {"key": list(self.key), "types": [one.stored for one in self.types], "identity": self.identity}


def require_the_same_key(table: str, before: Basis, now: Basis, last: Sequence[int | str] | None, source: str) -> None:
    """PositionRefused when a position is by other columns than the table is read by, or by other types of them.

    last: the key of the position; where its types are not known, it tells whether they were integers.
    """
    if before.key != now.key:
        raise PositionRefused(
            f"the position of {table} is by {', '.join(before.key)}, and its key is {', '.join(now.key)} now",
            f"name {', '.join(before.key)} as its key, or forget the position to read the table from startAt on "
            f"({show_command('position', 'forget', source)})",
        )
    if not now.types:
        return  # of a query, of which nothing is known
    if before.types:
        pairs = list(zip(before.types, now.types, strict=True))
        was = ["" if other.keeps_order_of(one) else one.describe_beside(other) for one, other in pairs]
        types = [other.describe_beside(one) for one, other in pairs]
    else:
        was = [_find_misfit(value, other) for value, other in zip(last or (), now.types, strict=False)]
        types = [one.native for one in now.types]
    for name, known, other in zip(now.key, was, types, strict=False):
        if known:
            raise PositionRefused(
                f"the position of {table} is by {name}, which was {known}, and is {other} now: its values have "
                "another order",
                "set startAt where its rows are not to be read again, and forget the position "
                f"({show_command('position', 'forget', source)})",
            )


def require_the_same_table(table: str, before: Basis, now: Basis, source: str) -> None:
    """PositionRefused when another table has the name."""
    if before.identity and now.identity and before.identity != now.identity:
        raise PositionRefused(
            f"{table} is another table now: the one that was read was renamed, or dropped and made anew",
            'if its new rows get larger keys than those that were read, set shrunkTables = "accept"; else forget the '
            f"position ({show_command('position', 'forget', source)}), or give the source another name",
        )


def _find_misfit(value: int | str, now: KeyType) -> str:
    """What a value of a key was, in words, if it cannot be one of this type; empty if it can. MariaDB's integers were
    texts once.
    """
    if isinstance(value, int):
        return "a whole number" if _TEXTS.fullmatch(_find_name(now.native)) else ""
    return "no whole number" if now.is_integer and not re.fullmatch(r"-?\d+", value) else ""


def _find_name(native: str) -> str:
    return " ".join(_PARENTHESES.sub("", native.lower()).split())


def _find_fraction(native: str) -> float:
    """How many digits behind the point its values have at most. Without a number a time has all that there are at
    PostgreSQL, whose names speak of the zone, and none at MySQL.
    """
    found = _PARENTHESES.search(native)
    if found is None:
        return math.inf if " zone" in native or native in ("numeric", "interval") else 0
    return int(found[1]) if "time" in native or "interval" in native else int(found[2] or 0)
