"""The tables that are streamed as they are read: their columns, their primary keys, and what keeps them from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from psql_streamer.model import Relation
from psql_streamer.snapshot.changed_keys import describe_key
from sources.mysql.options import SYSTEM_SCHEMAS
from sources.mysql.published_tables import CatalogTable, read_catalog_tables
from sources.mysql.server import Session
from sources.mysql.snapshot.values import TableColumn, quote_name

_KEYS = """
    SELECT s.TABLE_SCHEMA, s.TABLE_NAME, s.COLUMN_NAME, s.COLLATION = 'D'
    FROM information_schema.STATISTICS s WHERE s.INDEX_NAME = 'PRIMARY' AND {}
    ORDER BY s.TABLE_SCHEMA, s.TABLE_NAME, s.SEQ_IN_INDEX
"""
_ENGINES = "SELECT s.TABLE_SCHEMA, s.TABLE_NAME, s.ENGINE, s.TABLE_ROWS FROM information_schema.TABLES s WHERE {}"
_ONE = "s.TABLE_SCHEMA = %s AND s.TABLE_NAME = %s"
_ALL = "s.TABLE_SCHEMA NOT IN ({})".format(", ".join(f"'{name}'" for name in sorted(SYSTEM_SCHEMAS)))

_ENGINE = "InnoDB"

NO_KEY = (
    "has no primary key: nothing tells its rows from those of the stream",
    "ALTER TABLE ... ADD PRIMARY KEY (...), or leave it out",
)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the primary key. column: index into the relation's columns."""

    column: int
    descending: bool


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """relation: as the binary log shows it. key: in the order of its index; empty where there is none.

    estimated_rows: as the server guesses.
    """

    relation: Relation
    columns: tuple[TableColumn, ...]
    key: tuple[KeyColumn, ...]
    engine: str
    estimated_rows: int | None

    @property
    def name(self) -> str:
        """SQL of its name."""
        return f"{quote_name(self.relation.schema)}.{quote_name(self.relation.table)}"

    @property
    def order(self) -> str:
        """The order in which its rows are read, as JSON. A key of another one says nothing of what is left."""
        index = [(self.columns[one.column].name, self.columns[one.column].order, one.descending) for one in self.key]
        return json.dumps([describe_key(self.relation), index])

    @property
    def refusal(self) -> tuple[str, str] | None:
        """Why its rows cannot be held against the stream: what, and the remedy; None when they can."""
        if not self.key:
            return f"{self.relation} {NO_KEY[0]}", NO_KEY[1]
        if self.engine != _ENGINE:
            return (
                f"{self.relation} is of the engine {self.engine}, which has no state of a moment to read",
                f"ALTER TABLE {self.name} ENGINE = {_ENGINE}, or leave it out",
            )
        return None


def list_snapshot_tables(session: Session, wanted: Callable[[str, str], bool]) -> list[SnapshotTable]:
    """The tables that are wanted and that the account sees, by schema and name. Those that cannot be streamed are left
    out: the stream names them.
    """
    return _read_tables(session, wanted, None)


def describe_table(session: Session, relation: str) -> SnapshotTable | None:
    """A table as it is now; None when it is gone, or not seen, or has a column that cannot be streamed.

    relation: Relation.id, schema and table; either may have dots.
    """
    parts = relation.split(".")
    names = [(".".join(parts[:at]), ".".join(parts[at:])) for at in range(1, len(parts))]
    found = (table for name in names for table in _read_tables(session, lambda *_: True, name))
    return next((table for table in found if table.relation.id == relation), None)


def _read_tables(
    session: Session, wanted: Callable[[str, str], bool], only: tuple[str, str] | None
) -> list[SnapshotTable]:
    condition, arguments = (_ALL, ()) if only is None else (_ONE, only)
    keys: dict[tuple[str, str], list[tuple[str, bool]]] = {}
    for schema, table, column, descending in session.read_rows(_KEYS.format(condition), *arguments):
        keys.setdefault((schema, table), []).append((str(column), bool(descending)))
    engines = {
        (schema, table): (str(engine), None if rows is None else int(rows))
        for schema, table, engine, rows in session.read_rows(_ENGINES.format(condition), *arguments)
    }
    found = []
    for one in read_catalog_tables(session, wanted, lambda _: None, only):
        place = one.relation.schema, one.relation.table
        if place in engines:
            found.append(_make_table(one, keys.get(place, []), *engines[place]))
    return found


def _make_table(
    found: CatalogTable, key: list[tuple[str, bool]], engine: str, estimated_rows: int | None
) -> SnapshotTable:
    places = {column.name: at for at, column in enumerate(found.relation.columns)}
    return SnapshotTable(
        found.relation,
        tuple(
            TableColumn(
                one.column.name, one.cell, one.data_type, f"{one.shown} {one.collation}", "zerofill" in one.shown
            )
            for one in found.columns
        ),
        tuple(KeyColumn(places[name], descending) for name, descending in key),
        engine,
        estimated_rows,
    )
