"""What `check` looks at before a `postgres` source is started; nothing is changed on the server."""

from __future__ import annotations

from collections.abc import Iterator

from psql_streamer.errors import SourceError
from psql_streamer.interfaces import Finding, Severity
from sources.catalog import Catalog, Session
from sources.postgres_options import PostgresOptions

_OLDEST = 140000
_WITHOUT_IDENTITY = """
SELECT DISTINCT format('%%I.%%I', t.schemaname, t.tablename)
FROM pg_publication p
JOIN pg_publication_tables t USING (pubname)
JOIN pg_namespace n ON n.nspname = t.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE pubname = ANY(%s) AND (p.pubupdate OR p.pubdelete) AND (
    c.relreplident = 'n'
    OR c.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary)
)
ORDER BY 1
"""


def findings(options: PostgresOptions, catalog: Catalog) -> Iterator[Finding]:
    """Everything that would keep the source from working, and what may surprise."""
    try:
        with catalog.session() as session:
            yield from _server(session)
            yield from _publications(session, options)
            yield from _slot(session, options)
            yield from _privileges(session)
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)


def _server(session: Session) -> Iterator[Finding]:
    version = int(session.setting("server_version_num"))
    if version < _OLDEST:
        yield Finding(
            Severity.ERROR,
            f"the server is PostgreSQL {session.setting('server_version')}",
            "PostgreSQL 14 is the oldest release that is supported",
        )
    try:
        session.require_logical_wal()
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)
    senders = int(session.setting("max_wal_senders"))
    busy = int(session.value("SELECT count(*) FROM pg_stat_replication"))
    if busy >= senders:
        yield Finding(
            Severity.ERROR,
            f"all {senders} WAL senders are taken",
            f"raise max_wal_senders (ALTER SYSTEM SET max_wal_senders = {senders + 5}) and restart the server",
        )


def _publications(session: Session, options: PostgresOptions) -> Iterator[Finding]:
    try:
        session.require_publications(options.publications)
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)
        return
    names = list(options.publications)
    if not session.value("SELECT count(*) FROM pg_publication_tables WHERE pubname = ANY(%s)", names):
        yield Finding(
            Severity.WARNING,
            f"publication {', '.join(names)} has no tables",
            f'add some: ALTER PUBLICATION "{names[0]}" ADD TABLE ...',
        )
    for (table,) in session.rows(_WITHOUT_IDENTITY, names):
        yield Finding(
            Severity.WARNING,
            f"{table} has no replica identity: the server refuses its updates and deletes, and its events have no key",
            f"add a primary key, or ALTER TABLE {table} REPLICA IDENTITY FULL",
        )


def _slot(session: Session, options: PostgresOptions) -> Iterator[Finding]:
    slot = session.slot(options.replication_slot)
    if slot is not None:
        try:
            slot.require_usable(session.database)
        except SourceError as error:
            yield Finding(Severity.ERROR, error.what, error.remedy)
        return
    allowed = int(session.setting("max_replication_slots"))
    if int(session.value("SELECT count(*) FROM pg_replication_slots")) >= allowed:
        yield Finding(
            Severity.ERROR,
            f"all {allowed} replication slots are taken",
            f"drop one, or raise max_replication_slots (ALTER SYSTEM SET max_replication_slots = {allowed + 5}) "
            "and restart the server",
        )


def _privileges(session: Session) -> Iterator[Finding]:
    role, may = session.rows("SELECT rolname, rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user")[0]
    if not may:
        yield Finding(
            Severity.ERROR,
            f'role "{role}" may not replicate',
            f'ALTER ROLE "{role}" REPLICATION',
        )
