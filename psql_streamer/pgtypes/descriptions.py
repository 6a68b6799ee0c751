"""What sources say of types besides what tells these apart: it takes no part in comparisons of columns.

An OID above the built-in ones is another type in another database, and its type may be changed: what is remembered of
columns is of these descriptions as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from psql_streamer.model import Column
from psql_streamer.pgtype import PgType, PostgresType
from psql_streamer.pgtypes.builtin import BY_OID

Descriptions: TypeAlias = tuple[tuple[int, PgType], ...]
"""The place of a column, and what is known of its type."""


def list_descriptions(columns: Sequence[Column]) -> Descriptions:
    """Of those columns whose types are not built in."""
    return tuple(
        (at, kind.known)
        for at, column in enumerate(columns)
        if isinstance(kind := column.type, PostgresType)
        and kind.known is not None
        and BY_OID.get(kind.oid) is not kind.known
    )
