"""What a database says of a table's keys, and of what hides or repeats its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableKeys:
    """primary: the columns of the primary key. unique: sets of columns that no two rows have alike. invalid: indexes
    that were to make more of them unique, and did not. identity: what tells the table from another one of its name;
    empty where nothing does. is_view: whether the database knows no keys of it. problem, remedy: why its rows cannot be
    read one after the other, whatever the key. types: columns that a key may have, each with the name of its type.
    collations: of those that are compared by one, each with its name.
    """

    primary: Columns = ()
    unique: frozenset[frozenset[str]] = frozenset()
    invalid: Columns = ()
    identity: str = ""
    is_view: bool = False
    problem: str = ""
    remedy: str = ""
    types: frozenset[tuple[str, str]] = frozenset()
    collations: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def from_indexes(
        cls,
        primary: Columns,
        indexes: Mapping[str, list[str | None]],
        is_view: bool,
        types: Iterable[tuple[str, str]],
        collations: Iterable[tuple[str, str]] = (),
    ) -> TableKeys:
        """Of unique indexes, by name. A column is None where it is an expression."""
        whole = [frozenset(filter(None, names)) for names in indexes.values() if None not in names]
        unique = frozenset(columns for columns in (frozenset(primary), *whole) if columns)
        return cls(primary, unique, is_view=is_view, types=frozenset(types), collations=frozenset(collations))

    def cover(self, key: Columns) -> bool:
        """Whether no two rows have the same key."""
        return any(columns <= set(key) for columns in self.unique)
