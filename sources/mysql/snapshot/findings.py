"""What `check` says of the snapshot that a `mysql` source is to take; nothing is changed on the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pymysql

from psql_streamer.errors import SourceRefused
from psql_streamer.interfaces import Finding, Severity
from psql_streamer.table_patterns import TablePatterns
from sources.mysql.server import Session
from sources.mysql.snapshot.options import SnapshotOptions
from sources.mysql.snapshot.requests import (
    GRANT,
    SEES_NOTHING,
    Wanted,
    find_condition_error,
    may_read,
    prepare_conditions,
    require_states,
)
from sources.mysql.snapshot.selects import select_nothing
from sources.mysql.snapshot.tables import SnapshotTable, list_snapshot_tables
from sources.snapshot.options import SnapshotMode

_DENIED = {1142, 1143, 1044, 1370}


def check_snapshot(asking: Session, options: SnapshotOptions, wanted: Wanted) -> Iterator[Finding]:
    """What would keep tables from being read; nothing where no snapshot is to be taken."""
    if options.mode is SnapshotMode.NEVER:
        return
    try:
        require_states(asking)
    except SourceRefused as error:
        yield Finding(Severity.WARNING, f"{error.what}: no snapshot is taken", error.remedy)
        return
    prepare_conditions(asking)
    streamed = list_snapshot_tables(asking, wanted)
    if not streamed and not may_read(asking):
        yield Finding(Severity.WARNING, f"{SEES_NOTHING}: the snapshot is of none", GRANT)
        return
    yield from _check_entries(options, streamed)
    for table in streamed:
        if options.wants(table.relation.schema, table.relation.table):
            yield from _check_table(asking, options, table)


def _check_entries(options: SnapshotOptions, streamed: Sequence[SnapshotTable]) -> Iterator[Finding]:
    for key, entries in (("tables", options.tables), ("where", options.where)):
        for entry in entries:
            fits = TablePatterns({entry: None}).find
            if not any(fits(table.relation.schema, table.relation.table) for table in streamed):
                yield Finding(
                    Severity.WARNING,
                    f'snapshot.{key} has "{entry}", which is no table that is streamed and that the account sees',
                    f"correct the name, or {GRANT}",
                )


def _check_table(asking: Session, options: SnapshotOptions, table: SnapshotTable) -> Iterator[Finding]:
    if table.refusal:
        what, remedy = table.refusal
        yield Finding(Severity.WARNING, f"{what}: the snapshot leaves the table out", remedy)
        return
    try:
        asking.read_rows(select_nothing(table))
    except pymysql.Error as error:
        if error.args[0] not in _DENIED:
            raise
        account = str(asking.read_value("SELECT CURRENT_USER()")).replace("@", "'@'")
        yield Finding(
            Severity.WARNING,
            f"the account may not read {table.relation}: the snapshot leaves the table out",
            f"GRANT SELECT ON {table.name} TO '{account}'",
        )
        return
    condition = options.find_condition(table.relation.schema, table.relation.table)
    if condition and (told := find_condition_error(asking, table, condition)):
        yield Finding(
            Severity.ERROR,
            f"the server refuses the condition of {table.relation} {told}",
            "correct snapshot.where",
        )
