"""How many rows a batch of each table is asked for. Pure."""

from __future__ import annotations

from sources.sql.row_sizes import READ_BYTES

FIRST_ROWS = 1000
"""The most rows of a table's first batch, when nobody knows how wide they are."""

_LESS_AFTER_FAILURE = 8
_REGAIN = 8


class RowLimits:
    """most: rows of any batch."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._limits: dict[str, int] = {}
        self._ceilings: dict[str, int] = {}

    def find_limit(self, table: str) -> int:
        """Rows of the next batch of a table."""
        return min(self.most, self._limits.get(table, FIRST_ROWS), self._ceilings.get(table, self.most))

    def note_rows(self, table: str, rows: int, held: int) -> None:
        """So many rows of a batch held so many bytes."""
        self._limits[table] = max(1, READ_BYTES * rows // max(held, 1))
        if table in self._ceilings:
            self._ceilings[table] += self._ceilings[table] // _REGAIN + 1

    def note_failure(self, table: str) -> int:
        """As many rows could not be read: fewer are asked for, and more again little by little. How many, next time."""
        self._ceilings[table] = max(1, self.find_limit(table) // _LESS_AFTER_FAILURE)
        return self._ceilings[table]
