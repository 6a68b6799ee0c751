"""What `check` looks at before a `postgres` source is started; nothing is changed on the server."""

from __future__ import annotations

from collections.abc import Iterator

from psql_streamer.errors import SourceError
from psql_streamer.interfaces import Finding, Severity
from sources.postgres.catalog import Catalog, Session, Slot
from sources.postgres.options import PostgresOptions
from sources.postgres.positions import make_gap_error
from sources.postgres.server_errors import SlotInUse
from sources.postgres.snapshot.findings import check_snapshot
from sources.postgres.snapshot.tables import list_snapshot_tables
from sources.postgres.standby_slots import check_failover, require_readable

_OLDEST = 140000
_WITHOUT_IDENTITY = """
SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%s::bigint[]::oid[]) AND c.relreplident <> 'f' AND NOT EXISTS (
    SELECT FROM pg_index WHERE indrelid = c.oid AND CASE c.relreplident
        WHEN 'd' THEN indisprimary AND indimmediate  -- a deferrable primary key is no identity
        WHEN 'i' THEN indisreplident  -- false, too, once the index is dropped
        ELSE false
    END
)
ORDER BY 1
"""
_OF_OLD_ROWS = "SELECT pubname FROM pg_publication WHERE pubname = ANY(%s) AND (pubupdate OR pubdelete)"

# Column lists and row filters came with PostgreSQL 15. A filter's columns are known by what it depends on, and
# so are a list's, which is why a filter beside a list is not looked at.
_LISTS_AND_FILTERS = 150000
_PARTLY_PUBLISHED = """
SELECT DISTINCT format('%%I.%%I', n.nspname, c.relname), r.prattrs IS NOT NULL
FROM pg_publication p
JOIN pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_class c ON c.oid = r.prrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indrelid = c.oid
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END
WHERE pubname = ANY(%s) AND (p.pubupdate OR p.pubdelete) AND CASE
    WHEN r.prattrs IS NOT NULL THEN c.relreplident = 'f' OR a.attnum = ANY (i.indkey) AND a.attnum <> ALL (r.prattrs)
    WHEN r.prqual IS NOT NULL THEN a.attnum <> ALL (i.indkey) AND EXISTS (
        SELECT FROM pg_depend WHERE classid = 'pg_publication_rel'::regclass AND objid = r.oid
            AND refclassid = 'pg_class'::regclass AND refobjid = c.oid AND refobjsubid = a.attnum
    )
    ELSE false
END
ORDER BY 1
"""
# Named tables cannot be UNLOGGED; partitions of named ones, and what a publication has without naming it, can.
_UNLOGGED = """
SELECT DISTINCT format('%%I.%%I', n.nspname, c.relname)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_publication p ON p.pubname = ANY(%s)
WHERE c.relpersistence = 'u' AND c.relkind = 'r' AND (
    p.puballtables
    OR EXISTS (
        SELECT FROM pg_publication_rel r JOIN pg_partition_ancestors(c.oid) a ON r.prrelid = a.relid
        WHERE r.prpubid = p.oid
    )
    {in_schemas}
)
ORDER BY 1
"""
_UNLOGGED_IN_SCHEMAS = """
    OR EXISTS (
        SELECT FROM pg_publication_namespace s JOIN pg_class named ON named.relnamespace = s.pnnspid
        WHERE s.pnpubid = p.oid
            AND (named.oid = c.oid OR named.oid IN (SELECT relid FROM pg_partition_ancestors(c.oid)))
    )
"""
# Amazon RDS lets the members of a role replicate, whose attribute nobody may set there.
_MAY_REPLICATE = """
SELECT rolname, rolreplication OR rolsuper OR EXISTS (
    SELECT FROM pg_roles of_rds WHERE of_rds.rolname = 'rds_replication' AND pg_has_role(me.oid, of_rds.oid, 'MEMBER')
) FROM pg_roles me WHERE rolname = current_user
"""
_PEEK_SECONDS = 3

_COLUMN_LIST = (
    "the column list of {} does not go with its replica identity",
    "list all columns of the replica identity of {}, which must not be FULL",
)
_ROW_FILTER = (
    "the row filter of {} uses a column outside of its replica identity",
    "ALTER TABLE {} REPLICA IDENTITY FULL, or filter by columns of its key",
)


def check_source(options: PostgresOptions, catalog: Catalog, source: str, application_name: str) -> Iterator[Finding]:
    """Everything that would keep the source from working, and what may surprise.

    source: its name, for messages. application_name: of its own sessions, by which a service that runs is known.
    """
    try:
        with catalog.open_session() as session:
            yield from _check_server(session)
            yield from _check_publications(session, options)
            yield from _check_slot(session, options, source, application_name)
            yield from _check_second_session(session, options, catalog)
            yield from _check_privileges(session)
            yield from check_snapshot(session, options)
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)


def _check_server(session: Session) -> Iterator[Finding]:
    version = session.server_version
    if version < _OLDEST:
        yield Finding(
            Severity.ERROR,
            f"the server is PostgreSQL {session.read_setting('server_version')}",
            "PostgreSQL 14 is the oldest release that is supported",
        )
    try:
        session.require_logical_wal()
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)
    senders = int(session.read_setting("max_wal_senders"))
    busy = int(session.read_value("SELECT count(*) FROM pg_stat_replication"))
    if busy >= senders:
        yield Finding(
            Severity.ERROR,
            f"all {senders} WAL senders are taken",
            f"raise max_wal_senders (ALTER SYSTEM SET max_wal_senders = {senders + 5}) and restart the server",
        )


def _check_publications(session: Session, options: PostgresOptions) -> Iterator[Finding]:
    try:
        session.require_publications(options.publications)
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)
        return
    names = list(options.publications)
    # pg_publication_tables waits for the locks of all tables.
    if not list_snapshot_tables(session, names, lambda _: None, filters=False):
        yield Finding(
            Severity.WARNING,
            f"publication {', '.join(names)} has no tables",
            f'add some: ALTER PUBLICATION "{names[0]}" ADD TABLE ...',
        )
    of_old_rows = [str(name) for (name,) in session.read_rows(_OF_OLD_ROWS, names)]
    need_identity = list_snapshot_tables(session, of_old_rows, lambda _: None, filters=False)
    for (table,) in session.read_rows(_WITHOUT_IDENTITY, [table.oid for table in need_identity]):
        yield Finding(
            Severity.WARNING,
            f"{table} has no replica identity: the server refuses its updates and deletes, and its events have no key",
            f"add a primary key, or ALTER TABLE {table} REPLICA IDENTITY FULL",
        )
    has_lists = session.server_version >= _LISTS_AND_FILTERS
    for (table,) in session.read_rows(_UNLOGGED.format(in_schemas=_UNLOGGED_IN_SCHEMAS if has_lists else ""), names):
        yield Finding(
            Severity.WARNING,
            f"{table} is UNLOGGED: its changes are not in the WAL, and are not streamed",
            f"ALTER TABLE {table} SET LOGGED, then ask for a snapshot of it",
        )
    if not has_lists:
        return
    for table, listed in session.read_rows(_PARTLY_PUBLISHED, names):
        what, remedy = _COLUMN_LIST if listed else _ROW_FILTER
        problem = f"{what.format(table)}: the server refuses its updates and deletes"
        yield Finding(Severity.WARNING, problem, remedy.format(table))


def _check_slot(session: Session, options: PostgresOptions, source: str, application_name: str) -> Iterator[Finding]:
    slot, failover = session.find_slot(options.replication_slot), options.slot_failover
    if failover:
        session.require_failover_slots()
        if slot is None:
            require_readable(session, options.replication_slot, slot, was_read=False, failover=failover)
    if failover or (slot is not None and slot.failover):
        yield from check_failover(session, options.replication_slot)
    if slot is None:
        yield from _check_slot_room(session)
        return
    try:
        require_readable(session, slot.name, slot, was_read=False, failover=failover)
        slot.require_usable(session.database, source)
    except SlotInUse as error:
        reader = session.read_value("SELECT application_name FROM pg_stat_replication WHERE pid = %s", slot.active_pid)
        if reader == application_name:
            what = f'slot "{slot.name}" is read by PID {slot.active_pid}, a source of this name: the service is running'
            yield Finding(Severity.WARNING, what, "nothing to do, unless you want to start another one")
        else:
            yield Finding(Severity.ERROR, error.what, error.remedy)
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)
    else:
        yield from _check_decoding(session, options, source, slot)


def _check_slot_room(session: Session) -> Iterator[Finding]:
    allowed = int(session.read_setting("max_replication_slots"))
    if int(session.read_value("SELECT count(*) FROM pg_replication_slots")) >= allowed:
        yield Finding(
            Severity.ERROR,
            f"all {allowed} replication slots are taken",
            f"drop one, or raise max_replication_slots (ALTER SYSTEM SET max_replication_slots = {allowed + 5}) "
            "and restart the server",
        )


def _check_decoding(session: Session, options: PostgresOptions, source: str, slot: Slot) -> Iterator[Finding]:
    """Whether decoding gets past the slot's first change, for which its publications must have been there already.

    It is only peeked at, and given up after some seconds: decoding begins where the oldest open transaction began.
    """
    missing = sorted(set(options.publications) - session.list_publications())
    try:
        if missing or not (told := session.peek(slot.name, options.publications, _PEEK_SECONDS)):
            return
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)
        return
    lost = make_gap_error(
        f'slot "{slot.name}" cannot continue: {told}; a publication was created again, or after the slot, and changes '
        "that were committed without it are lost to this source",
        source,
        session.read_wal_end(),
    )
    yield Finding(Severity.ERROR, lost.what, lost.remedy)


def _check_second_session(session: Session, options: PostgresOptions, catalog: Catalog) -> Iterator[Finding]:
    """Whether there is room for two at once, which a start takes. One that reads from the slot has them already."""
    slot = session.find_slot(options.replication_slot)
    if slot is not None and slot.active_pid:
        return
    try:
        with catalog.open_session():
            return
    except SourceError as error:
        what = f"the source needs two sessions at once, and the server gives one: {error.what}"
        yield Finding(Severity.ERROR, what, error.remedy)


def _check_privileges(session: Session) -> Iterator[Finding]:
    role, may = session.read_rows(_MAY_REPLICATE)[0]
    if not may:
        yield Finding(
            Severity.ERROR,
            f'role "{role}" may not replicate',
            f'ALTER ROLE "{role}" REPLICATION (on Amazon RDS: GRANT rds_replication TO "{role}")',
        )
