"""What a request means in the database: which tables, and why one cannot be read."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

import psycopg2
import psycopg2.errors

from psql_streamer.errors import SourceRefused
from psql_streamer.nearest import suggest_nearest
from psql_streamer.snapshot.table_runs import TableRun
from psql_streamer.snapshots import SnapshotRequest, TableRequest
from psql_streamer.table_patterns import is_pattern
from sources.postgres.catalog import Session
from sources.postgres.server_types import ServerTypes
from sources.postgres.snapshot.conditions import require_condition
from sources.postgres.snapshot.selects import select_condition
from sources.postgres.snapshot.tables import SnapshotTable, describe_shape, find_refusal, list_snapshot_tables
from sources.snapshot.conditions import make_table_matcher, require_requested

_LOCK_SECONDS = 1
"""The time for which a condition's table is waited for."""


def find_tables(
    session: Session,
    requested: Sequence[TableRequest],
    publications: Sequence[str],
    types: ServerTypes,
    where: Mapping[str, str] = MappingProxyType({}),
) -> list[tuple[SnapshotTable, str]]:
    """The tables that are asked for, each with its condition; without row filters. requested, where: as of
    make_table_matcher.
    """
    match = make_table_matcher(requested, where)
    found = []
    for table in list_snapshot_tables(session, publications, types.resolve, filters=False):
        condition = match(table.relation.schema, table.relation.table)
        if condition is not None:
            found.append((table, condition))
    return found


def plan_tables(
    session: Session,
    requested: Sequence[TableRequest],
    publications: Sequence[str],
    types: ServerTypes,
    keyless: Container[str],
    where: Mapping[str, str],
) -> list[tuple[TableRun, SnapshotTable]]:
    """The tables of a snapshot; those that cannot be read have failed already, and say why.

    keyless: ids of relations without a key that can be read all the same. requested, where: as of make_table_matcher.
    """
    found = []
    for table, condition in find_tables(session, requested, publications, types, where):
        relation = table.relation.id
        run = TableRun(str(table.relation), relation, condition, estimated_rows=table.estimated_rows)
        run.keyless = relation in keyless
        # What keeps a first start from reading a table without a key comes first: it would not miss the key.
        if not run.keyless and (refused := find_refusal(session, table) or table.missing_key):
            run.fail(": ".join(refused))
        found.append((run, table))
    return found


def find_keyless(
    session: Session, requested: Sequence[TableRequest], publications: Sequence[str], types: ServerTypes
) -> list[SnapshotTable]:
    """Those of the tables that have no key, and that this role may read. Without their row filters, for which the
    server waits for locks: of tables, too, that have a key.
    """
    found = find_tables(session, requested, publications, types)
    return [table for table, _ in found if _is_keyless(session, table)]


def describe_keyless(
    session: Session, oid: int, publications: Sequence[str], types: ServerTypes
) -> SnapshotTable | None:
    """A table as it is, with its row filter; None where it is none that find_keyless finds. Its lock is held."""
    table = describe_shape(session, oid, publications, types.resolve)
    return table if table is not None and _is_keyless(session, table) else None


def _is_keyless(session: Session, table: SnapshotTable) -> bool:
    return not table.key and bool(table.parts) and find_refusal(session, table) is None


def review(session: Session, request: SnapshotRequest, publications: Sequence[str], types: ServerTypes) -> None:
    """SourceRefused when the request names a table that is not streamed, or one that cannot be read, or has a condition
    that is none.
    """
    require_requested(request.tables, require_condition)
    pin_names(session)
    found = find_tables(session, request.tables, publications, types)
    if request.keys is not None:
        for table, _ in found:
            if refused := find_keys_refusal(table):
                raise SourceRefused(*refused)
    names = {name for table, _ in found for name in (str(table.relation), table.relation.table)}
    listed = ", ".join(f'"{name}"' for name in publications)
    for one in request.tables:
        if not is_pattern(one.table) and one.table not in names:
            raise SourceRefused(
                f"the publication {listed} has no table {one.table}",
                _find_remedy_for_unpublished(session, one.table, publications, types),
            )
    if not found:
        raise SourceRefused(f"the publication {listed} has none of these tables", "name a table that it has")
    for table, where in found:
        refused = table.missing_key or find_refusal(session, table)
        exactly = any(one.table in (str(table.relation), table.relation.table) for one in request.tables)
        if exactly and refused:
            raise SourceRefused(*refused)
        if where and not refused:
            _require_taken_condition(session, publications, table, where)


def pin_names(session: Session) -> None:
    """Names in conditions mean to this session what they mean to those that read."""
    session.read_rows("SELECT set_config('search_path', '', false)")


def find_condition_error(
    session: Session, publications: Sequence[str], table: SnapshotTable, condition: str
) -> psycopg2.Error | None:
    """Why the server refuses a condition; None for one that it takes. Nothing is read.

    LockNotAvailable where it cannot be asked, because somebody has locked the table.
    """
    session.read_rows("SELECT set_config('lock_timeout', %s, false)", f"{_LOCK_SECONDS}s")
    try:
        as_it_is = describe_shape(session, table.oid, publications, lambda _: None) or table
        session.read_rows(f"EXPLAIN {select_condition(as_it_is, condition)}")
    except psycopg2.Error as error:
        if error.pgcode is None or isinstance(error, psycopg2.errors.LockNotAvailable):
            raise
        return error
    finally:
        session.read_rows("SELECT set_config('lock_timeout', '0', false)")
    return None


def _require_taken_condition(
    session: Session, publications: Sequence[str], table: SnapshotTable, condition: str
) -> None:
    try:
        error = find_condition_error(session, publications, table, condition)
    except psycopg2.errors.LockNotAvailable:
        return  # whoever asks is not kept waiting for others: the table fails later if the server refuses it
    if error is not None:
        raise SourceRefused(
            f"the server refuses the condition of {table.relation}: {error.diag.message_primary}",
            "correct the condition: names outside of pg_catalog need their schema",
        )


def find_keys_refusal(table: SnapshotTable) -> tuple[str, str] | None:
    """Why nobody can say which keys of the table are gone: what, and the remedy. None where one can."""
    if table.all_rows_are_streamed:
        return None
    what = (
        f"the publications do not stream both inserts and updates of {table.relation}: a row that comes while its key "
        "is looked up would not be seen"
    )
    return what, "ALTER PUBLICATION ... SET (publish = 'insert, update, delete, truncate')"


# A publication FOR ALL TABLES takes no others (PostgreSQL documentation, ALTER PUBLICATION).
_CAN_BE_ADDED = """
SELECT format('ALTER PUBLICATION %%I ADD TABLE %%I.%%I', p.pubname, n.nspname, c.relname)
FROM pg_catalog.pg_publication p, pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = ANY(%s) AND NOT p.puballtables AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
    AND n.nspname !~ '^pg_|^information_schema$' AND %s IN (n.nspname || '.' || c.relname, c.relname)
ORDER BY p.pubname, n.nspname LIMIT 1
"""


def _find_remedy_for_unpublished(session: Session, name: str, publications: Sequence[str], types: ServerTypes) -> str:
    """Add a table that is there; where none is, it may be another one that is published."""
    can_be_added = session.read_rows(_CAN_BE_ADDED, list(publications), name)
    if can_be_added:
        return f"{can_be_added[0][0]}, or name another table"
    published = [table.relation for table, _ in find_tables(session, (), publications, types)]
    known = [str(one) if "." in name else one.table for one in published]
    return f"name a table that it has{suggest_nearest(name, known)}"
