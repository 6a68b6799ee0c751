"""Which columns key the events of a table, where a section says so in place of the replica identity."""

from __future__ import annotations

from collections.abc import Mapping

from psql_streamer.model import Relation
from psql_streamer.table_patterns import Fit, TablePatterns

ANY_TABLE = "*"
"""Stands for all tables that no other entry fits, wherever it stands."""


class KeyColumns:
    """entries: a table, a pattern of tables (see table_patterns) or ANY_TABLE -> names of columns.

    ValueError, naming the entry, for one that cannot work.
    """

    def __init__(self, entries: Mapping[str, tuple[str, ...]]) -> None:
        self._patterns = TablePatterns(entries, last=ANY_TABLE)
        self._found: dict[tuple[str, str], Fit[tuple[str, ...]] | None] = {}

    def find(self, relation: Relation) -> tuple[str, ...] | None:
        """The columns that the table's entry names; None when no entry fits it."""
        fit = self.find_entry(relation)
        return None if fit is None else fit.value

    def find_entry(self, relation: Relation) -> Fit[tuple[str, ...]] | None:
        """The table's entry."""
        name = (relation.schema, relation.table)
        if name not in self._found:
            self._found[name] = self._patterns.find(*name)
        return self._found[name]
