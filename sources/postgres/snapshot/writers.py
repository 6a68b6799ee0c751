"""Who wrote to a table before it is read for the first time.

The server decides with the catalog as it was at a change, and not at its commit, whether the change is streamed
(PostgreSQL source, SnapBuildDistributeSnapshotAndInval in snapbuild.c). ALTER PUBLICATION ... ADD TABLE does not wait
for those who are writing to the table: what they did before is not streamed when they commit, so it has to be read.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sources.postgres.catalog import Session
from sources.postgres.snapshot.tables import PARTITION_TREE

# Whoever has changed rows holds a lock of such a mode, and one of its own transaction ID, until the changes are seen; a
# prepared transaction does, too. Both are PostgreSQL documentation, "Explicit Locking" and "pg_locks".
_WRITERS = f"""
SELECT DISTINCT own.transactionid::text::bigint
FROM pg_catalog.pg_locks held JOIN pg_catalog.pg_locks own
    ON own.virtualtransaction = held.virtualtransaction AND own.pid IS NOT DISTINCT FROM held.pid
WHERE held.locktype = 'relation' AND held.granted
    AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    AND held.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    AND held.relation IN {PARTITION_TREE.format("%s::bigint::oid")}
    AND own.locktype = 'transactionid' AND own.mode = 'ExclusiveLock' AND own.granted
"""
_LEFT = """
SELECT transactionid::text::bigint FROM pg_catalog.pg_locks
WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted AND transactionid::text::bigint = ANY (%s)
"""


# A prepared transaction has no PID.
_OLDEST_WRITER = """
SELECT coalesce('PID ' || held.pid, format('the prepared transaction %%L', p.gid))
FROM pg_catalog.pg_locks held LEFT JOIN pg_catalog.pg_stat_activity a USING (pid)
LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = held.transactionid
WHERE held.locktype = 'transactionid' AND held.mode = 'ExclusiveLock' AND held.granted
    AND held.transactionid::text::bigint = ANY (%s)
ORDER BY coalesce(a.xact_start, p.prepared), 1 LIMIT 1
"""
_LOCK_HOLDER = f"""
SELECT coalesce('PID ' || held.pid, 'a prepared transaction') FROM pg_catalog.pg_locks held
WHERE held.locktype = 'relation' AND held.mode = 'AccessExclusiveLock'
    AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    AND held.relation IN {PARTITION_TREE.format("%s::bigint::oid")}
ORDER BY held.granted DESC, held.pid LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Writers:
    """Transactions in progress that may have changed rows of a table. xids: 32 bits. before: on a standby, which does
    not know who writes to what, all that are older than this one, 64 bits; else 0.
    """

    xids: Collection[int]
    before: int = 0

    def __bool__(self) -> bool:
        return bool(self.xids or self.before)


def find_writers(session: Session, oid: int) -> Writers:
    """Those of a table, and of its partitions."""
    if session.read_value("SELECT pg_is_in_recovery()"):
        return Writers((), int(session.read_value("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")))
    return Writers([int(xid) for (xid,) in session.read_rows(_WRITERS, oid)])


def find_remaining_writers(session: Session, writers: Writers) -> Writers:
    """Those of these transactions whose changes are not seen by others yet."""
    if writers.before:
        oldest = int(session.read_value("SELECT pg_snapshot_xmin(pg_current_snapshot())::text"))
        return writers if oldest < writers.before else Writers(())
    if not writers.xids:
        return writers
    return Writers([int(xid) for (xid,) in session.read_rows(_LEFT, list(writers.xids))])


def name_oldest_writer(session: Session, writers: Writers) -> str:
    """Who has been writing for the longest time, as `PID 4711`; empty where nobody knows."""
    return _read_name(session.read_rows(_OLDEST_WRITER, list(writers.xids)))


def name_lock_holder(session: Session, oid: int) -> str:
    """Who has, or else awaits, a lock of a table or of its partitions that keeps others from reading; as above."""
    return _read_name(session.read_rows(_LOCK_HOLDER, oid))


def _read_name(found: list[tuple[str]]) -> str:
    return found[0][0] if found else ""
