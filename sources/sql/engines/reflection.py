"""What a catalog says of the keys and indexes of several tables, asked for once for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine.reflection import ObjectKind, ObjectScope

from sources.sql.names import TableName


class Reflection:
    """SQLAlchemy's inspector for a transaction that looks at some tables. It knows only what was there at first.

    together: whether the dialect asks for several tables in one statement.
    """

    def __init__(self, connection: Connection, tables: Sequence[TableName], together: bool) -> None:
        self.connection = connection
        self._inspector = sa.inspect(connection)
        self._together = together
        self._names: dict[str | None, list[str]] = defaultdict(list)
        for table in tables:
            self._names[table.schema or None].append(table.table)
        self._found: dict[tuple[str, str | None], Any] = {}

    def get_pk_constraint(self, table: str, schema: str | None) -> Any:
        """As the inspector says it."""
        return self._find("pk_constraint", table, schema)

    def get_unique_constraints(self, table: str, schema: str | None) -> Any:
        """As the inspector says it."""
        return self._find("unique_constraints", table, schema)

    def get_indexes(self, table: str, schema: str | None) -> Any:
        """As the inspector says it."""
        return self._find("indexes", table, schema)

    def get_view_names(self, schema: str | None) -> Sequence[str]:
        """As the inspector says it."""
        return self._inspector.get_view_names(schema)

    def get_materialized_view_names(self, schema: str | None) -> Sequence[str]:
        """As the inspector says it."""
        return self._inspector.get_materialized_view_names(schema)

    def _find(self, what: str, table: str, schema: str | None) -> Any:
        if self._together and table in self._names[schema]:
            if (what, schema) not in self._found:
                ask = getattr(self._inspector, f"get_multi_{what}")
                self._found[what, schema] = ask(
                    schema=schema, filter_names=self._names[schema], kind=ObjectKind.ANY, scope=ObjectScope.ANY
                )
            if (schema, table) in self._found[what, schema]:
                return self._found[what, schema][schema, table]
        return getattr(self._inspector, f"get_{what}")(table, schema)
