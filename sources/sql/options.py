"""The options of a `sql` source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, TypeAlias

import sqlalchemy as sa
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from sqlalchemy.engine import URL, make_url

from psql_streamer.options import Duration, PartOptions, PositiveDuration, SourceOptions, refuse_longer_than
from sources.sql.names import TableName

BEGINNING, NOW = "beginning", "now"

_MOST_ROWS = 1_000_000

_PACKAGES = {
    "psycopg2": "psycopg2-binary",
    "psycopg": "psycopg[binary]",
    "MySQLdb": "mysqlclient",
    "mysql": "mysql-connector-python",
}
"""Module of a driver -> the package that has it, where that is called otherwise."""

_DIALECTS = {
    "bigquery": "sqlalchemy-bigquery",
    "clickhouse": "clickhouse-sqlalchemy",
    "cockroachdb": "sqlalchemy-cockroachdb",
    "databricks": "databricks-sqlalchemy",
    "db2": "ibm_db_sa",
    "duckdb": "duckdb-engine",
    "firebird": "sqlalchemy-firebird",
    "hana": "sqlalchemy-hana",
    "ibm_db_sa": "ibm_db_sa",
    "redshift": "sqlalchemy-redshift",
    "snowflake": "snowflake-sqlalchemy",
    "teradatasql": "teradatasqlalchemy",
    "trino": "trino[sqlalchemy]",
}
"""Dialect that SQLAlchemy does not have itself -> the package that brings it."""

_INCLUDED = {"mariadb": "mariadb+pymysql", "mysql": "mysql+pymysql", "postgresql": "postgresql+psycopg2"}
"""Dialects whose driver comes with the service."""


def _as_list(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


Names: TypeAlias = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_list)]
"""One name, or a list of several."""

StartAt: TypeAlias = Annotated[tuple[int | str, ...], BeforeValidator(_as_list), Field(min_length=1)]
"""`beginning`, `now`, or the key behind which reading starts: a value, or a list with one for each key column."""


def _check_url(value: SecretStr) -> SecretStr:
    """Messages show the dialect and nothing else: the rest may be a part of a password that is not encoded."""
    try:
        url = make_url(value.get_secret_value())
    except (sa.exc.ArgumentError, ValueError):
        raise ValueError("is not an SQLAlchemy URL: write dialect+driver://user:password@host:port/database") from None
    if url.host and "@" in f"{url.host}{url.database}":
        raise ValueError("has an @ in its user or password, which must be written %40")
    _require_driver(url)
    if url.get_backend_name() == "sqlite" and (url.database or ":memory:") in (":memory:", ""):
        raise ValueError(
            "is a SQLite database in memory, in which no one else can write: write sqlite:////path/to/file"
        )
    return value


def _require_driver(url: URL) -> None:
    """ValueError when the dialect or its driver is not installed, with the command that installs it."""
    try:
        dialect = url.get_dialect()
        dialect.import_dbapi()
    except sa.exc.NoSuchModuleError:
        package = _DIALECTS.get(url.get_backend_name())
        raise ValueError(
            f"names a dialect that SQLAlchemy does not know: {url.drivername}; "
            + (f"pip install {package}" if package else "install the package that brings it, if there is one")
        ) from None
    except ImportError as error:
        module = (error.name or url.get_driver_name()).partition(".")[0]
        other = _INCLUDED.get(url.get_backend_name())
        raise ValueError(
            f"needs a driver that is not installed: pip install {_PACKAGES.get(module, module)}"
            + (f", or write {other}://" if other else "")
        ) from None
    if dialect.is_async:
        raise ValueError(f"names an asynchronous driver, {url.get_driver_name()}: name another one of this dialect")


class TableOptions(PartOptions):
    """An entry of `tables`.

    table: its name, with its schema where that is not the default. query: what is read in place of a table, under
    `name`. key: the columns that rows are read in the order of; the primary key unless said. where: an SQL condition.
    columns: which ones events have. text: columns that are given as text, whatever they hold. timestamp: the column
    that is the event's time. start_at: in place of the section's.
    """

    table: str = ""
    query: str = ""
    name: str = ""
    key: Names = ()
    where: str = ""
    columns: Names = ()
    text: Names = ()
    timestamp: str = ""
    start_at: StartAt | None = None

    @model_validator(mode="after")
    def _is_table_or_query(self) -> Self:
        if bool(self.table) == bool(self.query):
            raise ValueError("must have a table or a query, one of the two")
        if self.query and not (self.name and self.key):
            raise ValueError("is a query: it needs a name, for its events, and a key to read by")
        if self.table and self.name:
            raise ValueError("has a name, which only a query needs")
        TableName.parse(self.called)
        return self

    @property
    def called(self) -> str:
        """The table's name, or the query's, as it was written."""
        return self.table or self.name


def _as_table_entry(value: object) -> object:
    return {"table": value} if isinstance(value, str) else value


def _require_distinct(tables: tuple[TableOptions, ...]) -> tuple[TableOptions, ...]:
    names = [entry.called for entry in tables]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"names {', '.join(twice)} twice")
    return tables


def _settle(value: Any) -> Any:
    return None if value == "auto" else value


class SqlOptions(SourceOptions):
    """[source.NAME] type = "sql".

    settle: seconds for which a row must have been there before it is read; None ("auto"): 0 where the server says which
    transactions write to a table and no time is in its key, 5 elsewhere. timeout: seconds for each look at the
    database. batch_size: rows.
    unsafe_sequences: whether tables are read whose keys may be committed out of order for other reasons than
    concurrency. shrunk_tables: what to do when the largest key of a table is smaller than the last one read.
    """

    url: Annotated[SecretStr, AfterValidator(_check_url)] = Field(min_length=1)
    tables: Annotated[
        tuple[Annotated[TableOptions, BeforeValidator(_as_table_entry)], ...],
        Field(min_length=1),
        AfterValidator(_require_distinct),
    ]
    poll_interval: Annotated[PositiveDuration, refuse_longer_than("24h", "a source")] = 1.0
    batch_size: int = Field(default=10_000, gt=0, le=_MOST_ROWS)
    settle: Annotated[
        Annotated[Duration, Field(ge=0), refuse_longer_than("24h", "a source")] | None, BeforeValidator(_settle)
    ] = None
    start_at: StartAt = (BEGINNING,)
    timeout: PositiveDuration = 30.0
    unsafe_sequences: Literal["refuse", "accept"] = "refuse"
    shrunk_tables: Literal["stop", "accept"] = "stop"

    @property
    def engine_url(self) -> URL:
        """The URL in the clear: for SQLAlchemy alone."""
        return make_url(self.url.get_secret_value())

    def find_start(self, table: TableOptions) -> tuple[int | str, ...]:
        """Where reading of a table starts that has no position yet."""
        return table.start_at or self.start_at

    def find_start_key(self, table: TableOptions) -> tuple[int | str, ...] | None:
        """The key that `startAt` gives for a table; None for "beginning" and "now"."""
        start = self.find_start(table)
        return None if start in ((BEGINNING,), (NOW,)) else start

    def list_warnings(self) -> Iterator[str]:
        for table in self.tables:
            start = self.find_start_key(table)
            if start is not None and table.key and len(start) != len(table.key):
                yield f"{table.called}: startAt has {len(start)} values, and the key {len(table.key)} columns"
