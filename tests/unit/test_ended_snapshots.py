"""Of a snapshot of thousands of tables that has ended the position lists some, and tells how many there were."""

from __future__ import annotations

import json

from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshot.table_runs import TableRun, TableRuns
from psql_streamer.snapshots import SnapshotState, TableState


def test_a_service_that_was_restarted_tells_the_rows_of_all_tables() -> None:
    tables = TableRuns(TableRun(f"public.t{at}", state=TableState.DONE, rows=2, chunks=1) for at in range(250))
    run = SnapshotRun("initial", on_demand=False, asked_at=0.0, tables=tables, state=SnapshotState.DONE)
    for _ in range(2):  # restarts
        run = SnapshotRun.decode(json.loads(json.dumps(run.encode())))
        shown = run.show(0.0, run.state, "")
        assert (shown.rows, shown.chunks, len(shown.tables)) == (500, 250, 100)
        assert shown.reason == "100 of its 250 tables are still listed"


def test_one_of_few_tables_is_told_as_it_was() -> None:
    tables = TableRuns([TableRun("public.t", state=TableState.DONE, rows=2, chunks=1)])
    run = SnapshotRun("initial", on_demand=False, asked_at=0.0, tables=tables, state=SnapshotState.DONE)
    shown = SnapshotRun.decode(run.encode()).show(0.0, run.state, "")
    assert (shown.rows, shown.reason) == (2, "")
