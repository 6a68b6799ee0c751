"""SQLite: columns that may hold anything, one writer at a time.

Source: SQLite documentation, "Datatypes In SQLite" (affinities) and "SQLite Autoincrement".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from psql_streamer.errors import PositionRefused, SourceRefused
from psql_streamer.interfaces import Finding, Severity
from psql_streamer.model import TextType
from psql_streamer.pgtype import PostgresType
from sources.sql import values
from sources.sql.engines.engine import AnyEngine, Described, like
from sources.sql.engines.sqlite_file import HeldFile, identity_of
from sources.sql.names import TableName
from sources.sql.values import Render

Found = TypeVar("Found")

_DECLARED = re.compile(r"([^(]+?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)\s*(.*))?", re.DOTALL)

_INTEGER = (like("int8"), values.digits, True)
_FLOAT = (like("float8"), values.floats, False)
_TEXT = (like("text"), values.strings, True)
_BLOB = (like("bytea"), values.hexes, False)
_ANY = (like("json"), values.any_json, False)
_TIMESTAMP = (like("timestamp"), values.moments(), True)

_BY_NAME: Mapping[str, tuple[PostgresType, Render, bool]] = {
    "bool": (like("bool"), values.flags, False),
    "boolean": (like("bool"), values.flags, False),
    "date": (like("date"), values.strings, True),
    "time": (like("time"), values.moments(), True),
    "datetime": _TIMESTAMP,
    "timestamp": _TIMESTAMP,
    "uuid": (like("uuid"), values.strings, True),
    "json": (like("json"), values.documents, False),
    "jsonb": (like("json"), values.documents, False),
    "bytea": _BLOB,
    "binary": _BLOB,
    "varbinary": _BLOB,
}

_BY_AFFINITY: tuple[tuple[str, tuple[PostgresType, Render, bool]], ...] = (
    ("int", _INTEGER),
    ("char", _TEXT),
    ("clob", _TEXT),
    ("text", _TEXT),
    ("blob", _BLOB),
    ("real", _FLOAT),
    ("floa", _FLOAT),
    ("doub", _FLOAT),
)
"""Part of a declared type -> the form, in the order in which SQLite looks for them."""


class SqliteEngine(AnyEngine):
    """Transactions that write come one after the other, so rows are committed in the order of their keys."""

    settle_seconds: ClassVar[float] = 0.0
    compares_rows: ClassVar[bool] = True

    def __init__(self, url: URL, timeout: float) -> None:
        super().__init__(url, timeout)
        self._file: HeldFile | None = None

    @property
    def path(self) -> Path:
        """The file."""
        name = str(self._url.database)
        return Path(name.removeprefix("file:").partition("?")[0] if self._url.query.get("uri") else name)

    def create(self) -> Engine:
        """A connection for each look: a file that was replaced would live on in an open one."""
        engine = sa.create_engine(
            self._url,
            poolclass=sa.pool.NullPool,
            connect_args={"timeout": self._timeout, "check_same_thread": False},
            hide_parameters=True,
        )
        sa.event.listen(engine, "do_connect", self._require_the_file)
        sa.event.listen(engine, "connect", self._prepare)
        sa.event.listen(engine, "begin", _begin)
        return engine

    def cancel(self, connection: Any) -> None:
        connection.interrupt()

    def identity(self, connection: Connection) -> Mapping[str, str]:  # noqa: ARG002 - the file is looked at
        before, self._file = self._file, self._look(HeldFile)
        if before is not None:
            before.close()
        return self._file.identity

    def require_the_same_file(self) -> None:
        if self._file is not None and (found := self._look(identity_of)) != self._file.identity:
            raise PositionRefused(
                f"{self.path} was replaced: it was {_shown(self._file.identity)}, and is {_shown(found)}",
                "if that is right, forget the position (psql-streamer position forget) to read the new file from "
                "its beginning",
            )

    def release(self) -> None:
        if self._file is not None:
            self._file.close()

    def describe(self, connection: Connection, table: TableName) -> Sequence[Described]:
        schema, name = (part.replace('"', '""') for part in (table.schema or "main", table.table))
        found = connection.exec_driver_sql(f'PRAGMA "{schema}".table_xinfo("{name}")').all()
        if not found:
            raise SourceRefused(f"table {table} does not exist", "correct tables in the configuration, or create it")
        return [
            described(column, declared, not (required or key))
            for _, column, declared, required, _, key, hidden in found
            if hidden != _HIDDEN
        ]

    def highest_given(self, connection: Connection, table: TableName, key: str) -> int | None:  # noqa: ARG002
        if table.table not in _autoincrement_tables(connection, table.schema):
            return None
        query = sa.text(f'SELECT seq FROM "{_schema(table.schema)}".sqlite_sequence WHERE name = :name')  # noqa: S608
        found = connection.execute(query, {"name": table.table}).scalar()
        return int(found) if isinstance(found, int) else None

    def check_table(self, connection: Connection, table: TableName, key: Sequence[str]) -> Iterable[Finding]:  # noqa: ARG002
        if table.table not in _autoincrement_tables(connection, table.schema):
            yield Finding(
                Severity.WARNING,
                f"table {table} has no AUTOINCREMENT: when its last row is deleted, the next one gets the same key and "
                "is not read",
                "delete no rows at its end, or declare the key INTEGER PRIMARY KEY AUTOINCREMENT",
            )

    def _require_the_file(self, *_: object) -> None:
        """The driver would make a file that is not there."""
        self._look(identity_of)

    def _prepare(self, connection: Any, _: object) -> None:
        """A text that is no UTF-8 fails alone, not with all others that are read with it; and `BEGIN` is ours.

        The file is compared when it is open: another one that takes its name from now on is not read.
        """
        try:
            self.require_the_same_file()
        except Exception:
            connection.close()
            raise
        connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        connection.isolation_level = None

    def _look(self, look: Callable[[Path], Found]) -> Found:
        try:
            return look(self.path)
        except OSError as error:
            raise SourceRefused(
                f"{self.path} cannot be opened ({str(error.strerror).lower()})", "check the path in the url"
            ) from None


_HIDDEN = 1
"""table_xinfo's mark of a virtual table's hidden column."""


def described(name: str, declared: str, nullable: bool) -> Described:
    """A column of a declared type."""
    form, render, ordered = _form(declared)
    return Described(name, TextType(declared or "any", form), nullable, render=render, ordered=ordered)


def _form(declared: str) -> tuple[PostgresType, Render, bool]:
    parts = _DECLARED.fullmatch(declared.strip().lower())
    name, scale = (parts[1], int(parts[3] or 0)) if parts else ("", 0)
    if parts and parts[4]:
        name = f"{name} {parts[4]}"
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name in ("decimal", "numeric", "dec"):
        # A scale is not enforced: what has more digits keeps them.
        return like("numeric"), values.numbers(scale), False
    return next((form for part, form in _BY_AFFINITY if part in name), _ANY)


def _shown(identity: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in identity.items())


def _begin(connection: Connection) -> None:
    """The module begins no transaction for a SELECT, and rows and columns would be of two moments."""
    connection.exec_driver_sql("BEGIN")


def _autoincrement_tables(connection: Connection, schema: str) -> set[str]:
    query = f"SELECT name, sql FROM \"{_schema(schema)}\".sqlite_master WHERE type = 'table'"  # noqa: S608 - a name
    return {name for name, sql in connection.exec_driver_sql(query) if _AUTOINCREMENT.search(sql or "")}


_AUTOINCREMENT = re.compile(r"\bAUTOINCREMENT\b", re.IGNORECASE)


def _schema(schema: str) -> str:
    return (schema or "main").replace('"', '""')
