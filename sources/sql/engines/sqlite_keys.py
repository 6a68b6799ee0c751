"""Keys of SQLite's tables, by its pragmas: they are read with every batch, and SQLAlchemy's reflection takes longer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.engine import Connection

from psql_streamer.errors import SourceRefused
from sources.sql.engines.table_keys import TableKeys
from sources.sql.names import TableName

_BINARY = "BINARY"
"""The collation by which different texts are never equal."""

_SORTED_BY = re.compile(r"k\(\d+,(.*)\)")


def find_indexes(connection: Connection, table: TableName) -> Sequence[Any]:
    """Place, name, whether it is unique, origin, and whether it is partial, of each index."""
    return connection.exec_driver_sql(_make_pragma("index_list", table.schema, table.table)).all()


def read_table_keys(connection: Connection, table: TableName) -> TableKeys:
    """No identity: the pages of a table are others after VACUUM, and may be the same for another table."""
    columns = connection.exec_driver_sql(_make_pragma("table_xinfo", table.schema, table.table)).all()
    primary = tuple(name for _, name in sorted((place, name) for _, name, _, _, _, place, _ in columns if place))
    is_view = _find_kind(connection, table)[0] == "view"
    collations = (
        {} if is_view or not columns else _find_collations(connection, table, [name for _, name, *_ in columns])
    )
    found = find_indexes(connection, table)
    indexes = {
        name: parts
        for _, name, unique, _, partial in found
        if unique and not partial and (parts := _find_parts(connection, table.schema, name, collations))
    }
    types = ((name, declared) for _, name, declared, *_ in columns)
    # A primary key that is one of the indexes may compare its texts otherwise than the columns do.
    is_rowid = not any(origin == "pk" for *_, origin, _ in found)
    keys = TableKeys.from_indexes(primary if is_rowid else (), indexes, is_view, types, collations.items())
    return replace(keys, primary=primary)


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


def _find_parts(
    connection: Connection, schema: str, index: str, collations: Mapping[str, str]
) -> list[str | None] | None:
    """The columns of an index, None for an expression; None for all where it tells texts apart that are equal by the
    collation of their column, by which rows are read.
    """
    found = connection.exec_driver_sql(_make_pragma("index_xinfo", schema, index)).all()
    parts = [(name, str(collation).upper()) for _, _, name, _, collation, is_key in found if is_key]
    if any(collations.get(name, _BINARY) not in (_BINARY, by) for name, by in parts):
        return None
    return [name for name, _ in parts]


def _find_collations(connection: Connection, table: TableName, columns: Sequence[str]) -> dict[str, str]:
    """Of each column. No pragma tells them: those by which a statement would sort are asked for, which does not run."""
    terms = ", ".join(f"+{_quote(one)}" for one in columns)
    of = f"{_quote(table.schema or 'main')}.{_quote(table.table)}"
    steps = connection.exec_driver_sql(f"EXPLAIN SELECT 1 FROM {of} ORDER BY {terms}").all()  # noqa: S608 - quoted
    found = next((_SORTED_BY.fullmatch(str(of)) for _, step, _, _, _, of, *_ in steps if step == "SorterOpen"), None)
    names = [one.lstrip("-").upper() for one in found[1].split(",")] if found else []
    if len(names) != len(columns):
        return {}
    return {column: _BINARY if name == "B" else name for column, name in zip(columns, names, strict=True)}


def _make_pragma(name: str, schema: str, of: str) -> str:
    return f"PRAGMA {_quote(schema or 'main')}.{name}({_quote(of)})"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
