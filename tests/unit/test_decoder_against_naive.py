"""The columnar decoder gives what a plain decoder of the same bytes gives, however the bytes come in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.lsn import Lsn
from psql_streamer.model import Position, Relation
from psql_streamer.pgoutput.frames import FrameBuffer
from psql_streamer.pgoutput.wal_position import WalPosition
from tests import pgoutput_wire as wire
from tests.decoding import decode, decoder
from tests.few import both_ways  # noqa: F401 - a fixture for all tests here
from tests.flatten import flatten, flatten_all
from tests.naive_pgoutput import POSTGRES_EPOCH, NaiveChange, NaiveDecoder, naive_changes
from tests.pgoutput_wire import UNCHANGED, WireColumn, WireRelation
from tests.strategies import History, histories

ID_AND_NOTE = WireRelation(16400, "public", "notes", (WireColumn("id", 20, key=True), WireColumn("note")))


def transaction(*messages: bytes, commit_lsn: int = 1000) -> list[bytes]:
    """The frames of one transaction with these messages in it."""
    bounded = [wire.begin(commit_lsn, 0, 7), *messages, wire.commit(commit_lsn, commit_lsn + 50, 0)]
    return [wire.copy_data(wire.xlog_data(message, commit_lsn - 10)) for message in bounded]


@given(history=histories())
def test_a_history_fed_whole(history: History) -> None:
    frames = history.session()
    assert flatten_all(decode(frames, max(1, len(frames)))) == naive_changes(b"".join(frames))


@given(history=histories(), size=st.integers(1, 9))
def test_a_history_fed_in_blocks(history: History, size: int) -> None:
    frames = history.session()
    assert flatten_all(decode(frames, size)) == naive_changes(b"".join(frames))


@given(history=histories(max_happenings=4))
def test_a_history_fed_frame_by_frame(history: History) -> None:
    frames = history.session()
    assert flatten_all(decode(frames, 1)) == naive_changes(b"".join(frames))


@given(history=histories(max_happenings=3, max_width=5), data=st.data())
def test_a_history_whose_bytes_come_in_any_pieces(history: History, data: st.DataObject) -> None:
    stream = b"".join(history.session())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    assert decoded_in_pieces(stream, cuts) == naive_changes(stream)


def test_a_stream_split_at_every_byte() -> None:
    frames = [
        wire.copy_data(wire.keepalive(500)),
        *transaction(
            wire.relation(ID_AND_NOTE),
            wire.insert(16400, [b"1", None]),
            wire.update(16400, [b"1", UNCHANGED]),
            wire.delete(16400, [b"1", None]),
        ),
    ]
    stream = b"".join(frames)
    expected = naive_changes(stream)
    for cut in range(len(stream)):
        assert decoded_in_pieces(stream, [cut]) == expected, f"cut after {cut} bytes"


def test_a_block_without_changes_is_a_batch_without_rows() -> None:
    for frame in (wire.copy_data(wire.keepalive(10)), transaction()[0]):
        (batch,) = decode([frame], 1)
        assert len(batch) == 0
        assert flatten(batch) == []


@given(history=histories())
def test_after_everything_the_position_is_the_last_end(history: History) -> None:
    frames = history.session()
    if not frames:
        return
    expected = NaiveDecoder()
    expected.stream(b"".join(frames))
    position = decode(frames, len(frames))[-1].position
    assert WalPosition.from_position(position).changes == 0
    assert WalPosition.from_position(position).lsn >= expected.end_lsn


@given(history=histories())
def test_the_position_never_goes_back(history: History) -> None:
    positions = [batch.position for batch in decode(history.session(), 1)]
    assert positions == sorted(positions, key=lambda at: WalPosition.from_position(at))


def test_between_transactions_the_position_is_the_end_of_the_last_commit() -> None:
    frames = [*transaction(commit_lsn=1000), *transaction(commit_lsn=2000)]
    assert [batch.position for batch in decode(frames, 2)] == [
        _at(1050),
        _at(2050),
    ]


def test_inside_a_transaction_the_position_counts_what_was_seen_of_it() -> None:
    first = transaction(commit_lsn=1000)
    rows = [wire.insert(16400, [b"%d" % row, None]) for row in range(3)]
    second = transaction(wire.relation(ID_AND_NOTE), *rows, commit_lsn=2000)
    positions = [batch.position for batch in decode([*first, *second], 1)]
    assert positions[5:7] == [
        WalPosition(Lsn(1050), Lsn(2000), 2).position,
        WalPosition(Lsn(1050), Lsn(2000), 3).position,
    ]
    assert positions[7] == _at(2050)


def test_a_keepalive_moves_the_position_only_where_no_transaction_is_open() -> None:
    alive = wire.copy_data(wire.keepalive(900))
    opened = transaction(commit_lsn=1000)
    (idle,) = decode([alive], 1)
    assert idle.position == _at(900)
    inside = decode([opened[0], wire.copy_data(wire.keepalive(1700))], 1)
    assert [WalPosition.from_position(batch.position).lsn for batch in inside] == [0, 0]


def test_a_keepalive_from_before_the_last_commit_does_not_move_the_position_back() -> None:
    frames = [*transaction(commit_lsn=1000), wire.copy_data(wire.keepalive(700))]
    assert decode(frames, 1)[-1].position == _at(1050)


@pytest.mark.behaviour("S1")
def test_another_shape_of_a_table_is_another_version_and_the_same_shape_is_not() -> None:
    wider = WireRelation(16400, "public", "notes", (*ID_AND_NOTE.columns, WireColumn("extra")))
    frames = transaction(
        wire.relation(ID_AND_NOTE),
        wire.insert(16400, [b"1", None]),
        wire.relation(ID_AND_NOTE),
        wire.insert(16400, [b"2", None]),
        wire.relation(wider),
        wire.insert(16400, [b"3", None, b""]),
    )
    for size in (1, len(frames)):
        relations = [changes.relation for batch in decode(frames, size) for changes in batch.changes]
        assert versions(relations) == [1, 2], f"in blocks of {size}"


def test_the_rows_of_one_shape_in_a_block_are_one_group() -> None:
    other = WireRelation(16401, "public", "others", (WireColumn("id", key=True),))
    rows = [wire.insert(16400, [b"1", None]), wire.insert(16401, [b"1"])] * 5
    frames = transaction(wire.relation(ID_AND_NOTE), wire.relation(other), *rows)
    (batch,) = decode(frames, len(frames))
    assert sorted(map(len, batch.changes)) == [5, 5]


def test_a_transaction_that_was_replayed_says_where_it_comes_from_however_blocks_are_cut() -> None:
    rows = [wire.insert(16400, [b"%d" % row, None]) for row in range(3)]
    replayed = transaction(wire.origin(77, "node_b"), wire.relation(ID_AND_NOTE), *rows, commit_lsn=2000)
    frames = [*transaction(commit_lsn=1000), *replayed, *transaction(*rows, commit_lsn=3000)]
    for size in range(1, len(frames) + 1):
        told = [(change.commit_lsn, change.origin) for change in flatten_all(decode(frames, size))]
        assert told == [(2000, ("node_b", 77))] * 3 + [(3000, None)] * 3, f"in blocks of {size}"


def test_a_message_outside_a_transaction_has_the_time_of_the_commit_before_it_or_else_of_its_sending() -> None:
    alone = wire.copy_data(wire.xlog_data(wire.message(900, "note", b"", transactional=False), 900, sent_at=5_000_000))
    committed = [wire.begin(1000, 7_000_000, 7), wire.commit(1000, 1050, 7_000_000)]
    frames = [alone, *(wire.copy_data(wire.xlog_data(message, 990)) for message in committed), alone]
    for size in range(1, len(frames) + 1):
        moments = [message.moment for batch in decode(frames, size) for message in batch.messages]
        assert moments == [POSTGRES_EPOCH + 5_000_000, POSTGRES_EPOCH + 7_000_000], f"in blocks of {size}"


@pytest.mark.behaviour("D13")
def test_a_row_of_a_million_bytes() -> None:
    frames = transaction(
        wire.relation(ID_AND_NOTE), wire.insert(16400, [b"1", b"x" * 1_000_000]), wire.insert(16400, [b"2", b""])
    )
    assert flatten_all(decode(frames, len(frames))) == naive_changes(b"".join(frames))


def test_a_batch_counts_the_bytes_that_it_holds() -> None:
    frames = transaction(wire.relation(ID_AND_NOTE), wire.insert(16400, [b"1", b"x" * 1_000_000]))
    (batch,) = decode(frames, len(frames))
    assert 1_000_000 <= batch.nbytes <= 5_000_000


def decoded_in_pieces(stream: bytes, cuts: Sequence[int]) -> list[NaiveChange]:
    """Fed to a FrameBuffer in these pieces, and decoded after each."""
    buffer, machine = FrameBuffer(), decoder()
    changes: list[NaiveChange] = []
    bounds = [0, *cuts, len(stream)]
    for start, end in pairwise(bounds):
        buffer.feed(stream[start:end])
        while (block := buffer.take(max_bytes=1 << 20, max_frames=1 << 20)) is not None:
            changes += flatten(machine.decode(block.data, block.offsets))
    return changes


def versions(relations: Sequence[Relation]) -> list[int]:
    """The distinct versions in the order in which they came up."""
    return list(dict.fromkeys(relation.version for relation in relations))


def _at(lsn: int, commit_lsn: int = 0, changes: int = 0) -> Position:
    return WalPosition(Lsn(lsn), Lsn(commit_lsn), changes).position
