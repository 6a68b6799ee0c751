"""Between readers and the stream: when rows may be given, and what is asked of readers next."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.model import (
    Batch,
    Changes,
    Column,
    Position,
    Relation,
    ReplicaIdentity,
    SchemaChange,
    SourceInfo,
    Transactions,
    Truncate,
)
from psql_streamer.pgtype import PostgresType
from psql_streamer.snapshot.delivered import Delivered
from psql_streamer.snapshot.fence import Fence
from psql_streamer.snapshot.held import ReadRows
from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshot.table_runs import TableRun, TableRuns
from psql_streamer.snapshots import SnapshotRequest, TableState, Wanted
from sources.snapshot.news import News
from sources.snapshot.runs import Runs
from sources.snapshot.schedule import Schedule
from sources.snapshot.work import Look, Plan, Read

RELATION = Relation("16400", "public", "t", (Column("id", PostgresType(23), key=True),), ReplicaIdentity.DEFAULT)
FENCE = Fence(xmin=100, xmax=100, xip=(), lsn=5000, at_us=0)
LATER = 100


def scheduled(most_held: int = 1 << 20, *, look_last: bool = False) -> tuple[Schedule[Delivered], Read]:
    """With the first task of one table."""
    schedule = Schedule(most_held, lambda: None, News("db1"), Delivered(), look_last=look_last)
    schedule.add(SnapshotRun("one", False, 0.0))
    plan = schedule.wait_for_task(0)
    assert isinstance(plan, Plan)
    schedule.plan(plan.run, [TableRun("public.t", RELATION.id)])
    task = schedule.wait_for_task(0)
    assert isinstance(task, Read)
    return schedule, task


def texts(*values: int) -> pa.Array:
    return pa.array([str(value).encode() for value in values], pa.binary())


def bring(schedule: Schedule[Delivered], task: Read, *ids: int, last: bool = False) -> None:
    keys = texts(*ids)
    schedule.bring(task, ReadRows(FENCE, RELATION, [keys], keys, 100, '[[["id", 23]], []]'), keys[-1].as_py(), last)


def given(schedule: Schedule[Delivered], reached: int = 5000, most_rows: int = 100) -> list[int]:
    found = schedule.take_next_piece(reached, most_rows, 1 << 20)  # type: ignore[arg-type]
    return [] if found is None else [int(key) for key in found.piece.keys.to_pylist()]


def stream(
    schedule: Schedule[Delivered], xid: int, *ids: int, truncates: bool = False, relation: Relation = RELATION
) -> None:
    """A batch of the stream: a transaction that inserts rows, or truncates the table."""
    transactions = Transactions(np.array([6000], np.uint64), np.array([0]), pa.array([xid], pa.uint32()))
    changes = [Changes.from_new_rows(relation, [texts(*ids)], np.zeros(len(ids), np.int32))] if ids else []
    emptied = (Truncate(relation, 0, 0, 0, 0, False, False),) if truncates else ()
    source = SourceInfo("p", "s", "h", "d", "1")
    shapes = () if relation is RELATION else (SchemaChange(relation, None, 0, 0, 0),)
    schedule.watch(Batch(source, Position({}, ""), transactions, changes, truncates=emptied, schema_changes=shapes))


@pytest.mark.behaviour("N33")
def test_rows_wait_until_the_stream_has_reached_the_end_of_the_wal_behind_their_fence() -> None:
    schedule, task = scheduled()
    bring(schedule, task, 1, 2)
    assert given(schedule, 4999) == []
    assert given(schedule, 5000) == [1, 2]


def test_what_the_stream_gives_between_the_task_and_the_rows_counts() -> None:
    schedule, task = scheduled()
    stream(schedule, LATER, 2)
    bring(schedule, task, 1, 2, 3)
    stream(schedule, LATER + 1, 3)
    assert given(schedule) == [1]


def test_rows_are_read_ahead_as_many_as_may_wait_to_be_given() -> None:
    schedule, task = scheduled(most_held=60)
    bring(schedule, task, 1, 2)
    assert schedule.wait_for_task(0) is None, "100 bytes wait"
    assert given(schedule, most_rows=1) == [1]
    assert isinstance(schedule.wait_for_task(0), Read), "50 bytes wait"


def test_a_truncate_while_rows_are_held_leaves_none() -> None:
    schedule, task = scheduled()
    bring(schedule, task, 1, 2)
    stream(schedule, LATER, truncates=True)
    assert given(schedule) == []


def test_rows_that_are_brought_for_a_paused_snapshot_are_given_to_nobody() -> None:
    schedule, task = scheduled()
    schedule.begin_anew(task)
    bring(schedule, task, 1, 2)
    assert given(schedule) == []
    again = schedule.wait_for_task(0)
    assert isinstance(again, Read)
    assert again.after is None


@pytest.mark.parametrize(
    ("wanted", "told"),
    [(Wanted.RUN, "goes on"), (Wanted.PAUSE, "stays paused"), (Wanted.CANCEL, "is cancelled")],
)
def test_a_restart_tells_what_becomes_of_a_snapshot(
    wanted: Wanted, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    news = News("db1")
    runs = Runs(news, lambda: None)
    runs.wanted = {"one": wanted}
    before = SnapshotRun("one", True, 0.0, tables=TableRuns([TableRun("public.t", RELATION.id, rows=7)]))
    runs.resume([before.encode()], anew=False)
    news.tell()
    (message,) = caplog.messages
    assert message.startswith(f"source.db1: snapshot one {told}: ")


def test_a_session_that_is_lost_behind_its_last_task_changes_nothing() -> None:
    schedule, task = scheduled()
    bring(schedule, task, 1, 2, last=True)
    assert given(schedule) == [1, 2]
    schedule.give_up(task, reason="the connection was lost")
    assert schedule.show()[0].rows == 2


@pytest.mark.parametrize("asked", [1, 5])
def test_rows_that_come_again_one_by_one_under_other_texts_of_their_keys_are_not_asked_for_without_end(
    asked: int,
) -> None:
    schedule, task = scheduled()
    task.table.again |= {b"%d.0" % number: 0 for number in range(asked)}
    bring(schedule, task, 100, last=True)
    given(schedule)
    for _ in range(20):
        again = schedule.wait_for_task(0)
        if again is None:
            break
        assert isinstance(again, Read)
        assert again.keys
        bring(schedule, again, int(float(again.keys[0])))  # and there is no room for more
        given(schedule)
    assert not task.table.again
    assert schedule.show()[0].tables[0].state is TableState.DONE


def looked_at() -> tuple[Schedule[Delivered], Look]:
    """With all rows of the table given, and the look at it behind them."""
    schedule, task = scheduled(look_last=True)
    bring(schedule, task, 1, 2, last=True)
    assert schedule.wait_for_task(0) is None, "rows are held"
    assert given(schedule) == [1, 2]
    look = schedule.wait_for_task(0)
    assert isinstance(look, Look)
    assert schedule.wait_for_task(0) is None, "one is enough"
    return schedule, look


def test_a_table_ends_when_it_was_looked_at_behind_its_last_rows() -> None:
    schedule, look = looked_at()
    assert schedule.show()[0].tables[0].state is TableState.READING
    schedule.end_looked_at(look)
    assert schedule.show()[0].tables[0].state is TableState.DONE
    assert schedule.has_news


def test_a_table_whose_look_could_not_be_done_is_looked_at_again() -> None:
    schedule, look = looked_at()
    schedule.give_up(look, reason="the connection was lost")
    assert schedule.show()[0].tables[0].reason == "the connection was lost"
    again = schedule.wait_for_task(0)
    assert isinstance(again, Look)
    schedule.end_looked_at(look)
    assert schedule.show()[0].tables[0].state is TableState.READING
    schedule.end_looked_at(again)
    assert (schedule.show()[0].tables[0].state, schedule.show()[0].tables[0].reason) == (TableState.DONE, "")


def test_a_look_from_before_a_pause_says_nothing_of_what_is_read_behind_it() -> None:
    schedule, look = looked_at()
    for wanted in (Wanted.PAUSE, Wanted.RUN):
        schedule.set_requests([SnapshotRequest("one", (), wanted, 0.0)])
    task = schedule.wait_for_task(0)
    assert isinstance(task, Read)
    assert task.after == b"2"
    schedule.end_looked_at(look)
    schedule.begin_anew(look, "altered")
    schedule.give_up(look, refused="altered")
    assert schedule.show()[0].tables[0].state is TableState.READING
    assert schedule.show()[0].tables[0].reason == ""


def test_a_table_that_was_altered_behind_its_last_rows_is_read_anew() -> None:
    schedule, look = looked_at()
    schedule.begin_anew(look, "altered")
    task = schedule.wait_for_task(0)
    assert isinstance(task, Read)
    assert (task.after, task.order) == (None, "")
    assert schedule.show()[0].tables[0].reason == "altered"
