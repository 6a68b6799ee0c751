"""Transactions whose changes neither a chunk nor the stream would have."""

from __future__ import annotations

import numpy as np

from psql_streamer.snapshot.fence import Fence
from sources.postgres.catalog import Session

# A backend that waits for a synchronous standby has written its commit, and the stream may have given it, but nobody
# sees it yet (PostgreSQL source, RecordTransactionCommit and CommitTransaction). What the waits of others are, a role
# without pg_read_all_stats is not told: wait_event is null for an ordinary wait and for that.
# A prepared transaction has no backend. One that commits it, in its database, has no xid of its own (PostgreSQL source,
# FinishPreparedTransaction).
_RUNNING = """
    SELECT backend_xid::text::bigint, state IS NOT NULL AND wait_event IS DISTINCT FROM 'SyncRep'
    FROM pg_stat_activity WHERE backend_xid IS NOT NULL
    UNION ALL
    SELECT p.transaction::text::bigint, NOT EXISTS (
        SELECT FROM pg_stat_activity a
        WHERE a.datname = p.database AND a.backend_xid IS NULL AND (a.state IS NULL OR a.wait_event = 'SyncRep')
    )
    FROM pg_prepared_xacts p
"""


def read_next_xid(session: Session) -> int:
    """A 64-bit xid behind those of all transactions that may have written their commit by now.

    pg_snapshot_xmax() is not behind those in progress that are younger than whatever has completed (PostgreSQL source,
    GetSnapshotData in procarray.c).
    """
    xmax = int(session.read_value("SELECT pg_snapshot_xmax(pg_current_snapshot())::text"))
    running = [int(xid) for xid, _ in session.read_rows(_RUNNING)]
    return max([xmax, *(xid + 1 for xid in _widen_xids(running, xmax))])


def find_hidden_xids(session: Session, in_progress: set[int], fence: Fence, before: int) -> set[int]:
    """Those of these transactions that may have committed, and those from fence.xmax up to `before`. 64-bit xids."""
    if not session.read_setting("synchronous_standby_names"):
        return set()
    rows = session.read_rows(_RUNNING)
    at_work = {int(xid) for xid, works in rows if works}
    others = _widen_xids([int(xid) for xid, works in rows if not works], fence.xmax)
    hidden = {xid for xid in in_progress if xid & 0xFFFF_FFFF not in at_work}
    return hidden | {xid for xid in others if fence.xmax <= xid < before}


def _widen_xids(xids: list[int], near: int) -> list[int]:
    found: list[int] = Fence(near, near, (), 0, 0).widen(np.array(xids, np.uint32)).tolist()
    return found
