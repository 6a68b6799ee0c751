"""How far a source's snapshots are, for whoever asks."""

from __future__ import annotations

from psql_streamer.snapshot.key_check import KeyCheck
from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshots import SnapshotProgress, SnapshotState
from sources.snapshot.runs import Runs
from sources.snapshot.waits import Waits


def show(run: SnapshotRun, runs: Runs, waits: Waits, now: float) -> SnapshotProgress:
    """One of the snapshots. waits: what the one that is read waits for. now: time.monotonic()."""
    state, waits_for, current = run.state, "", runs.current
    if state.ended and run.id not in runs.durably_ended:
        state, waits_for = SnapshotState.RUNNING, "waits until every sink has its last rows"
    elif run.check is not None:
        if not state.ended:
            waits_for = _describe_check_waits(run, run.check, waits, now)
    elif run is not current and not state.ended and state is not SnapshotState.PAUSED:
        state = SnapshotState.WAITING
        waits_for = f"waits for snapshot {current.id}" if current else ""
    elif run is current:
        waits_for = _find_reason(run) or waits.describe(now)
    return run.show(now, state, waits_for)


def choose_main_run(runs: Runs) -> SnapshotRun | None:
    """The snapshot that is read, or else the last that ended since the process began."""
    left = [run for run in runs.every if not run.state.ended]
    return runs.current or next(iter(runs.checks), None) or (left[0] if left else runs.last_ended)


def _describe_check_waits(run: SnapshotRun, check: KeyCheck, waits: Waits, now: float) -> str:
    if run.state is SnapshotState.PAUSED:
        return ""
    reason = _find_reason(run)
    if reason:
        return reason
    return "waits for keys, which are to be posted" if check.is_idle else waits.describe(now)


def _find_reason(run: SnapshotRun) -> str:
    return next((table.reason for table in run.tables or () if table.is_left and table.reason), "")
