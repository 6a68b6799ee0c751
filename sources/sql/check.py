"""What `check` looks at before a `sql` source is started; nothing is changed in the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy.engine import Connection

from psql_streamer.errors import SourceError
from psql_streamer.interfaces import Finding, Severity
from sources.sql.database import Database
from sources.sql.groups import look_at_each, split_in_groups
from sources.sql.options import SqlOptions
from sources.sql.polled_table import PolledTable
from sources.sql.watched_table import SETTLE_REMEDY, describe_unsettled_risk, explain_by_time


def check_source(options: SqlOptions, database: Database) -> Iterator[Finding]:
    """Everything that would keep the source from working, and what may surprise."""
    try:
        yield from database.look(lambda connection: list(_check_server(connection, database)), "connecting")
        schema = database.look(lambda connection: connection.dialect.default_schema_name or "", "asking for the schema")
        tables = [PolledTable(entry, database.kind, schema) for entry in options.tables]
        for group in split_in_groups(tables):
            yield from _look_at_group(group, options, database)
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)
    finally:
        database.close()


def _check_server(connection: Connection, database: Database) -> Iterator[Finding]:
    if database.kind.recommends:
        yield Finding(
            Severity.WARNING,
            "rows are found by polling: UPDATE and DELETE are not seen",
            f'for this server the source type = "{database.kind.recommends}" sees every change; stay with this one if '
            "rows are only added, or its rights are not to be had",
        )
    yield from database.kind.check(connection)


def _look_at_group(tables: Sequence[PolledTable], options: SqlOptions, database: Database) -> Iterator[Finding]:
    """Together, or one by one if something is wrong with one of them."""

    def look(connection: Connection, table: PolledTable) -> list[Finding]:
        return list(_check_table(table, options, database, connection))

    try:
        found = list(look_at_each(database, tables, look, "looking at table"))
    except SourceError:
        for table in tables:
            yield from _look_at_table(table, options, database)
    else:
        for some in found:
            yield from some


def _look_at_table(table: PolledTable, options: SqlOptions, database: Database) -> Iterator[Finding]:
    try:
        yield from database.look(
            lambda connection: list(_check_table(table, options, database, connection)), f"looking at table {table.id}"
        )
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)


def _check_table(
    table: PolledTable, options: SqlOptions, database: Database, connection: Connection
) -> Iterator[Finding]:
    table.look(connection)
    table.require_unique_key()
    table.find_largest(connection)  # which needs the right to read it
    if start := options.find_start_key(table.options):
        table.require_start(start)
    table.try_conditions(connection, start)
    if unsafe := table.find_sequence_problem(connection):
        refused = options.unsafe_sequences == "refuse"
        yield Finding(
            Severity.ERROR if refused else Severity.WARNING,
            f"table {table.id}: {unsafe}, and rows are committed out of the order of their keys",
            'ALTER SEQUENCE ... CACHE 1 INCREMENT 1 NO CYCLE, or set settle long enough and unsafeSequences = "accept"',
        )
    yield from _check_keys_that_are_not_read(table, connection)
    if not table.is_query and not table.has_integer_key:
        yield Finding(
            Severity.WARNING,
            f"table {table.id} has no integer key: rows are read in the order of ({', '.join(table.key)}), and a row "
            "that is added with a smaller key than the last one that was read is not seen",
            "nothing to do if the keys ascend; random ones, such as UUIDs, do not: name other columns as its key",
        )
    if by_time := explain_by_time(database.kind, table, connection):
        warning = describe_unsettled_risk(database.kind, table.id, options.settle)
        if not warning and table.has_time_in_key:
            warning = f"rows of {table.id} are read `settle` after they were seen: {by_time}"
        if warning:
            yield Finding(Severity.WARNING, warning, SETTLE_REMEDY)
    if not table.has_index(connection):
        yield Finding(
            Severity.WARNING,
            f"table {table.id} has no index on its key ({', '.join(table.key)}): every poll reads the whole table",
            f"CREATE INDEX ON {table.id} ({', '.join(table.key)})",
        )
    if not table.is_query:
        yield from database.kind.check_table(connection, table.name, table.key)


def _check_keys_that_are_not_read(table: PolledTable, connection: Connection) -> Iterator[Finding]:
    if nullable := table.list_nullable_key_columns():
        yield Finding(
            Severity.WARNING,
            f"table {table.id}: rows in which {', '.join(nullable)} is NULL are not read",
            "declare the columns NOT NULL (nothing to do for a view that has no such rows), or name others as its key",
        )
    if table.has_endless_keys(connection):
        yield Finding(
            Severity.WARNING,
            f"table {table.id}: rows in which {table.key[0]} is infinity or NaN are not read: such a key is larger "
            "than all others that can come",
            "correct the rows, or name other columns as its key",
        )
