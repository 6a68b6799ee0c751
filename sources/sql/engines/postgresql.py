"""PostgreSQL: text forms by the server, writers by their locks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from psql_streamer.errors import SourceRefused
from psql_streamer.interfaces import Finding, Severity
from psql_streamer.model import TextType
from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes.builtin import BY_OID, OIDS
from sources.sql import values
from sources.sql.engines.engine import AnyEngine, Described, Result, Writers, as_it_is, make_type
from sources.sql.engines.postgresql_keys import (
    FAMILIES,
    find_unknown_givers,
    name_families,
    quote_table,
    read_table_keys,
)
from sources.sql.engines.table_keys import TableKeys
from sources.sql.names import TableName

_SETTINGS = """
SET datestyle = 'ISO'; SET timezone = 'UTC'; SET intervalstyle = 'iso_8601'; SET bytea_output = 'hex';
SET extra_float_digits = 1; SET lc_monetary = 'C'; SET client_encoding = 'UTF8';
SET default_transaction_read_only = on; SET statement_timeout = {milliseconds};
SET lock_timeout = {lock_milliseconds}; SET client_min_messages = warning
"""
"""Not among the `options` of the connection, which PgBouncer refuses."""

_COLUMNS = sa.text("""
SELECT a.attname, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE a.atttypid END::bigint,
    CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE a.atttypmod END, format_type(a.atttypid, a.atttypmod), a.attnotnull
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(:table) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
""")

_TELLS = sa.text(
    FAMILIES
    + """
SELECT root, bool_and(c.relkind IN ('r', 'p')) AND NOT pg_is_in_recovery()
FROM family JOIN pg_class c USING (oid) GROUP BY root
"""
)
"""Writers to what is behind a view or a foreign table hold no lock on it; a standby shows no lock of its primary."""

_WRITERS = sa.text(
    FAMILIES  # noqa: S608 - both are texts of this file
    + """
SELECT DISTINCT f.root, l.virtualtransaction
FROM pg_locks l JOIN (SELECT root, oid FROM family UNION ALL SELECT root, oid FROM sequences) f ON f.oid = l.relation
WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
)

_SEQUENCES = sa.text(
    FAMILIES
    + """
SELECT DISTINCT s.oid::regclass::text, q.seqcache, q.seqincrement, q.seqcycle
FROM sequences s JOIN pg_sequence q ON q.seqrelid = s.oid
"""
)

_HIGHEST = sa.text(
    FAMILIES
    + """
SELECT max(pg_sequence_last_value(s.oid)) FROM sequences s
WHERE has_sequence_privilege(s.oid, 'USAGE') OR has_sequence_privilege(s.oid, 'SELECT')
"""
)

_NARROW = sa.text(
    FAMILIES
    + """
SELECT bool_and(c.relkind IN ('r', 'p', 'm') AND (c.reltoastrelid = 0 OR pg_relation_size(c.reltoastrelid) = 0))
FROM family JOIN pg_class c USING (oid)
"""
)

_WIDE_ROWS_AT_ONCE, _NARROW_ROWS_AT_ONCE = 64, 2500

_LOCK_MILLISECONDS = 200
"""Less than deadlock_timeout: nobody else is ended because of this wait."""

_CASTS_DIFFER = {OIDS["bool"], OIDS["bpchar"], OIDS["inet"]}
"""Types whose cast to text is not their text form (PostgreSQL source, src/include/catalog/pg_cast.dat)."""

_UNORDERED = {OIDS[name] for name in ("bool", "bytea", "float4", "float8", "json", "jsonb", "xml", "money", "point")}

_PREPARED = "-1/"
"""What the virtualtransaction of a prepared transaction begins with (PostgreSQL source, lockfuncs.c)."""


class PostgresqlEngine(AnyEngine):
    """A transaction that writes to a table holds RowExclusiveLock on it, and one that has taken a value of a sequence
    holds it on the sequence, both to its end (PostgreSQL documentation, "Explicit Locking"; sequence.c, init_sequence).
    """

    recommends: ClassVar[str] = "postgres"
    keys_are_near: ClassVar[bool] = True
    compares_rows: ClassVar[bool] = True
    reflects_together: ClassVar[bool] = True
    selects_without_table: ClassVar[bool] = True

    def create(self) -> Engine:
        engine = super().create()
        milliseconds, of_locks = (max(1, int(one * 1000)) for one in (self._timeout, self._lock_timeout))
        # A lock that is waited for as long as anything else is told of by statement_timeout.
        of_locks = 0 if of_locks == milliseconds else of_locks
        settings = _SETTINGS.format(milliseconds=milliseconds, lock_milliseconds=of_locks)

        def set_forms(connection: Any, _: object) -> None:
            with connection.cursor() as cursor:
                cursor.execute(settings)
            connection.commit()

        sa.event.listen(engine, "connect", set_forms)
        return engine

    def connect_arguments(self) -> Mapping[str, Any]:
        return {} if "connect_timeout" in self._url.query else {"connect_timeout": max(2, int(self._timeout))}

    def cancel(self, connection: Any) -> None:
        connection.cancel()

    def read_identity(self, connection: Connection) -> Mapping[str, str]:
        may = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
        if not connection.exec_driver_sql(may).scalar():
            return {}
        return {"system identifier": str(connection.exec_driver_sql(_SYSTEM).scalar())}

    def describe(self, connection: Connection, table: TableName) -> Sequence[Described]:
        found = connection.execute(_COLUMNS, {"table": quote_table(table)}).all()
        if not found:
            raise SourceRefused(f"table {table} does not exist", "correct tables in the configuration, or create it")
        return [
            _describe_column(name, PostgresType(oid, modifier), native, not required)
            for name, oid, modifier, native, required in found
        ]

    def read_keys(self, connection: Connection, table: TableName) -> TableKeys:
        return self.read_keys_of(connection, [table])[0]

    def read_keys_of(self, connection: Connection, tables: Sequence[TableName]) -> Sequence[TableKeys]:
        return read_table_keys(connection, tables)

    def describe_query(self, connection: Connection, query: sa.TextClause) -> Sequence[Described]:
        with connection.execute(sa.select(sa.text("*")).select_from(query).where(sa.false())) as result:
            columns = [(one[0], one[1]) for one in result.cursor.description or ()]
        names = connection.execute(_TYPE_NAMES, {"oids": [oid for _, oid in columns]}).all()
        by_oid = {oid: (PostgresType(base), native) for oid, base, native in names}
        return [_describe_column(name, *by_oid[oid], True) for name, oid in columns]

    def count_rows_at_once(self, connection: Connection, table: TableName | None, most: int) -> int:
        """Each turn is a round trip. Where no value of a table is stored out of line, its rows lie in a page each."""
        if most <= _WIDE_ROWS_AT_ONCE:
            return most
        narrow = table is not None and connection.execute(_NARROW, name_families([(table, [])])).scalar()
        return min(most, _NARROW_ROWS_AT_ONCE if narrow else _WIDE_ROWS_AT_ONCE)

    def make_impatient(self, work: Callable[[Connection], Result]) -> Callable[[Connection], Result]:
        def look(connection: Connection) -> Result:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}")
            return work(connection)

        return look

    def are_writers_told(self, connection: Connection, table: TableName, key: Sequence[str]) -> bool:
        return 1 in _find_telling(connection, name_families([(table, key)]))

    def find_writers(self, connection: Connection, table: TableName, key: Sequence[str]) -> Writers | None:
        return self.find_writers_of(connection, [(table, key)])[0]

    def find_writers_of(
        self, connection: Connection, tables: Sequence[tuple[TableName, Sequence[str]]]
    ) -> Sequence[Writers | None]:
        what = name_families(tables)
        telling = _find_telling(connection, what)
        names: dict[int, set[str]] = {root: set() for root in telling}
        for root, name in connection.execute(_WRITERS, what) if telling else ():
            if root in names:
                names[root].add(str(name))
        now = time.monotonic()
        return [_make_writers(names[at], now) if at in names else None for at in range(1, len(tables) + 1)]

    def find_highest_given(self, connection: Connection, table: TableName, key: str) -> int | None:
        found = connection.execute(_HIGHEST, name_families([(table, [key])])).scalar()
        return None if found is None else int(found)

    def find_sequence_problem(self, connection: Connection, table: TableName, key: Sequence[str]) -> str:
        for name, cache, increment, cycles in connection.execute(_SEQUENCES, name_families([(table, key)])):
            if cache > 1:
                return f"sequence {name} has CACHE {cache}: sessions use values that they took earlier"
            if increment < 0:
                return f"sequence {name} has INCREMENT {increment}: its values descend"
            if cycles:
                return f"sequence {name} has CYCLE: its values start over"
        return ""

    def check(self, connection: Connection) -> Iterable[Finding]:
        if connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar():
            yield Finding(
                Severity.WARNING,
                "the server is a standby, which does not show who writes to a table: rows are read after `settle`",
                "let the url name the primary, or set settle longer than the longest transaction and the standby's lag",
            )

    def check_table(self, connection: Connection, table: TableName, key: Sequence[str]) -> Iterable[Finding]:
        yield from find_unknown_givers(connection, table, key)


_SYSTEM = "SELECT system_identifier FROM pg_control_system()"

_TYPE_NAMES = sa.text("""
SELECT oid::bigint, CASE typtype WHEN 'd' THEN typbasetype ELSE oid END::bigint, format_type(oid, -1)
FROM pg_type WHERE oid = ANY (CAST(:oids AS oid[]))
""")
"""With -1 in place of NULL the names are those of any length: `character` alone is of length 1."""


def _describe_column(name: str, form: PostgresType, native: str, nullable: bool) -> Described:
    selected = form.oid
    if form.oid not in BY_OID:
        form = make_type("text")
    return Described(
        name,
        TextType(native, form),
        nullable,
        select=_format_column if selected in _CASTS_DIFFER else as_it_is if selected in _TEXTS else _cast,
        render=values.render_known,
        ordered=form.oid not in _UNORDERED and BY_OID[form.oid].element is None,
        bind=sa.literal if selected in _COMPARED_AS_THEY_ARE else partial(_bind, native),
        endless=_ENDLESS.get(selected),
    )


_TEXTS = {OIDS["text"], OIDS["varchar"]}
_COMPARED_AS_THEY_ARE = _TEXTS | {OIDS["int2"], OIDS["int4"], OIDS["int8"]}


class _Native(sa.types.UserDefinedType[Any]):
    """A type by its name in SQL."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


_ENDLESS = {
    OIDS[name]: sa.cast(sa.literal("infinity"), _Native(name))
    for name in ("numeric", "date", "timestamp", "timestamptz")
}
"""Behind the infinity of numeric there is NaN alone."""


def _bind(native: str, value: int | str) -> sa.ColumnElement[Any]:
    return sa.cast(sa.literal(value), _Native(native))


def _cast(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.cast(column, sa.Text)


def _format_column(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.case((column.is_not(None), sa.func.format("%s", column)))


def _find_telling(connection: Connection, what: Mapping[str, Any]) -> set[int]:
    """Places of the tables whose writers hold locks that can be seen."""
    return {int(root) for root, tells in connection.execute(_TELLS, what) if tells}


def _make_writers(names: Iterable[str], looked_at: float) -> Writers:
    known = frozenset(names)
    return Writers(known, looked_at, frozenset(name for name in known if name.startswith(_PREPARED)))
