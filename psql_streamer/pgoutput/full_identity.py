"""The key of a table with REPLICA IDENTITY FULL.

Its Relation messages flag every column as part of the identity, so the primary key has to be asked of the catalog,
which shows what is true now; the row may be older than that. Which transaction made the key tells that the key is older
than the row; it does not tell that it is newer. A change of the key invalidates the table's relation cache entry, so
the server describes the table anew before its next row: a description in the middle of a session speaks for a change
before the row, the first of a session says nothing.
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
    """What the catalog says of a table. names: the columns of its primary key; None when the table is gone.

    may_be_newer: the key was made by the row's own transaction, or by one that began to write after it, as a savepoint
    does: the row may be from before.
    """

    names: tuple[str, ...] | None
    may_be_newer: bool = False


AskKeys: TypeAlias = Callable[[Sequence[Asked]], Sequence[CatalogKey]]
"""An answer for each that was asked for, in their order."""


def find_no_keys(asked: Sequence[Asked]) -> Sequence[CatalogKey]:
    """Where there is no catalog to ask."""
    return [CatalogKey(())] * len(asked)


def apply_primary_key(
    seen: Relation, catalog: CatalogKey, before: Relation | None, seen_in_session: bool
) -> tuple[Relation, bool]:
    """The relation keyed by its primary key, and whether that is certain.

    before: the shape that the table had last, in this session or (not seen_in_session) at its start.
    """
    names = _collect_names(seen)
    previous, current = _match_key(names, _find_key(before)), _match_key(names, catalog.names)
    if previous is None:
        return _flag_key_columns(seen, current or ()), current is not None and not catalog.may_be_newer
    if current == previous:
        return _flag_key_columns(seen, previous), True
    if current is None:
        return _flag_key_columns(seen, previous), not previous
    if current and not catalog.may_be_newer:
        return _flag_key_columns(seen, current), True
    # A key that was dropped leaves no trace of when.
    return _flag_key_columns(seen, current if seen_in_session else previous), False


def _find_key(relation: Relation | None) -> tuple[str, ...] | None:
    """None where the relation does not tell."""
    if relation is None or relation.replica_identity is not ReplicaIdentity.FULL:
        return None
    return tuple(relation.columns[at].name for at in relation.key_columns)


def _match_key(names: Collection[str], key: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The key; None where it is not known, or not all of these columns: then it is that of another shape."""
    return key if key is not None and set(key) <= set(names) else None


def _collect_names(relation: Relation) -> set[str]:
    return {column.name for column in relation.columns}


def _flag_key_columns(seen: Relation, names: Collection[str]) -> Relation:
    return replace(seen, columns=tuple(replace(column, key=column.name in names) for column in seen.columns))
