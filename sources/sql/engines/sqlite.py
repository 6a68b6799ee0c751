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
from psql_streamer.shown_commands import show_command
from sources.sql import values
from sources.sql.engines.engine import AnyEngine, Described, make_type
from sources.sql.engines.sqlite_file import HeldFile, read_file_identity
from sources.sql.engines.sqlite_keys import find_indexes, read_table_keys, require_spelling
from sources.sql.engines.table_keys import TableKeys
from sources.sql.names import TableName
from sources.sql.values import Render

Found = TypeVar("Found")

_DECLARED = re.compile(r"([^(]+?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)\s*(.*))?", re.DOTALL)

_INTEGER = (make_type("int8"), values.render_digits, True)
_FLOAT = (make_type("float8"), values.render_floats, False)
_TEXT = (make_type("text"), values.render_strings, True)
_BLOB = (make_type("bytea"), values.render_hexes, False)
_ANY = (make_type("json"), values.render_any_json, False)
_TIMESTAMP = (make_type("timestamp"), values.make_moment_render(), True)

_BY_NAME: Mapping[str, tuple[PostgresType, Render, bool]] = {
    "bool": (make_type("bool"), values.render_flags, False),
    "boolean": (make_type("bool"), values.render_flags, False),
    "date": (make_type("date"), values.render_strings, True),
    "time": (make_type("time"), values.make_moment_render(), True),
    "datetime": _TIMESTAMP,
    "timestamp": _TIMESTAMP,
    "uuid": (make_type("uuid"), values.render_strings, True),
    "json": (make_type("json"), values.render_documents, False),
    "jsonb": (make_type("json"), values.render_documents, False),
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
    keys_are_near: ClassVar[bool] = True
    compares_rows: ClassVar[bool] = True
    selects_without_table: ClassVar[bool] = True
    has_server: ClassVar[bool] = False

    def __init__(self, url: URL, timeout: float, lock_timeout: float) -> None:
        super().__init__(url, timeout, lock_timeout)
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

    def read_identity(self, connection: Connection) -> Mapping[str, str]:  # noqa: ARG002 - the file is looked at
        before, self._file = self._file, self._look(HeldFile)
        if before is not None:
            before.close()
        return self._file.identity

    def require_the_same_file(self) -> None:
        if self._file is not None and (found := self._look(read_file_identity)) != self._file.identity:
            command = show_command("position", "forget", self.source)
            raise PositionRefused(
                f"{self.path} was replaced: it was {_show_identity(self._file.identity)}, "
                f"and is {_show_identity(found)}",
                f"if that is right, forget the position ({command}) to read the new file from its beginning",
            )

    def release(self) -> None:
        if self._file is not None:
            self._file.close()

    def describe(self, connection: Connection, table: TableName) -> Sequence[Described]:
        schema, name = (part.replace('"', '""') for part in (table.schema or "main", table.table))
        found = connection.exec_driver_sql(f'PRAGMA "{schema}".table_xinfo("{name}")').all()
        if not found:
            raise SourceRefused(f"table {table} does not exist", "correct tables in the configuration, or create it")
        require_spelling(connection, table)
        # A primary key without an index is the rowid, which is never NULL. Any other one may be, unless it says not.
        is_rowid = not any(origin == "pk" for *_, origin, _ in find_indexes(connection, table))
        return [
            describe_column(column, declared, not (required or (key and is_rowid)))
            for _, column, declared, required, _, key, hidden in found
            if hidden != _HIDDEN
        ]

    def read_keys(self, connection: Connection, table: TableName) -> TableKeys:
        return read_table_keys(connection, table)

    def find_highest_given(self, connection: Connection, table: TableName, key: str) -> int | None:  # noqa: ARG002
        if not _has_autoincrement(connection, table):
            return None
        query = sa.text(f'SELECT seq FROM "{_escape_schema(table.schema)}".sqlite_sequence WHERE name = :name')  # noqa: S608
        found = connection.execute(query, {"name": table.table}).scalar()
        return int(found) if isinstance(found, int) else None

    def check_table(self, connection: Connection, table: TableName, key: Sequence[str]) -> Iterable[Finding]:  # noqa: ARG002
        if not _has_autoincrement(connection, table):
            yield Finding(
                Severity.WARNING,
                f"table {table} has no AUTOINCREMENT: when its last row is deleted, the next one gets the same key and "
                "is not read",
                "delete no rows at its end, or declare the key INTEGER PRIMARY KEY AUTOINCREMENT",
            )

    def _require_the_file(self, *_: object) -> None:
        """The driver would make a file that is not there."""
        self._look(read_file_identity)

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


def describe_column(name: str, declared: str, nullable: bool) -> Described:
    """A column of a declared type."""
    form, render, ordered = _choose_form(declared)
    return Described(name, TextType(declared or "any", form), nullable, render=render, ordered=ordered)


def _choose_form(declared: str) -> tuple[PostgresType, Render, bool]:
    parts = _DECLARED.fullmatch(declared.strip().lower())
    name, scale = (parts[1], int(parts[3] or 0)) if parts else ("", 0)
    if parts and parts[4]:
        name = f"{name} {parts[4]}"
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name in ("decimal", "numeric", "dec"):
        # A scale is not enforced: what has more digits keeps them.
        return make_type("numeric"), values.make_number_render(scale), False
    return next((form for part, form in _BY_AFFINITY if part in name), _ANY)


def _show_identity(identity: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in identity.items())


def _begin(connection: Connection) -> None:
    """The module begins no transaction for a SELECT, and rows and columns would be of two moments."""
    connection.exec_driver_sql("BEGIN")


def _has_autoincrement(connection: Connection, table: TableName) -> bool:
    schema = _escape_schema(table.schema)
    query = sa.text(f"SELECT sql FROM \"{schema}\".sqlite_master WHERE type = 'table' AND name = :name")  # noqa: S608 - a name
    return bool(_AUTOINCREMENT.search(connection.execute(query, {"name": table.table}).scalar() or ""))


_AUTOINCREMENT = re.compile(r"\bAUTOINCREMENT\b", re.IGNORECASE)


def _escape_schema(schema: str) -> str:
    return (schema or "main").replace('"', '""')
