"""A snapshot of thousands of tables: each costs what it costs among a few."""

from __future__ import annotations

from time import process_time

import pyarrow as pa
import pytest

from psql_streamer.checkpoint.store_format import StoredPosition, encode_position
from psql_streamer.model import Column, Position, Relation, ReplicaIdentity
from psql_streamer.pgtype import PostgresType
from psql_streamer.snapshot.delivered import Delivered
from psql_streamer.snapshot.fence import Fence
from psql_streamer.snapshot.held import ReadRows
from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshot.table_runs import TableRun, TableRuns
from psql_streamer.snapshots import SnapshotState, TableState
from sources.snapshot.news import News
from sources.snapshot.schedule import Schedule
from sources.snapshot.work import Plan, Read

FEW, MANY = 300, 3000
COLUMNS = (Column("id", PostgresType(23), key=True),)
FENCE = Fence(xmin=100, xmax=100, xip=(), lsn=5000, at_us=0)


def planned(tables: int, most_held: int) -> Schedule[Delivered]:
    schedule = Schedule(most_held, lambda: None, News("db1"), Delivered())
    schedule.add(SnapshotRun("one", False, 0.0))
    plan = schedule.wait_for_task(0)
    assert isinstance(plan, Plan)
    schedule.plan(plan.run, [TableRun(f"public.t{number}", str(number)) for number in range(tables)])
    return schedule


def bring(schedule: Schedule[Delivered]) -> bool:
    """Rows of the next table; False when none is asked for."""
    task = schedule.wait_for_task(0)
    if task is None:
        return False
    assert isinstance(task, Read)
    keys = pa.array([b"1"], pa.binary())
    relation = Relation(task.table.relation, "public", task.table.table, COLUMNS, ReplicaIdentity.DEFAULT)
    schedule.bring(task, ReadRows(FENCE, relation, [keys], keys, 100, '[[["id", 23]], []]'), b"1", last=True)
    return True


def measure(tables: int, most_held: int) -> float:
    """Seconds of CPU for each table, until all rows of a snapshot were given, each with a position."""
    schedule = planned(tables, most_held)
    began = process_time()
    for _ in range(tables):
        while bring(schedule):
            pass
        assert schedule.take_next_piece(5000, 100, 1 << 20) is not None
        assert schedule.state()
    spent = process_time() - began
    assert schedule.show()[0].state.ended or not bring(schedule)
    return spent / tables


@pytest.mark.parametrize("most_held", [100, 2000], ids=["one table is held", "some are held"])
def test_a_table_costs_as_much_among_thousands_as_among_hundreds(most_held: int) -> None:
    few = min(measure(FEW, most_held) for _ in range(3))
    many = min(measure(MANY, most_held) for _ in range(2))
    assert many < 2.5 * few, f"{many * 1e6:.0f} us a table of {MANY}, {few * 1e6:.0f} us of {FEW}"


def test_the_state_of_a_position_does_not_change_with_what_is_read_behind_it() -> None:
    tables = TableRuns(TableRun(name) for name in ("public.a", "public.b"))
    first, second = tables
    before = tables.encode(ended=False)
    tables.begin(first)
    first.rows, first.again = 7, {b"1": 1}
    reading = tables.encode(ended=False)
    first.rows, first.key, first.order = 8, b"a\x01b", '[[["id", 25]], ["of its index"]]'
    tables.end(first)
    tables.fail(second, "no key")
    after = tables.encode(ended=False)
    assert [[one["state"], one["rows"], one["order"]] for one in before] == [["waiting", 0, ""]] * 2
    assert [reading[0][name] for name in ("state", "rows", "again")] == ["reading", 7, ["text:1"]]
    assert [[one["state"], one["rows"], one["order"]] for one in after] == [
        ["done", 8, '[[["id", 25]]]'],
        ["failed", 0, ""],
    ]
    assert TableRun.decode(after[0]).show().last_key == ("a\x01b",)
    assert [TableRun.decode(one).state for one in after] == [TableState.DONE, TableState.FAILED]


def test_a_snapshot_that_has_ended_tells_of_a_hundred_tables_those_that_failed_first() -> None:
    run = SnapshotRun("one", False, 0.0, tables=TableRuns(TableRun(f"public.t{number}") for number in range(150)))
    assert run.tables is not None
    for table in run.tables[:-1]:
        run.end_table(table)
    run.fail_table(run.tables[149], "no key")
    assert run.end_if_done()
    told = run.encode()["tables"]
    assert (run.state, len(told), told[0]["table"]) == (SnapshotState.FAILED, 100, "public.t149")


def test_a_position_of_ten_thousand_tables_is_written_within_a_tenth_of_a_second() -> None:
    run = SnapshotRun("one", False, 0.0, tables=TableRuns(TableRun(f"public.t{n}", str(n)) for n in range(10_000)))
    stored = StoredPosition(Position({"lsn": 1, "snapshots": [run.encode()]}, "0/1"), {"slot": "s"})
    written = encode_position(stored, None)
    began = process_time()
    for _ in range(5):
        assert len(encode_position(stored, written)) == len(written)
    assert process_time() - began < 0.5
