"""The key of a table with REPLICA IDENTITY FULL.

Its Relation messages flag every column as part of the identity, so the primary key has to be asked of the catalog,
which shows what is true now; the row may be older than that. A catalog's key that is newer than the row is told by the
transaction that made it; then the key holds that the table had when it was last seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from psql_streamer.model import Relation, ReplicaIdentity


class Asked(NamedTuple):
    """A table whose key is wanted, and the transaction whose change it is wanted for."""

    relation: Relation
    xid: int


@dataclass(frozen=True, slots=True)
class CatalogKey:
    """What the catalog says of a table. names: the columns of its primary key; none where it has none, or is gone.

    is_newer: the key was made by a transaction that began to write after the one asked for, or the table is gone.
    """

    names: tuple[str, ...]
    is_newer: bool = False


AskKeys: TypeAlias = Callable[[Sequence[Asked]], Sequence[CatalogKey]]
"""An answer for each that was asked for, in their order."""


def no_keys(asked: Sequence[Asked]) -> Sequence[CatalogKey]:
    """Where there is no catalog to ask."""
    return [CatalogKey(())] * len(asked)


def with_primary_key(
    seen: Relation, catalog: CatalogKey, before: Relation | None, seen_in_session: bool
) -> tuple[Relation, bool]:
    """The relation keyed by its primary key, and whether that is certain.

    before: the shape that the table had last, in this session or (not seen_in_session) at its start.
    """
    previous = _key_of(before)
    if previous is None or set(previous) - _names_of(seen):
        # Nothing is known but the catalog; where that is newer than the row, the key may have been another one.
        return _keyed(seen, catalog.names), not catalog.is_newer
    if catalog.is_newer and catalog.names != previous:
        return _keyed(seen, previous), False
    if not catalog.names and previous and not seen_in_session:
        # It was dropped before this row, or after: the catalog no longer says when.
        return _keyed(seen, previous), False
    return _keyed(seen, catalog.names), True


def _key_of(relation: Relation | None) -> tuple[str, ...] | None:
    """None where the relation does not tell."""
    if relation is None or relation.replica_identity is not ReplicaIdentity.FULL:
        return None
    return tuple(relation.columns[at].name for at in relation.key_columns)


def _names_of(relation: Relation) -> set[str]:
    return {column.name for column in relation.columns}


def _keyed(seen: Relation, names: Collection[str]) -> Relation:
    if not names or not set(names) <= _names_of(seen):
        return seen
    columns = tuple(replace(column, key=column.name in names) for column in seen.columns)
    return replace(seen, columns=columns, keyed=True)
