"""Transactions that are in progress for others, although they have committed."""

from __future__ import annotations

from sources.postgres.catalog import Session

# A backend that waits for a synchronous standby has written its commit, and the stream may have given it, but nobody
# sees it yet (PostgreSQL source, RecordTransactionCommit and CommitTransaction). What the waits of others are, a role
# without pg_read_all_stats is not told: wait_event is null for an ordinary wait and for that.
_OTHERS = """
    SELECT backend_xid::text::bigint FROM pg_stat_activity
    WHERE backend_xid IS NOT NULL AND state IS NOT NULL AND wait_event IS DISTINCT FROM 'SyncRep'
"""


def committed_but_hidden(session: Session, in_progress: set[int]) -> set[int]:
    """Those of these transactions that may have committed. 64-bit xids."""
    if not session.setting("synchronous_standby_names"):
        return set()
    seen = {int(xid) for (xid,) in session.rows(_OTHERS)}
    return {xid for xid in in_progress if xid & 0xFFFF_FFFF not in seen}
