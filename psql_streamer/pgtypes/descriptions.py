"""What sources say of types besides what tells these apart: it takes no part in comparisons of columns.

An OID above the built-in ones is another type in another database, and its type may be changed: what is remembered of
columns is of these descriptions as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from psql_streamer.hashed import Hashed
from psql_streamer.model import Column
from psql_streamer.pgtype import PgType, PostgresType
from psql_streamer.pgtypes.builtin import BY_OID

HashedColumns: TypeAlias = Hashed[tuple[Column, ...]]

_MOST_TUPLES = 2000
"""Tuples of columns of which it is remembered what they are as HashedColumns."""

_held: dict[int, tuple[tuple[Column, ...], HashedColumns]] = {}  # by id; whoever finds none makes it, in any thread


def hash_columns(columns: tuple[Column, ...]) -> HashedColumns:
    """The columns, as what is remembered of them is looked up: equal if what is known of their types is, too.

    The same object for the same tuple, and for equal ones, so that looking it up compares no columns.
    """
    held = _held.get(id(columns))
    if held is None or held[0] is not columns:
        if len(_held) >= _MOST_TUPLES:
            _held.clear()
        held = _held[id(columns)] = columns, _find_first(Hashed(columns, list_descriptions(columns)))
    return held[1]


def list_descriptions(columns: Sequence[Column]) -> tuple[tuple[int, PgType], ...]:
    """Of those columns whose types are not built in: the place of each, and what is known of its type."""
    return tuple(
        (at, kind.known)
        for at, column in enumerate(columns)
        if isinstance(kind := column.type, PostgresType)
        and kind.known is not None
        and BY_OID.get(kind.oid) is not kind.known
    )


@lru_cache(maxsize=_MOST_TUPLES)
def _find_first(hashed: HashedColumns) -> HashedColumns:
    """The first one that was equal to it."""
    return hashed
