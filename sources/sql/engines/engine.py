"""A kind of database, as far as the source must know it; what is here goes for any that SQLAlchemy reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine

from psql_streamer.interfaces import Finding
from psql_streamer.model import TextType
from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes.builtin import OIDS
from psql_streamer.pgtypes.modifiers import VARHDRSZ
from sources.sql import values
from sources.sql.engines.reflection import Reflection
from sources.sql.engines.table_keys import TableKeys
from sources.sql.names import TableName
from sources.sql.values import Render

Result = TypeVar("Result")

OTHER_SETTLE_SECONDS = 5.0

_ROWS_AT_ONCE = 16


def as_it_is(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """The column itself."""
    return column


@dataclass(frozen=True, slots=True)
class Described:
    """A column, as the database describes it.

    select: the column -> what is asked of the server for it. render: what the driver gives for it -> text forms.
    ordered: whether rows can be read in the order of its values, none left out. bind: a value in a key -> what the
    column is compared with. endless: what no value comes behind, where the type has such a one: behind a key that has
    it there are no rows.
    """

    name: str
    type: TextType
    nullable: bool = True
    select: Callable[[sa.ColumnElement[Any]], sa.ColumnElement[Any]] = as_it_is
    render: Render = values.as_text
    ordered: bool = True
    bind: Callable[[int | str], sa.ColumnElement[Any]] = sa.literal
    endless: sa.ColumnElement[Any] | None = None

    @property
    def is_integer(self) -> bool:
        """Whether all values are whole numbers."""
        native = self.type.native
        return self.type.like.oid in _INTEGERS or (native.startswith("bigint") and "unsigned" in native)


_INTEGERS = {OIDS["int2"], OIDS["int4"], OIDS["int8"]}


def make_type(name: str, typmod: int = -1) -> PostgresType:
    """A built-in type of PostgreSQL's."""
    return PostgresType(OIDS[name], typmod)


def make_numeric_type(precision: int | None, scale: int | None) -> PostgresType:
    """numeric(precision, scale), or numeric alone where the precision is not known."""
    return make_type("numeric", VARHDRSZ + (precision << 16 | (scale or 0) & 0x7FF) if precision else -1)


@dataclass(frozen=True, slots=True)
class Writers:
    """Transactions that may have written to a table, by what the server calls them.

    looked_at: when, by time.monotonic(). successors: those of them into which one that is seen no more may have turned.
    known: whether the server has looked; if not, it is to be asked again.
    """

    names: frozenset[str]
    looked_at: float
    successors: frozenset[str] = field(default_factory=frozenset)
    known: bool = True


class AnyEngine:
    """What goes for every database.

    settle_seconds: for how long a row is watched before it is read, where nobody says which transactions write.
    first_look_seconds: how much later than a row it is said who writes, where somebody says it. recommends: the
    source that sees every change of such a server. compares_rows: whether an index serves (a, b) > (1, 2).
    keys_are_near: whether to ask for a table's keys with every batch takes no time. reflects_together: whether the
    catalog is asked for several tables at once. selects_without_table: whether SELECT needs no FROM.
    has_server: whether each connection may come to another database under the same address.
    """

    settle_seconds: ClassVar[float] = OTHER_SETTLE_SECONDS
    first_look_seconds: ClassVar[float] = 0.0
    recommends: ClassVar[str] = ""
    compares_rows: ClassVar[bool] = False
    keys_are_near: ClassVar[bool] = False
    reflects_together: ClassVar[bool] = False
    selects_without_table: ClassVar[bool] = False
    has_server: ClassVar[bool] = True

    source: str = ""
    """The name of the source that looks into it, for messages."""

    def __init__(self, url: URL, timeout: float, lock_timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._lock_timeout = lock_timeout
        self._reflection: Reflection | None = None

    def create(self) -> Engine:
        """SQLAlchemy's engine. It has one connection, which no transaction outlives."""
        return sa.create_engine(
            self._url,
            pool_size=1,
            max_overflow=0,
            pool_timeout=self._timeout,
            pool_pre_ping=True,
            connect_args=dict(self.connect_arguments()),
            hide_parameters=True,
        )

    def connect_arguments(self) -> Mapping[str, Any]:
        """What the driver's `connect` is given beside the URL."""
        return {}

    def cancel(self, connection: Any) -> None:
        """Make the driver's connection give up what another thread waits for in it."""

    def read_identity(self, connection: Connection) -> Mapping[str, str]:  # noqa: ARG002 - for servers that have one
        """What tells this database from another one under the same address."""
        return {}

    def require_the_same_file(self) -> None:
        """PositionRefused when the database is a file, and another one has its name."""

    def release(self) -> None:
        """Hold nothing any more that `identity` has taken hold of."""

    def describe(self, connection: Connection, table: TableName) -> Sequence[Described]:
        """The columns of a table or view, as they are in this transaction."""
        found = sa.inspect(connection).get_columns(table.table, schema=table.schema or None)
        return [_describe_column(one) for one in found]

    def read_keys(self, connection: Connection, table: TableName) -> TableKeys:
        """The keys of a table or view, as they are in this transaction."""
        inspector, place = self.inspect(connection), (table.table, table.schema or None)
        primary = tuple(inspector.get_pk_constraint(*place)["constrained_columns"])
        indexes: dict[str, list[str | None]] = {}
        for one in inspector.get_unique_constraints(*place):
            indexes[str(one["name"])] = list(one["column_names"])
        for index in filter(_is_unique, inspector.get_indexes(*place)):
            indexes[str(index["name"])] = index["column_names"]
        is_view = table.table in inspector.get_view_names(table.schema or None)
        types = ((one.name, one.type.native) for one in self.describe(connection, table))
        return TableKeys.from_indexes(primary, indexes, is_view, types)

    def read_keys_of(self, connection: Connection, tables: Sequence[TableName]) -> Sequence[TableKeys]:
        """The same of several tables."""
        return [self.read_keys(connection, table) for table in tables]

    def describe_query(self, connection: Connection, query: sa.TextClause) -> Sequence[Described]:
        """The columns of a query."""
        with connection.execute(sa.select(sa.text("*")).select_from(query).where(sa.false())) as result:
            names = list(result.keys())
        return [
            Described(name, TextType("unknown", make_type("json")), render=values.render_any_json) for name in names
        ]

    def count_rows_at_once(self, connection: Connection, table: TableName | None, most: int) -> int:  # noqa: ARG002
        """How many rows a driver is asked for before their sizes are looked at. most: of all.

        table: None for a query.
        """
        return min(most, _ROWS_AT_ONCE)

    def leave_rows(self, connection: Connection) -> bool:  # noqa: ARG002 - for other drivers
        """Stop reading a result that streams. Whether the transaction goes on, and no row need be read again."""
        return True

    @contextmanager
    def reflect(self, connection: Connection, tables: Sequence[TableName]) -> Iterator[None]:
        """What the catalog says of these tables is asked for once while this lasts, which is a look at them."""
        self._reflection = Reflection(connection, tables, self.reflects_together)
        try:
            yield
        finally:
            self._reflection = None

    def inspect(self, connection: Connection) -> Reflection:
        """What tells of keys and indexes."""
        kept = self._reflection
        if kept is not None and kept.connection is connection:
            return kept
        return Reflection(connection, (), together=False)

    def make_impatient(self, work: Callable[[Connection], Result]) -> Callable[[Connection], Result]:
        """A look that holds locks on several tables gives up soon where it must wait for one: others wait behind it,
        and whoever has that one may want those.
        """
        return work

    def are_writers_told(self, connection: Connection, table: TableName, key: Sequence[str]) -> bool:
        """Whether `find_writers` says something of a table."""
        return self.find_writers(connection, table, key) is not None

    def find_writers_of(
        self, connection: Connection, tables: Sequence[tuple[TableName, Sequence[str]]]
    ) -> Sequence[Writers | None]:
        """The same of several tables, each with its key."""
        return [self.find_writers(connection, table, key) for table, key in tables]

    def find_writers(self, connection: Connection, table: TableName, key: Sequence[str]) -> Writers | None:  # noqa: ARG002
        """Transactions that are open now and may have written to a table; None where it cannot be said."""
        return None

    def find_highest_given(self, connection: Connection, table: TableName, key: str) -> int | None:  # noqa: ARG002
        """The largest value that the server has given a key, whether its row is there or not; None: it does not say."""
        return None

    def find_sequence_problem(self, connection: Connection, table: TableName, key: Sequence[str]) -> str:  # noqa: ARG002
        """Why the values of a key, or of one of its columns, are not given in ascending order; empty where they are, or
        nobody says.
        """
        return ""

    def check(self, connection: Connection) -> Iterable[Finding]:  # noqa: ARG002 - for servers that can be asked
        """What may surprise, whatever the tables."""
        return ()

    def check_table(self, connection: Connection, table: TableName, key: Sequence[str]) -> Iterable[Finding]:  # noqa: ARG002
        """What may surprise of a table."""
        return ()


def _is_unique(index: Any) -> bool:
    """Of all rows: not of those that fulfil a condition."""
    partial = any(name.endswith("_where") for name in index.get("dialect_options", {}))
    return bool(index["unique"]) and not partial


def _describe_column(column: Mapping[str, Any]) -> Described:
    """A column of SQLAlchemy's reflection."""
    kind = column["type"]
    native = str(kind).lower()
    nullable = bool(column.get("nullable", True))
    for known, form, render, ordered in _BY_CLASS:
        if isinstance(kind, known):
            return Described(column["name"], TextType(native, form), nullable, render=render, ordered=ordered)
    if isinstance(kind, sa.Numeric):
        form = make_numeric_type(kind.precision, kind.scale)
        return Described(
            column["name"], TextType(native, form), nullable, render=values.make_number_render(kind.scale or 0)
        )
    if isinstance(kind, sa.DateTime):
        form = make_type("timestamptz" if kind.timezone else "timestamp")
        return Described(column["name"], TextType(native, form), nullable)
    return Described(column["name"], TextType(native, make_type("text")), nullable)


_BY_CLASS: tuple[tuple[type[Any], PostgresType, Render, bool], ...] = (
    (sa.Boolean, make_type("bool"), values.render_flags, False),
    (sa.Integer, make_type("int8"), values.render_digits, True),
    (sa.JSON, make_type("json"), values.render_documents, False),
    (sa.LargeBinary, make_type("bytea"), values.render_hexes, False),
    (sa.Date, make_type("date"), values.as_text, True),
    (sa.Time, make_type("time"), values.as_text, True),
    (sa.Float, make_type("float8"), values.render_floats, False),
)
