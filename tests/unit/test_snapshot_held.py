"""A chunk that waits for the stream: which rows are taken out of it, and which are read again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.model import Column, Relation, ReplicaIdentity
from psql_streamer.pgtype import PostgresType
from psql_streamer.snapshot.changed_keys import ChangedKeys
from psql_streamer.snapshot.fence import Fence
from psql_streamer.snapshot.held import HeldChunk, Piece, ReadRows

INT, TEXT = PostgresType(23), PostgresType(25)
RELATION = Relation(
    "16400", "public", "t", (Column("id", INT, key=True), Column("v", TEXT)), ReplicaIdentity.DEFAULT, version=1
)
FENCE = Fence(xmin=100, xmax=110, xip=(104,), lsn=5000, at_us=0)
SEEN, RUNNING, LATER = 103, 104, 110


def texts(*values: str) -> pa.Array:
    return pa.array([value.encode() for value in values], pa.binary())


def chunk(*keys: str) -> HeldChunk:
    held = HeldChunk(turn=1, latest=None)
    held.fill(ReadRows(FENCE, RELATION, [texts(*keys), texts(*(f"v{key}" for key in keys))], texts(*keys), 10))
    return held


def changed(xid: int, *keys: str, lacks: bool = False) -> ChangedKeys:
    return ChangedKeys(np.full(len(keys), xid, np.uint32), texts(*keys), np.full(len(keys), lacks))


def left(held: HeldChunk) -> list[bytes]:
    found: list[bytes] = held.take(100, 1000).keys.to_pylist()
    return found


@pytest.mark.parametrize("xid", [RUNNING, LATER])
def test_a_row_that_an_invisible_transaction_changed_is_taken_out(xid: int) -> None:
    held = chunk("1", "2", "3")
    held.note(changed(xid, "2", "7"), RELATION)
    assert held.take_out_changed() == []
    assert held.stale == 1
    assert left(held) == [b"1", b"3"]


def test_a_row_that_a_visible_transaction_changed_stays() -> None:
    held = chunk("1", "2")
    held.note(changed(SEEN, "2"), RELATION)
    assert held.take_out_changed() == []
    assert left(held) == [b"1", b"2"]


@pytest.mark.parametrize(("name", "outdated"), [("t", True), ("u", False)])
def test_rows_whose_tables_name_another_one_has_taken_are_read_again(name: str, outdated: bool) -> None:
    held = HeldChunk(turn=1, latest=None)
    held.note_name_of_another(replace(RELATION, id="16500", table=name))  # while the chunk is read
    held.fill(ReadRows(FENCE, RELATION, [texts("1"), texts("v1")], texts("1"), 10))
    held.take_out_changed()
    assert held.outdated is outdated


def test_what_the_stream_gave_while_the_chunk_was_read_counts() -> None:
    held = HeldChunk(turn=1, latest=None)
    held.note(changed(LATER, "1"), RELATION)
    held.fill(ReadRows(FENCE, RELATION, [texts("1", "2"), texts("a", "b")], texts("1", "2"), 10))
    held.take_out_changed()
    assert left(held) == [b"2"]


def test_a_row_whose_change_came_without_a_value_is_read_again() -> None:
    held = chunk("1", "2", "3")
    held.note(changed(LATER, "2", lacks=True), RELATION)
    held.note(changed(LATER, "3"), RELATION)
    held.note(changed(SEEN, "1", lacks=True), RELATION)
    assert held.take_out_changed() == [b"2"]


def test_a_row_that_was_given_is_not_read_again() -> None:
    held = chunk("1", "2", "3")
    held.take_out_changed()
    assert held.take(1, 1000).keys.to_pylist() == [b"1"]
    held.note(changed(LATER, "1", "2", lacks=True), RELATION)
    assert held.take_out_changed() == [b"2"]
    assert left(held) == [b"3"]


@pytest.mark.parametrize(("xid", "remaining"), [(LATER, []), (SEEN, [b"1", b"2"])])
def test_a_truncate_takes_out_every_row_unless_the_chunk_was_read_behind_it(xid: int, remaining: list[bytes]) -> None:
    held = chunk("1", "2")
    held.note_truncate(xid)
    held.take_out_changed()
    assert left(held) == remaining


def test_rows_that_were_read_in_another_shape_are_outdated() -> None:
    held = chunk("1")
    held.note_shape(RELATION)
    held.take_out_changed()
    assert not held.outdated
    wider = Relation("16400", "public", "t", (*RELATION.columns, Column("w", INT)), ReplicaIdentity.DEFAULT, version=2)
    held.note_shape(wider)
    held.take_out_changed()
    assert held.outdated


def test_pieces_are_no_larger_than_allowed_and_say_up_to_which_key_the_table_is_done() -> None:
    held = chunk(*"12345")
    held.note(changed(LATER, "4"), RELATION)
    held.take_out_changed()
    first, second, third = held.take(2, 1000), held.take(100, 4), held.take(100, 1000)
    assert [piece.keys.to_pylist() for piece in (first, second, third)] == [[b"1", b"2"], [b"3"], [b"5"]]
    assert [(piece.behind, piece.ends_chunk) for piece in (first, second, third)] == [
        (b"2", False),
        (b"4", False),
        (b"5", True),
    ]
    assert second.columns[1].to_pylist() == [b"v3"]


def test_a_chunk_without_rows_ends_at_once() -> None:
    held = chunk()
    held.note(changed(LATER, "4", lacks=True), RELATION)
    held.note_truncate(LATER)
    assert held.take_out_changed() == []
    piece: Piece = held.take(10, 10)
    assert (len(piece.keys), piece.behind, piece.ends_chunk) == (0, None, True)
