"""What a request means in the server: which tables, and why one cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import pymysql

from psql_streamer.errors import SourceRefused
from psql_streamer.snapshot.table_runs import TableRun
from psql_streamer.snapshots import SnapshotRequest, TableRequest
from psql_streamer.table_patterns import is_pattern
from sources.mysql.server import Session
from sources.mysql.snapshot.conditions import require_condition
from sources.mysql.snapshot.selects import select_condition
from sources.mysql.snapshot.tables import SnapshotTable, list_snapshot_tables
from sources.snapshot.conditions import make_table_matcher, require_requested

_LOCK_SECONDS = 1
"""The time for which a condition's table is waited for."""
_LOCK_WAIT_TIMEOUT = 1205

Wanted = Callable[[str, str], bool]

_MAY_READ = re.compile(r"GRANT .*\b(SELECT|ALL PRIVILEGES)\b.* ON ", re.IGNORECASE)

SEES_NOTHING = "the account sees none of the tables that are streamed"
GRANT = "GRANT SELECT ON the tables TO the account of the dsn"


def find_tables(
    asking: Session, requested: Sequence[TableRequest], wanted: Wanted, where: Mapping[str, str] = MappingProxyType({})
) -> list[tuple[SnapshotTable, str]]:
    """The tables that are asked for, each with its condition. requested, where: as of make_table_matcher."""
    match = make_table_matcher(requested, where)
    found = []
    for table in list_snapshot_tables(asking, wanted):
        condition = match(table.relation.schema, table.relation.table)
        if condition is not None:
            found.append((table, condition))
    return found


def plan_tables(
    asking: Session, requested: Sequence[TableRequest], wanted: Wanted, where: Mapping[str, str]
) -> list[TableRun]:
    """The tables of a snapshot; those that cannot be read have failed already, and say why.

    SourceRefused when none can be, whichever it is.
    """
    require_states(asking)
    found = find_tables(asking, requested, wanted, where)
    if not found and not may_read(asking):
        raise SourceRefused(SEES_NOTHING, GRANT)
    runs = []
    for table, condition in found:
        run = TableRun(str(table.relation), table.relation.id, condition, estimated_rows=table.estimated_rows)
        if table.refusal:
            run.fail(": ".join(table.refusal))
        runs.append(run)
    return runs


def require_states(asking: Session) -> None:
    """SourceRefused when the server cannot say which transactions a reading sees."""
    if not asking.has_gtids:
        raise SourceRefused(
            f"gtid_mode is {asking.settings.get('gtid_mode', 'OFF')}: nothing says which transactions a reading sees",
            "turn GTIDs on (gtid_mode = ON, enforce_gtid_consistency = ON) and forget the position, or read the rows "
            "once with a source of the type sql",
        )


def may_read(asking: Session) -> bool:
    """Whether the account has SELECT on anything, as far as it can be seen."""
    return any(_MAY_READ.search(str(grant)) for (grant,) in asking.read_rows("SHOW GRANTS"))


def review(asking: Session, request: SnapshotRequest, wanted: Wanted) -> None:
    """SourceRefused when the request names a table that is not streamed, or one that cannot be read, or has a condition
    that is none.
    """
    require_requested(request.tables, require_condition)
    require_states(asking)
    prepare_conditions(asking)
    found = find_tables(asking, request.tables, wanted)
    names = {name for table, _ in found for name in (str(table.relation), table.relation.table)}
    for one in request.tables:
        if not is_pattern(one.table) and one.table not in names:
            raise SourceRefused(
                f"{one.table} is not streamed, or is not there, or the account does not see it",
                f"name a table that the options tables and excludeTables let through; or {GRANT}",
            )
    if not found:
        raise SourceRefused("none of these tables is streamed and seen", f"name others, or {GRANT}")
    for table, where in found:
        exactly = any(one.table in (str(table.relation), table.relation.table) for one in request.tables)
        if exactly and table.refusal:
            raise SourceRefused(*table.refusal)
        if where and not table.refusal and (told := find_condition_error(asking, table, where)):
            raise SourceRefused(f"the server refuses the condition of {table.relation} {told}", "correct the condition")


def prepare_conditions(asking: Session) -> None:
    """Conditions mean to this session what they mean to those that read, and it does not wait long for tables."""
    asking.read_rows(f"SET SESSION sql_mode = '', lock_wait_timeout = {_LOCK_SECONDS}")


def find_condition_error(asking: Session, table: SnapshotTable, condition: str) -> str:
    """Why the server refuses a condition; empty for one that it takes, or whose table is locked. Nothing is read."""
    try:
        asking.read_rows(f"EXPLAIN {select_condition(table, condition)}")
    except pymysql.Error as error:
        if error.args[0] != _LOCK_WAIT_TIMEOUT:
            return f"(error {error.args[0]}): {error.args[-1]}"
    return ""
