"""Keys of SQLite's tables, by its pragmas: they are read with every batch, and SQLAlchemy's reflection takes longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.engine import Connection

from psql_streamer.errors import SourceRefused
from sources.sql.engines.table_keys import TableKeys
from sources.sql.names import TableName


def find_indexes(connection: Connection, table: TableName) -> Sequence[Any]:
    """Place, name, whether it is unique, origin, and whether it is partial, of each index."""
    return connection.exec_driver_sql(_make_pragma("index_list", table.schema, table.table)).all()


def read_table_keys(connection: Connection, table: TableName) -> TableKeys:
    """No identity: the pages of a table are others after VACUUM, and may be the same for another table."""
    columns = connection.exec_driver_sql(_make_pragma("table_xinfo", table.schema, table.table)).all()
    primary = tuple(name for _, name in sorted((place, name) for _, name, _, _, _, place, _ in columns if place))
    indexes = {
        name: [column for *_, column in connection.exec_driver_sql(_make_pragma("index_info", table.schema, name))]
        for _, name, unique, _, partial in find_indexes(connection, table)
        if unique and not partial
    }
    types = ((name, declared) for _, name, declared, *_ in columns)
    return TableKeys.from_indexes(primary, indexes, _find_kind(connection, table)[0] == "view", types)


def require_spelling(connection: Connection, table: TableName) -> None:
    """SourceRefused when a table is named in other letters than its own: SQLite takes them, and its lists do not."""
    _, name = _find_kind(connection, table)
    if name not in ("", table.table):
        raise SourceRefused(f"table {table} is called {name}", f"write {name} in tables, in these letters")


def _find_kind(connection: Connection, table: TableName) -> tuple[str, str]:
    """What it is, and its name as it was written; empty for what is in no list."""
    names = f"SELECT type, name FROM {_quote(table.schema or 'main')}.sqlite_master"  # noqa: S608
    these = " WHERE type IN ('table', 'view') AND name = ? COLLATE NOCASE"
    found = connection.exec_driver_sql(names + these, (table.table,)).first()
    return (found[0], found[1]) if found else ("", "")


def _make_pragma(name: str, schema: str, of: str) -> str:
    return f"PRAGMA {_quote(schema or 'main')}.{name}({_quote(of)})"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
