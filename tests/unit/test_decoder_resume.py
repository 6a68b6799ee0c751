"""A restart from a durable position, wherever the stream was cut, neither loses nor repeats a change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psql_streamer.lsn import Lsn
from psql_streamer.model import Batch, Position
from psql_streamer.pgoutput.wal_position import WalPosition
from tests import pgoutput_wire as wire
from tests.decoding import BEGINNING, decode, wal
from tests.flatten import flatten_all
from tests.naive_pgoutput import NaiveChange, naive_changes
from tests.pgoutput_wire import WireColumn, WireRelation
from tests.strategies import Emitted, History, RowChange, Transaction, histories

ONE_COLUMN = WireRelation(16400, "public", "numbers", (WireColumn("n", 20, key=True),))


def place(position: Position) -> tuple[int, int]:
    """Positions in the order of progress."""
    return wal(position).lsn, wal(position).changes


def inserts(commit_lsn: int, count: int) -> Transaction:
    """A transaction of inserts that all have one LSN, as COPY makes them."""
    rows = tuple(RowChange(ONE_COLUMN, commit_lsn - 5, (b"%d" % row,), None, "") for row in range(count))
    return Transaction(xid=7, commit_lsn=commit_lsn, end_lsn=commit_lsn + 8, commit_ts=0, steps=rows)


def run(history: History, size: int, resume: WalPosition | Position) -> list[Batch]:
    """What a session that starts at this position gives, in batches of `size` frames."""
    return decode(history.session(wal(resume).lsn), size, resume)


@settings(max_examples=50)
@given(history=histories(max_happenings=5, max_width=5), size=st.integers(1, 6))
def test_a_restart_after_any_batch_goes_on_where_it_ended(history: History, size: int) -> None:
    everything = naive_changes(b"".join(history.session()))
    durable: list[NaiveChange] = []
    for batch in run(history, size, BEGINNING):
        durable += flatten_all([batch])
        again = flatten_all(run(history, size, batch.position))
        assert durable + again == everything, f"restarted from {batch.position}"


@given(history=histories(max_happenings=5, max_width=5), sizes=st.lists(st.integers(1, 6), min_size=1), data=st.data())
def test_restart_after_restart_tells_the_history_once(history: History, sizes: list[int], data: st.DataObject) -> None:
    told: list[NaiveChange] = []
    position = BEGINNING
    for size in sizes:
        batches = run(history, size, position)
        survived = batches[: data.draw(st.integers(0, len(batches)))]
        told += flatten_all(survived)
        position = survived[-1].position if survived else position
    told += flatten_all(run(history, 1, position))
    assert told == naive_changes(b"".join(history.session()))


@settings(max_examples=50)
@given(history=histories(max_happenings=5, max_width=5), size=st.integers(1, 6))
def test_a_resumed_session_never_shows_a_position_before_its_start(history: History, size: int) -> None:
    for batch in run(history, size, BEGINNING):
        resumed = [batch.position, *(later.position for later in run(history, size, batch.position))]
        assert resumed == sorted(resumed, key=place)


def test_a_transaction_cut_at_every_row_with_all_rows_at_one_lsn() -> None:
    history = History([inserts(1000, 2), inserts(2000, 6)])
    everything = naive_changes(b"".join(history.session()))
    for batch in run(history, 1, BEGINNING):
        resumed = flatten_all(run(history, 3, batch.position))
        assert resumed == everything[len(everything) - len(resumed) :]
    inside = WalPosition(Lsn(1008), Lsn(2000), 4)
    assert [change.seq for change in flatten_all(run(history, 3, inside))] == [4, 5]


@pytest.mark.behaviour("R2")
def test_the_identity_of_a_change_is_the_same_after_a_restart() -> None:
    history = History([inserts(1000, 3), inserts(2000, 3)])
    first = flatten_all(run(history, 100, BEGINNING))
    again = flatten_all(run(history, 1, BEGINNING))
    assert first == again
    assert [(change.commit_lsn, change.seq) for change in first] == [
        (1000, 0),
        (1000, 1),
        (1000, 2),
        (2000, 0),
        (2000, 1),
        (2000, 2),
    ]


def test_a_position_of_another_transaction_skips_nothing() -> None:
    history = History([inserts(2000, 3)])
    elsewhere = WalPosition(Lsn(0), Lsn(1999), 2)
    assert len(flatten_all(run(history, 1, elsewhere))) == 3


@pytest.mark.behaviour("D11")
def test_a_message_outside_a_transaction_is_told_once() -> None:
    history = History([Emitted(500, "note", b"before"), inserts(1000, 2), Emitted(1100, "note", b"after")])
    for size in range(1, 8):
        durable: list[NaiveChange] = []
        for batch in run(history, size, BEGINNING):
            durable += flatten_all([batch])
            told = durable + flatten_all(run(history, 1, batch.position))
            assert [change.op for change in told] == ["M", "I", "I", "M"], f"blocks of {size}, {batch.position}"


@pytest.mark.behaviour("D11")
def test_a_commit_right_behind_a_message_outside_a_transaction_is_not_skipped() -> None:
    """The message's record ends where the commit record begins."""
    history = History([Emitted(1000, "note", b"before"), inserts(1000, 4)])
    for size in range(1, 8):
        durable: list[NaiveChange] = []
        for batch in run(history, size, BEGINNING):
            durable += flatten_all([batch])
            told = durable + flatten_all(run(history, 1, batch.position))
            assert [change.op for change in told] == ["M", "I", "I", "I", "I"], f"blocks of {size}, {batch.position}"
            identities = {(change.commit_lsn, change.seq) for change in told}
            assert len(identities) == len(told), "two changes of one identity"


def test_a_table_described_only_before_the_restart_is_described_again() -> None:
    history = History([inserts(1000, 1), inserts(2000, 1)])
    frames = history.session(1008)
    assert wire.relation(ONE_COLUMN) in b"".join(frames)
    assert len(flatten_all(run(history, 1, WalPosition(Lsn(1008))))) == 1
