"""Keys that are posted to a snapshot: what is taken, when they may be given, and what keeps them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.errors import NoSuchSnapshot, SnapshotConflict
from psql_streamer.snapshot import key_check
from psql_streamer.snapshot.changed_keys import ChangedKeys
from psql_streamer.snapshot.delivered import Delivered
from psql_streamer.snapshot.held import ReadRows
from psql_streamer.snapshot.held_keys import HeldKeys
from psql_streamer.snapshot.key_check import KeyCheck
from psql_streamer.snapshot.likeness import Likeness, liken
from psql_streamer.snapshot.progress import decode_runs
from psql_streamer.snapshot.table_runs import TableRun
from psql_streamer.snapshots import KeyForm, KeysProgress, PostedKeys, SnapshotRequest, TableRequest, Wanted
from sources.snapshot import giving
from sources.snapshot.news import News
from sources.snapshot.schedule import Schedule
from sources.snapshot.work import Check, Plan, Read
from tests.unit.test_snapshot_schedule import FENCE, LATER, RELATION, stream, texts

ORDER = '[[["id", 23]], []]'


def documents(*ids: int) -> tuple[bytes, ...]:
    return tuple(b'{"id":%d}' % one for one in ids)


def asked(tables: bool = True) -> Schedule[Delivered]:
    """A snapshot of keys whose table is known."""
    schedule = Schedule(1 << 20, lambda: None, News("db1"), Delivered())
    schedule.set_requests([SnapshotRequest("one", (TableRequest("public.t"),), keys=KeyForm.JSON)])
    plan = schedule.wait_for_task(0)
    assert isinstance(plan, Plan)
    if tables:
        schedule.plan(plan.run, [TableRun("public.t", RELATION.id)])
    return schedule


def task_of(schedule: Schedule[Delivered]) -> Check:
    task = schedule.wait_for_task(0)
    assert isinstance(task, Check)
    return task


def bring(schedule: Schedule[Delivered], task: Check, *gone: int, likeness: Likeness = Likeness.EXACT) -> None:
    keys = texts(*gone)
    rows = ReadRows(FENCE, RELATION, [keys], keys, 100, ORDER)
    schedule.bring_keys(task, rows, [likeness], len(task.documents))


def given(schedule: Schedule[Delivered], reached: int = 5000, most: int = 100) -> list[int]:
    found = schedule.take_next_piece(reached, most, 1 << 20)  # type: ignore[arg-type]
    if found is None:
        return []
    assert found.piece.gone
    return [int(key) for key in found.piece.keys.to_pylist()]


def keys_of(schedule: Schedule[Delivered]) -> KeysProgress:
    (shown,) = schedule.show()
    assert shown.keys is not None
    return shown.keys


def test_keys_are_taken_from_the_next_one_on_as_many_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_check, "MOST_KEYS", 5)
    check = KeyCheck(KeyForm.JSON)
    check.take(PostedKeys(1, documents(1), False))
    assert check.next == 0, "a key before it is missing"
    check.take(PostedKeys(0, documents(0, 1, 2), False))
    check.take(PostedKeys(0, documents(0, 1, 2), False))
    assert check.next == 3
    check.take(PostedKeys(2, documents(2, 3, 4, 5, 6), True))
    assert (check.next, check.complete) == (5, False)
    assert check.list_waiting_from(3, 10) == documents(3, 4)
    check.settle(2, 1, 1)
    check.take(PostedKeys(2, documents(2, 3, 4, 5, 6), True))
    assert (check.next, check.complete, check.is_done) == (7, True, False)
    check.settle(5, 0, 0)
    assert check.is_done
    assert check.show() == KeysProgress(7, 1, 1, 7, True)
    assert KeyCheck.decode(check.encode()).show() == KeysProgress(7, 1, 1, 7, False)


def test_keys_that_are_long_wait_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_check, "MOST_BYTES", 10)
    check = KeyCheck(KeyForm.JSON)
    check.take(PostedKeys(0, documents(10**20, 1), True))
    assert (check.next, check.complete) == (1, False)


def test_gone_keys_wait_until_the_stream_has_reached_the_end_of_the_wal_behind_their_fence() -> None:
    schedule = asked()
    schedule.take_keys("one", PostedKeys(0, documents(1, 2, 3), True))
    bring(schedule, task_of(schedule), 1, 3)
    assert given(schedule, 4999) == []
    assert given(schedule, 5000) == [1, 3]
    assert keys_of(schedule) == KeysProgress(3, 2, 0, 3, True)


def test_a_key_that_comes_between_the_task_and_its_place_is_superseded_and_one_that_was_there_is_nothing() -> None:
    schedule = asked()
    schedule.take_keys("one", PostedKeys(0, documents(1, 2, 3, 4), True))
    task = task_of(schedule)
    stream(schedule, LATER, 2)
    bring(schedule, task, 1, 2, 3)
    stream(schedule, LATER + 1, 3)
    assert given(schedule) == [1]
    assert keys_of(schedule) == KeysProgress(4, 1, 2, 4, True)


def test_what_the_look_up_saw_and_a_truncate_take_nothing_out() -> None:
    schedule = asked()
    schedule.take_keys("one", PostedKeys(0, documents(1, 2), True))
    task = task_of(schedule)
    stream(schedule, FENCE.xmin - 1, 1)
    bring(schedule, task, 1, 2)
    stream(schedule, LATER, truncates=True)
    assert given(schedule) == [1, 2]


def test_keys_are_looked_up_again_when_another_table_takes_the_name() -> None:
    schedule = asked()
    schedule.take_keys("one", PostedKeys(0, documents(1), True))
    bring(schedule, task_of(schedule), 1)
    stream(schedule, LATER, 1, relation=replace(RELATION, id="16401"))
    assert given(schedule) == []
    assert task_of(schedule).first == 0


def test_keys_of_a_block_count_when_all_of_them_were_given() -> None:
    schedule = asked()
    schedule.take_keys("one", PostedKeys(0, documents(1, 2, 3), False))
    bring(schedule, task_of(schedule), 1, 2, 3)
    assert given(schedule, most=2) == [1, 2]
    assert keys_of(schedule).checked == keys_of(schedule).gone == 0
    stream(schedule, LATER, 3)
    assert given(schedule) == []
    assert keys_of(schedule) == KeysProgress(3, 2, 1, 3, False)


@pytest.mark.parametrize(
    ("likeness", "one", "other", "same"),
    [
        (Likeness.EXACT, b"1.0", b"1.00", False),
        (Likeness.DECIMAL, b"1.0", b"1.00", True),
        (Likeness.DECIMAL, b"1", b"1.000", True),
        (Likeness.DECIMAL, b"100", b"1", False),
        (Likeness.DECIMAL, b"-0.50", b"-0.5", True),
        (Likeness.FLOAT, b"-0", b"0", True),
        (Likeness.PADDED, b"a", b"a  ", True),
        (Likeness.ANY, b"a", b"whatever", True),
    ],
)
def test_texts_that_may_be_one_value_have_their_likeness_in_common(
    likeness: Likeness, one: bytes, other: bytes, same: bool
) -> None:
    assert (liken(one, [likeness]) == liken(other, [likeness])) is same
    both = [Likeness.EXACT, likeness]
    assert (liken(b"x\0" + one, both) == liken(b"x\0" + other, both)) is same
    assert liken(b"x\0" + one, both) != liken(b"y\0" + other, both)


def test_keys_are_looked_up_again_where_one_came_that_may_be_the_same_value() -> None:
    held = HeldKeys(0, None)
    keys = pa.array([b"1.0", b"2.0"], pa.binary())
    held.likenesses = [Likeness.DECIMAL]
    held.fill(ReadRows(FENCE, RELATION, [keys], keys, 100, ORDER))
    held.note_keys(ChangedKeys(np.array([LATER], np.uint32), pa.array([b"3.00"], pa.binary()), np.array([False])))
    held.take_out_changed()
    assert not held.doubtful
    held.note_keys(ChangedKeys(np.array([LATER], np.uint32), pa.array([b"2.00"], pa.binary()), np.array([False])))
    held.take_out_changed()
    assert held.doubtful


def test_keys_that_may_be_one_value_with_what_comes_end_the_snapshot_in_the_end() -> None:
    schedule = asked()
    schedule.take_keys("one", PostedKeys(0, documents(1), True))
    for _ in range(giving._MOST_OUTDATED + 1):
        bring(schedule, task_of(schedule), 1, likeness=Likeness.ANY)
        stream(schedule, LATER, 2)
        assert given(schedule) == []
    (shown,) = schedule.show()
    schedule.note_durable(schedule.state())
    (shown,) = schedule.show()
    assert shown.state == "failed"
    assert "may be the same value as one of these" in shown.reason


def test_behind_a_restart_keys_go_on_behind_those_that_are_durable() -> None:
    schedule = asked()
    schedule.take_keys("one", PostedKeys(0, documents(1, 2), False))
    bring(schedule, task_of(schedule), 1, 2)
    assert given(schedule) == [1, 2]
    stored = schedule.state()
    schedule.take_keys("one", PostedKeys(2, documents(3, 4), True))
    bring(schedule, task_of(schedule), 3, 4)
    assert given(schedule) == [3, 4]
    schedule.resume(stored, anew=False)
    assert keys_of(schedule) == KeysProgress(2, 2, 0, 2, False)
    schedule.take_keys("one", PostedKeys(4, (), True))
    assert keys_of(schedule).next == 2
    schedule.take_keys("one", PostedKeys(2, documents(3, 4), True))
    assert task_of(schedule).first == 2


def test_a_snapshot_that_no_position_has_begins_anew() -> None:
    schedule = asked()
    schedule.take_keys("one", PostedKeys(0, documents(1, 2), False))
    schedule.resume((), anew=False)
    assert keys_of(schedule) == KeysProgress()
    assert isinstance(schedule.wait_for_task(0), Plan)


def test_a_snapshot_without_keys_is_done_and_one_for_which_none_come_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = asked(tables=False)
    empty.take_keys("one", PostedKeys(0, (), True))
    (run,) = empty._runs.every
    empty.plan(run, [TableRun("public.t", RELATION.id)])
    assert run.state == "done"
    left = asked()
    assert left.show()[0].reason == "waits for keys, which are to be posted"
    monkeypatch.setattr(giving, "_KEYLESS_SECONDS", -1.0)
    given(left)
    given(left)
    assert left._runs.every[0].state == "failed"
    assert "no keys came" in left._runs.every[0].reason
    with pytest.raises(SnapshotConflict, match="it is failed"):
        left.take_keys("one", PostedKeys(0, documents(1), True))


def test_a_pause_is_no_time_in_which_no_keys_came(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = asked()
    monkeypatch.setattr(giving, "_KEYLESS_SECONDS", -1.0)
    request = SnapshotRequest("one", (TableRequest("public.t"),), Wanted.PAUSE, keys=KeyForm.JSON)
    schedule.set_requests([request])
    for _ in range(3):
        assert given(schedule) == []
    assert schedule._runs.every[0].state == "paused"


def test_snapshots_of_keys_wait_for_no_other_and_keep_none_waiting() -> None:
    schedule = asked()
    rows = SnapshotRequest("two", asked_at=1.0)
    schedule.set_requests([SnapshotRequest("one", (TableRequest("public.t"),), keys=KeyForm.JSON), rows])
    plan = schedule.wait_for_task(0)
    assert isinstance(plan, Plan)
    schedule.plan(plan.run, [TableRun("public.t", RELATION.id)])
    assert isinstance(schedule.wait_for_task(0), Read)
    schedule.take_keys("one", PostedKeys(0, documents(1), False))
    assert isinstance(schedule.wait_for_task(0), Check)
    assert [shown.state for shown in schedule.show()] == ["running", "running"]


def test_keys_for_what_takes_none_are_refused() -> None:
    schedule = asked()
    schedule.set_requests([SnapshotRequest("two")])
    with pytest.raises(NoSuchSnapshot):
        schedule.take_keys("three", PostedKeys(0, (), True))
    with pytest.raises(SnapshotConflict, match="reads rows, and takes no keys"):
        schedule.take_keys("two", PostedKeys(0, (), True))


def test_positions_of_versions_that_knew_no_keys_are_read() -> None:
    schedule = asked()
    (stored,) = schedule.state()
    without = {name: value for name, value in stored.items() if name != "check"}
    assert decode_runs([without])[0].check is None
