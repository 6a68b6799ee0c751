"""What `check` says of the snapshot that a `postgres` source is to take; nothing is changed on the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg2.errors

from psql_streamer.interfaces import Finding, Severity
from psql_streamer.table_patterns import TablePatterns
from sources.postgres.catalog import Session
from sources.postgres.options import PostgresOptions
from sources.postgres.snapshot.options import SnapshotMode, SnapshotOptions
from sources.postgres.snapshot.requests import find_condition_error, pin_names
from sources.postgres.snapshot.tables import SnapshotTable, find_refusal, list_snapshot_tables

_BESIDE_CHUNKS = 2
"""Connections of a source beside those that read chunks: its walsender is none of them."""

# Logical walsenders have a database too, but connections of their own (max_wal_senders).
_FREE_CONNECTIONS = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true), '0')::int
    - (SELECT sum(numbackends) FROM pg_stat_database) + (SELECT count(*) FROM pg_stat_replication)
"""
# Superusers have neither limit. This session ends before those of a snapshot begin.
_FREE_BY_LIMIT = """
SELECT format('role %I', rolname), rolconnlimit + 1 - (
    SELECT count(*) FROM pg_stat_activity WHERE usesysid = me.oid AND backend_type = 'client backend'
), format('ALTER ROLE %I CONNECTION LIMIT', rolname)
FROM pg_roles me WHERE rolname = current_user AND NOT rolsuper AND rolconnlimit >= 0
UNION ALL
SELECT format('database %I', datname), datconnlimit + 1 - (
    SELECT count(*) FROM pg_stat_activity WHERE datid = this.oid AND backend_type = 'client backend'
), format('ALTER DATABASE %I CONNECTION LIMIT', datname)
FROM pg_database this WHERE datname = current_database() AND datconnlimit >= 0
    AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
ORDER BY 1
"""
_OLD_WRITERS = """
SELECT 'PID ' || pid, extract(epoch FROM now() - xact_start) / 60, format('SELECT pg_terminate_backend(%%s)', pid)
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND xact_start < now() - make_interval(mins => %s)
UNION ALL
SELECT format('the prepared transaction %%L', gid), extract(epoch FROM now() - prepared) / 60,
    format('COMMIT PREPARED %%1$L or ROLLBACK PREPARED %%1$L', gid)
FROM pg_prepared_xacts WHERE database = current_database() AND prepared < now() - make_interval(mins => %s)
ORDER BY 2 DESC LIMIT 3
"""
_OLD_MINUTES = 5


def check_snapshot(session: Session, options: PostgresOptions) -> Iterator[Finding]:
    """What would keep tables from being read, or hold the snapshot up; nothing where none is to be taken."""
    snapshot = options.snapshot
    if snapshot.mode is SnapshotMode.NEVER:
        return
    pin_names(session)
    # Not their row filters, for which the server waits for the locks of all tables.
    published = list_snapshot_tables(session, options.publications, lambda _: None, filters=False)
    wanted = [table for table in published if snapshot.wants(table.relation.schema, table.relation.table)]
    slot_exists = session.find_slot(options.replication_slot) is not None
    yield from _check_entries(snapshot, published)
    for table in wanted:
        yield from _check_table(session, options, table, slot_exists)
    if wanted:
        yield from _check_free_connections(session, snapshot)
        if not slot_exists:
            yield from _check_old_writers(session)


def _check_entries(snapshot: SnapshotOptions, published: Sequence[SnapshotTable]) -> Iterator[Finding]:
    for key, entries in (("tables", snapshot.tables), ("where", snapshot.where)):
        for entry in entries:
            fits = TablePatterns({entry: None}).find
            if not any(fits(table.relation.schema, table.relation.table) for table in published):
                yield Finding(
                    Severity.WARNING,
                    f'snapshot.{key} has "{entry}", which is no table of the publications',
                    "correct the name, or add the table to a publication",
                )


def _check_table(
    session: Session, options: PostgresOptions, table: SnapshotTable, slot_exists: bool
) -> Iterator[Finding]:
    refused = find_refusal(session, table)
    if refused:
        what, remedy = refused
        yield Finding(Severity.WARNING, f"{what}: the snapshot leaves the table out", remedy)
    elif table.missing_key:
        _, remedy = table.missing_key
        exists = ", which exists already" if slot_exists else ""
        yield Finding(
            Severity.WARNING,
            f"{table.relation} has no key: its rows are read only when the source creates its slot{exists}",
            f"{remedy}; or leave it out with snapshot.tables",
        )
    condition = options.snapshot.find_condition(table.relation.schema, table.relation.table)
    if condition and not refused:
        yield from _check_condition(session, options.publications, table, condition)


def _check_condition(
    session: Session, publications: Sequence[str], table: SnapshotTable, condition: str
) -> Iterator[Finding]:
    try:
        error = find_condition_error(session, publications, table, condition)
    except psycopg2.errors.LockNotAvailable:
        yield Finding(
            Severity.WARNING,
            f"the condition of {table.relation} was not looked at: somebody holds, or awaits, ACCESS EXCLUSIVE locks "
            "that are in the way",
            "check again when they are free: SELECT * FROM pg_locks WHERE mode = 'AccessExclusiveLock' names the PID",
        )
        return
    if error is not None:
        yield Finding(
            Severity.ERROR,
            f"the server refuses the condition of {table.relation}: {error.diag.message_primary}",
            "correct snapshot.where: names outside of pg_catalog need their schema",
        )


def _check_free_connections(session: Session, snapshot: SnapshotOptions) -> Iterator[Finding]:
    free, needed = int(session.read_value(_FREE_CONNECTIONS)), snapshot.parallel + _BESIDE_CHUNKS
    if free < needed:
        yield Finding(
            Severity.WARNING,
            f"the server has {max(0, free)} free connections, and a snapshot needs {needed}",
            "lower snapshot.parallel, or raise max_connections and restart the server",
        )
    for whose, free_of_it, raise_it in session.read_rows(_FREE_BY_LIMIT):
        if free_of_it < needed:
            yield Finding(
                Severity.WARNING,
                f"{whose} has {max(0, free_of_it)} free connections, and a snapshot needs {needed}",
                f"lower snapshot.parallel, or raise the limit: {raise_it} ...",
            )


def _check_old_writers(session: Session) -> Iterator[Finding]:
    for who, minutes, remedy in session.read_rows(_OLD_WRITERS, _OLD_MINUTES, _OLD_MINUTES):
        yield Finding(
            Severity.WARNING,
            f"{who} has been in a transaction that writes for {minutes:.0f} minutes: the slot, and the snapshot behind "
            "it, waits for its end",
            f"wait, or end it: {remedy}",
        )
