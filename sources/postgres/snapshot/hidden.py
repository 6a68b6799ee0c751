"""Transactions whose changes neither a chunk nor the stream would have."""

from __future__ import annotations

from sources.postgres.catalog import Session

# A backend that waits for a synchronous standby has written its commit, and the stream may have given it, but nobody
# sees it yet (PostgreSQL source, RecordTransactionCommit and CommitTransaction). What the waits of others are, a role
# without pg_read_all_stats is not told: wait_event is null for an ordinary wait and for that.
_OTHERS = """
    SELECT backend_xid::text::bigint FROM pg_stat_activity
    WHERE backend_xid IS NOT NULL AND state IS NOT NULL AND wait_event IS DISTINCT FROM 'SyncRep'
"""

# An xid is locked by its own transaction, prepared ones included. Partitions count for the table that they are of.
_WRITERS = """
    SELECT own.transactionid::text::bigint
    FROM pg_locks written JOIN pg_locks own ON own.virtualtransaction = written.virtualtransaction
    WHERE written.locktype = 'relation' AND written.mode = 'RowExclusiveLock' AND written.granted
        AND written.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND written.relation IN (SELECT %s::bigint::oid UNION ALL SELECT relid FROM pg_partition_tree(%s::bigint::oid))
        AND own.locktype = 'transactionid' AND own.mode = 'ExclusiveLock' AND own.granted
"""


def writers_of(session: Session, oid: int) -> set[int]:
    """The transactions in progress that have written to a table; 32-bit xids. On a standby they are not known.

    The stream has none of their changes from before the table was published, though they commit behind that: pgoutput
    sees publications as they were when a change was written (PostgreSQL documentation, "Logical Decoding Concepts").
    """
    return {int(xid) for (xid,) in session.rows(_WRITERS, oid, oid)}


def next_on_standby(session: Session) -> int:
    """On a standby: behind the last transaction that has ended there, 64 bits; 0 on a primary."""
    query = "SELECT CASE WHEN pg_is_in_recovery() THEN pg_snapshot_xmax(pg_current_snapshot())::text ELSE '0' END"
    return int(session.value(query))


def committed_but_hidden(session: Session, in_progress: set[int]) -> set[int]:
    """Those of these transactions that may have committed. 64-bit xids."""
    if not session.setting("synchronous_standby_names"):
        return set()
    seen = {int(xid) for (xid,) in session.rows(_OTHERS)}
    return {xid for xid in in_progress if xid & 0xFFFF_FFFF not in seen}
