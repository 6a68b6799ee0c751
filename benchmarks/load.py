"""What is written to the tables, made by the server itself: a client would take longer than everybody who reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.tables import Table


@dataclass(frozen=True)
class Load:
    """rows: over all tables, in turn row by row. rows_per_transaction: 1, or about so many: each table has as many of
    them. updates: of rows that are there, under REPLICA IDENTITY FULL."""

    tables: tuple[Table, ...]
    rows: int
    rows_per_transaction: int = 1000
    updates: bool = False

    def with_rows(self, rows: int) -> Load:
        """At least so many: whole transactions, and as many in every table."""
        step = self._rounds() * len(self.tables)
        return replace(self, rows=math.ceil(rows / step) * step)

    def write(self) -> str:
        """The statement that writes all rows of which the slots are to tell."""
        return self._make_statement("UPDATE {0.name} SET {0.change} WHERE id = i;" if self.updates else _INSERT)

    def prepare(self) -> Iterator[str]:
        """The statements that come before the slots are made."""
        if self.updates:
            yield from (f"ALTER TABLE {table.name} REPLICA IDENTITY FULL" for table in self.tables)
            yield self._make_statement(_INSERT)

    def _make_statement(self, statement: str) -> str:
        """A statement for every table in the loop's body: PL/pgSQL plans each once, where EXECUTE would plan every row.

        i: bigint, so that products with it do not overflow.
        """
        commit = "COMMIT;" if self.rows_per_transaction == 1 else ""
        body = "\n".join(f"i := i + 1; {statement.format(table)} {commit}" for table in self.tables)
        return (
            f"DO $$ DECLARE i bigint := 0; BEGIN WHILE i < {self.rows} LOOP "
            f"FOR round IN 1..{self._rounds()} LOOP\n{body}\nEND LOOP; COMMIT; END LOOP; END $$"
        )

    def _rounds(self) -> int:
        """How often a transaction comes to each table."""
        return max(1, self.rows_per_transaction // len(self.tables))


_INSERT = "INSERT INTO {0.name} VALUES ({0.values});"
