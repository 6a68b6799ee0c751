"""How a statement and the row events spell one table.

With lower_case_table_names=1 or 2 a server compares names of schemas and tables in lower case, and a statement in the
binlog has them as somebody wrote them (MySQL 8.4 Reference Manual, "Identifier Case Sensitivity").
"""

from __future__ import annotations

from collections.abc import Iterable

from psql_streamer.binlog.statements import Statement


class TableNames:
    """The names that row events have. folds: whether the server compares names in lower case."""

    def __init__(self, folds: bool, known: Iterable[tuple[str, str]]) -> None:
        self._folds = folds
        self._shown: dict[tuple[str, str], tuple[str, str]] = {}
        for schema, table in known:
            self.note(schema, table)

    def note(self, schema: str, table: str) -> None:
        """A row event has this name."""
        if self._folds:
            self._shown[_fold_case(schema), _fold_case(table)] = schema, table

    def spell_statement(self, statement: Statement) -> Statement:
        """The statement with names as row events have them; in lower case where they have shown none."""
        if not self._folds or not (statement.schema or statement.table):
            return statement
        schema, table = self._spell(statement.schema, statement.table)
        return statement._replace(
            schema=schema, table=table, others=tuple(self._spell(*other) for other in statement.others)
        )

    def _spell(self, schema: str, table: str) -> tuple[str, str]:
        folded = _fold_case(schema), _fold_case(table)
        return self._shown.get(folded, folded)


def _fold_case(name: str) -> str:
    """Character by character, as servers do: each has one in lower case (MySQL source, my_casedn_str)."""
    return "".join(one.lower()[0] for one in name)
