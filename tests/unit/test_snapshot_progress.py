"""How far snapshots are: as positions have it, and as people see it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.snapshot.batches import compute_row_uuids
from psql_streamer.snapshot.progress import SnapshotRun, decode_runs, encode_runs
from psql_streamer.snapshot.table_runs import TableRun, TableRuns
from psql_streamer.snapshot_figures import count_tables_altered
from psql_streamer.snapshots import SnapshotState, TableRequest, TableState, Wanted


def run(identifier: str = "one", *tables: TableRun) -> SnapshotRun:
    return SnapshotRun(
        identifier, True, 12.5, (TableRequest("public.*", "id > 1"),), TableRuns(tables) if tables else None
    )


def test_the_state_survives_json() -> None:
    table = TableRun("public.t", "16400", "id > 1", TableState.READING, 7, 2, b"a\0\xff", {b"k": 9}, 100, "waits")
    found = decode_runs(json.loads(json.dumps(encode_runs([run("one", table), run("two")], ()))))
    assert [one.encode() for one in found] == encode_runs([run("one", table), run("two")], ())
    assert found[0].tables is not None
    assert (found[0].tables[0].key, list(found[0].tables[0].again)) == (b"a\0\xff", [b"k"])
    assert found[1].tables is None


def test_a_snapshot_ends_with_its_last_table() -> None:
    first, second = TableRun("public.a", state=TableState.DONE), TableRun("public.b")
    snapshot = run("one", first, second)
    assert not snapshot.end_if_done()
    snapshot.fail_table(second, "no key")
    assert snapshot.end_if_done()
    assert snapshot.state is SnapshotState.FAILED
    assert snapshot.reason == "1 of 2 tables were not read; public.b: no key"


def test_what_consumers_lack_of_a_table_that_was_begun_anew_is_told_and_survives_json() -> None:
    table = TableRun("public.b", state=TableState.READING, key=b"7", order="[]", again={b"1": 1})
    for note in ("altered", "", "altered", "renamed"):
        table.begin_anew(note)
    assert (table.key, table.order, table.again, table.notes) == (None, "", {}, ("altered", "renamed"))
    snapshot = run("one", TableRun("public.a", state=TableState.DONE), table)
    snapshot.end_table(table)
    assert snapshot.end_if_done()
    [found] = decode_runs(json.loads(json.dumps(encode_runs([snapshot], ()))))
    assert found.encode() == snapshot.encode()
    assert (found.state, found.reason) == (SnapshotState.DONE, "public.b: renamed")
    shown = found.show(1.0, found.state, "")
    assert [one.reason for one in shown.tables] == ["altered; renamed", ""], "the most telling first"
    assert count_tables_altered(shown) == 1
    assert found.tables is not None
    assert found.tables[0].begun_anew == 4


def test_what_has_ended_stays_so() -> None:
    snapshot = run()
    snapshot.want(Wanted.CANCEL)
    snapshot.want(Wanted.RUN)
    assert snapshot.state is SnapshotState.CANCELLED


def test_the_last_snapshots_that_ended_are_remembered_and_all_that_have_not() -> None:
    runs = [run(str(number)) for number in range(9)]
    for one in runs[1:]:
        one.state = SnapshotState.DONE
    every = {one.id for one in runs}
    assert [one["id"] for one in encode_runs(runs, every)] == ["0", "4", "5", "6", "7", "8"]
    assert [one["id"] for one in encode_runs(runs, every - {"2"})] == ["0", "2", "4", "5", "6", "7", "8"]


def test_the_time_left_follows_from_the_rows_of_the_last_seconds() -> None:
    snapshot = run("one", TableRun("public.t", state=TableState.READING, rows=500, estimated_rows=2000))
    snapshot.rates.note(100.0, 200)
    snapshot.rates.note(102.0, 300)
    shown = snapshot.show(105.0, SnapshotState.RUNNING, "")
    assert shown.rows_per_second == pytest.approx(100.0)
    assert shown.seconds_left == pytest.approx(15.0)
    assert snapshot.show(200.0, SnapshotState.RUNNING, "").seconds_left is None


def test_uuids_of_rows_are_those_of_their_snapshot_table_and_key() -> None:
    keys = pa.array([b"1", b"2", b"a\0b"], pa.binary())
    one = compute_row_uuids("s", "public.t", keys)
    assert (one == compute_row_uuids("s", "public.t", keys)).all()
    others = np.concatenate([one, compute_row_uuids("r", "public.t", keys), compute_row_uuids("s", "public.u", keys)])
    others = np.concatenate([others, compute_row_uuids("s", "public.t", keys, begun_anew=1)])
    assert len(set(others.tolist())) == 12
    assert {(value[14:15], value[19:20] in b"89ab") for value in others.tolist()} == {(b"8", True)}
