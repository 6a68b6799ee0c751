"""Of a snapshot of thousands of tables that has ended the position lists some, and tells how many there were."""

from __future__ import annotations

import json

from psql_streamer.api.page_snapshots import MOST_TABLES, show_snapshots
from psql_streamer.api.snapshot_models import SnapshotShown, describe_snapshot
from psql_streamer.commands.snapshot_text import Snapshot, show_details, show_overview, summarize_snapshot
from psql_streamer.interfaces import KnownSnapshot
from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshot.table_runs import TableRun, TableRuns
from psql_streamer.snapshot_figures import count_tables, count_tables_done
from psql_streamer.snapshots import SnapshotState, TableState, Wanted


def test_a_service_that_was_restarted_tells_the_rows_of_all_tables() -> None:
    tables = TableRuns(TableRun(f"public.t{at}", state=TableState.DONE, rows=2, chunks=1) for at in range(250))
    run = SnapshotRun("initial", on_demand=False, asked_at=0.0, tables=tables, state=SnapshotState.DONE)
    for _ in range(2):  # restarts
        run = SnapshotRun.decode(json.loads(json.dumps(run.encode())))
        shown = run.show(0.0, run.state, "")
        assert (shown.rows, shown.chunks, len(shown.tables)) == (500, 250, 100)
        assert shown.reason == "100 of its 250 tables are still listed"
        assert (count_tables_done(shown), count_tables(shown)) == (250, 250)


def test_tables_that_are_not_listed_any_more_count_as_what_became_of_them() -> None:
    states = [*[TableState.DONE] * 130, *[TableState.FAILED] * 110, *[TableState.WAITING] * 5]
    tables = TableRuns(TableRun(f"public.t{at}", state=state) for at, state in enumerate(states))
    run = SnapshotRun("asked", on_demand=True, asked_at=0.0, tables=tables, state=SnapshotState.CANCELLED)
    shown = SnapshotRun.decode(json.loads(json.dumps(run.encode()))).show(0.0, run.state, "")
    assert (count_tables_done(shown), count_tables(shown)) == (130, 245)
    known = KnownSnapshot("db1", shown, (), Wanted.CANCEL)
    [page] = show_snapshots({"db1": [known]})
    assert (page.whole.text, page.more) == ("130 of 245 tables, 0 rows", 245 - MOST_TABLES)
    answered = SnapshotShown.from_known(known)
    assert "cancelled 245 tables" in describe_snapshot(answered)
    told = Snapshot.from_shown(answered.model_dump(mode="json"))
    assert "130/245" in show_overview([told])[1]
    assert "130 of 245 tables" in summarize_snapshot(told)


def test_a_name_of_a_table_makes_no_line_of_its_own_where_a_snapshot_is_shown() -> None:
    table = TableRun("public.a\n[##] 100%  done\x1b[2J", state=TableState.FAILED, reason="a\nb")
    run = SnapshotRun("asked", True, 0.0, tables=TableRuns([table]), state=SnapshotState.FAILED, reason="c\nd")
    answered = SnapshotShown.from_known(KnownSnapshot("db1", run.show(0.0, run.state, ""), (), Wanted.RUN))
    shown = show_details(Snapshot.from_shown(answered.model_dump(mode="json")))
    assert len(shown) == 3
    assert all(line.isprintable() for line in shown)


def test_one_of_few_tables_is_told_as_it_was() -> None:
    tables = TableRuns([TableRun("public.t", state=TableState.DONE, rows=2, chunks=1)])
    run = SnapshotRun("initial", on_demand=False, asked_at=0.0, tables=tables, state=SnapshotState.DONE)
    shown = SnapshotRun.decode(run.encode()).show(0.0, run.state, "")
    assert (shown.rows, shown.reason) == (2, "")
