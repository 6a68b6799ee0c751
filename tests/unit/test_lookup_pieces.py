"""A change is joined with the rows of a table as they are at its place, however the batch is cut."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from psql_streamer.model import Changes, ReplicaIdentity, RowOp, Truncate
from psql_streamer.spark.lookups.pieces import Moving, Piece, Use, select_rows, split
from psql_streamer.spark.lookups.row_changes import compute_row_changes
from psql_streamer.spark.lookups.table_state import Row, RowChange, TableState
from psql_streamer.spark.lookups.table_store import Place, TableStore
from tests.spark_changes import DELETE, INSERT, UPDATE, changes, column

CUSTOMERS = (column("id", 23, key=True), column("segment", 25), column("notes", 25))
ID, SEGMENT = 0, 1
ORDERS = (column("id", 23, key=True), column("customer", 23), column("seller", 23), column("segment", 25))


def state_of(rows: Sequence[Row]) -> TableState:
    return TableState.from_arrays(CUSTOMERS, [pa.array([row[at] for row in rows], pa.binary()) for at in range(3)])


def listed(arrays: Sequence[pa.Array]) -> set[Row]:
    return set(zip(*(array.to_pylist() for array in arrays), strict=True))


def at(part: Changes, orders: Iterable[int]) -> Changes:
    import dataclasses

    import numpy as np

    return dataclasses.replace(part, batch_order=np.array(list(orders)))


def naive(rows: Iterable[Row], moves: Iterable[RowChange], order: int) -> set[Row]:
    held = {row[ID]: row for row in rows}
    for move in moves:
        if move.batch_order >= order:
            break
        if move.key is None:
            held.clear()
        elif move.after is None:
            held.pop(move.key, None)
        else:
            held[move.key] = move.after
    return set(held.values())


@pytest.mark.parametrize("seed", range(60))
def test_every_change_sees_the_rows_of_its_place(seed: int) -> None:
    chance = random.Random(seed)
    first, moves = random_table(chance)
    orders = random_orders(chance)
    moving = Moving(state_of(first), moves)
    uses: list[Use | None] = [Use(ID, (1,)), Use(ID, (1, 2)), Use(SEGMENT, (3,)), None]
    for use in uses:
        seen: list[int] = []
        for piece in split(orders, {"customers": moving}, {"customers": use}):
            some = orders if piece.rows is None else orders.take(piece.rows)
            seen += some.batch_order.tolist()
            shown = listed(select_rows("customers", moving, use, some, piece))
            for row, order in enumerate(some.batch_order.tolist()):
                there = naive(first, moves, order)
                if use is None:
                    assert shown == there
                else:
                    for value in values_of(some, row, use.sent):
                        assert {one for one in shown if one[use.column] == value} == {
                            one for one in there if one[use.column] == value
                        }
        assert sorted(seen) == orders.batch_order.tolist()


def random_table(chance: random.Random) -> tuple[list[Row], list[RowChange]]:
    first: list[Row] = [(b"%d" % key, chance.choice([b"gold", b"tin"]), None) for key in range(4)]
    held: dict[bytes, Row] = {row[0]: row for row in first if row[0] is not None}
    moves = []
    for order in sorted(chance.sample(range(0, 40, 2), chance.randrange(8))):
        key = b"%d" % chance.randrange(5)
        kind = chance.random()
        if kind < 0.1:
            held.clear()
            moves.append(RowChange(order, None))
        elif kind < 0.3 and key in held:
            moves.append(RowChange(order, key, held.pop(key)))
        else:
            new: Row = (key, chance.choice([b"gold", b"tin", None]), b"%d" % order)
            moves.append(RowChange(order, key, held.get(key), new))
            held[key] = new
    return first, moves


def random_orders(chance: random.Random) -> Changes:
    places = sorted(chance.sample(range(1, 41, 2), chance.randrange(1, 12)))

    def row() -> list[bytes | None]:
        keys = [b"%d" % chance.randrange(5), b"%d" % chance.randrange(5)]
        return [b"1", *keys, chance.choice([b"gold", b"tin", None])]

    ops = [chance.choice([INSERT, UPDATE, DELETE]) for _ in places]
    after = {number: row() for number, op in enumerate(ops) if op != DELETE}
    before = {number: row() for number, op in enumerate(ops) if op != INSERT}
    return at(changes(ops, after, before, ORDERS), places)


def values_of(some: Changes, row: int, columns: Iterable[int]) -> set[bytes]:
    found: set[Any] = set()
    for image in (some.after, some.before):
        for place, of in enumerate(image.rows.tolist()):
            if of == row:
                found |= {image.columns[one][place].as_py() for one in columns}
    return found - {None}


def test_changes_of_other_rows_do_not_cut_a_batch() -> None:
    orders = changes([INSERT] * 3, {n: [b"%d" % n, b"%d" % n, None, None] for n in range(3)}, {}, ORDERS)
    other = Moving(state_of([]), [RowChange(5, b"77", None, (b"77", b"new", None))])
    assert split(orders, {"customers": other}, {"customers": Use(ID, (1,))}) == [Piece()]


def test_a_row_that_changes_again_and_again_makes_as_many_pieces_as_it_has_versions() -> None:
    orders = changes([INSERT] * 9, {n: [b"1", b"%d" % (n % 3), None, None] for n in range(9)}, {}, ORDERS)
    moves = [RowChange(order, b"0", None, (b"0", b"%d" % order, None)) for order in (5, 35)]
    pieces = split(orders, {"customers": Moving(state_of([]), moves)}, {"customers": Use(ID, (1,))})
    assert [None if piece.rows is None else piece.rows.tolist() for piece in pieces] == [
        [0, 1, 2, 4, 5, 7, 8],
        [3],
        [6],
    ]


def test_an_update_without_a_value_keeps_the_one_that_the_row_had() -> None:
    held = state_of([(b"1", b"gold", b"long"), (b"2", b"tin", b"longer")])
    part = changes(
        [UPDATE, UPDATE],
        {0: [b"1", b"silver", None], 1: [b"3", b"tin", None]},
        {1: [b"2", None, None]},
        CUSTOMERS,
        absent={2: [True, True]},
        identity=ReplicaIdentity.DEFAULT,
    )
    made = compute_row_changes(held, [part], [])
    assert [(one.key, one.after) for one in made] == [
        (b"1", (b"1", b"silver", b"long")),
        (b"2", None),
        (b"3", (b"3", b"tin", b"longer")),
    ]


@pytest.mark.parametrize("segments", [(b"gold", b"tin"), (b"gold", b"gold")])
def test_rows_that_exchange_their_keys_are_both_there(segments: tuple[bytes, bytes]) -> None:
    one, other = segments
    held = state_of([(b"1", one, None), (b"2", other, None)])
    part = changes(
        [UPDATE, UPDATE],
        {0: [b"2", one, None], 1: [b"1", other, None]},
        {0: [b"1", one, None], 1: [b"2", other, None]},
        CUSTOMERS,
    )
    state = held.with_changes(compute_row_changes(held, [part], []))
    assert state.get([b"1", b"2"]) == {b"1": (b"1", other, None), b"2": (b"2", one, None)}


def test_what_leaves_a_row_as_it_is_does_not_count() -> None:
    held = state_of([(b"1", b"gold", None)])
    part = changes([int(RowOp.READ), DELETE], {0: [b"1", b"gold", None]}, {1: [b"9", None, None]}, CUSTOMERS)
    assert compute_row_changes(held, [part], []) == []


def test_a_truncate_takes_all_rows_and_later_ones_stay() -> None:
    held = state_of([(b"1", b"gold", None), (b"2", b"tin", None)])
    part = changes([INSERT, INSERT], {0: [b"3", b"a", None], 1: [b"1", b"b", None]}, {}, CUSTOMERS)
    made = compute_row_changes(held, [part], [Truncate(part.relation, 5, 1, 1, 0, False, False)])
    assert listed(held.with_changes(made).list_rows()) == {(b"1", b"b", None)}


def test_many_changes_are_put_among_the_other_rows() -> None:
    held = state_of([(b"%d" % key, b"old", None) for key in range(2000)])
    moves = [RowChange(key, b"%d" % key, None, (b"%d" % key, b"new", None)) for key in range(500, 2500)]
    held = held.with_changes(moves)
    assert not held.changed
    assert held.count() == 2500
    assert held.get([b"499", b"500", b"2499", b"2500"]).keys() == {b"499", b"500", b"2499"}
    assert listed(held.select_rows(ID, [b"499", b"500"])) == {(b"499", b"old", None), (b"500", b"new", None)}


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = TableStore(tmp_path / "of" / "customers.lmdb", 1 << 20)
    yield made
    made.close()


def upsert(key: bytes, segment: bytes) -> RowChange:
    return RowChange(0, key, None, (key, segment, None))


def test_a_stream_that_goes_on_finds_the_rows_as_they_were_there(store: TableStore) -> None:
    relation = changes([INSERT], {0: [b"1", None, None]}, {}, CUSTOMERS).relation
    store.replace(relation, state_of([(b"1", b"gold", None), (b"2", b"tin", None)]))
    store.append(
        [(Place(10, 0), upsert(b"1", b"a")), (Place(10, 1), RowChange(0, b"2")), (Place(20, 0), upsert(b"3", b"c"))]
    )
    assert listed(store.load(relation).list_rows()) == {(b"1", b"a", None), (b"3", b"c", None)}
    store.settle(Place(10, 1))
    assert store.read_folded_place() == Place(10, 0)
    assert listed(store.load(relation).list_rows()) == {(b"1", b"a", None), (b"2", b"tin", None)}


def test_a_change_that_comes_again_is_there_once(store: TableStore) -> None:
    relation = changes([INSERT], {0: [b"1", None, None]}, {}, CUSTOMERS).relation
    store.replace(relation, state_of([]))
    for _ in range(2):
        store.append(
            [(Place(10, 0), upsert(b"1", b"a")), (Place(11, 0), RowChange(0, None)), (Place(12, 0), upsert(b"2", b""))]
        )
    store.fold(Place(12, 0))
    assert listed(store.load(relation).list_rows()) == {(b"2", b"", None)}


def test_long_keys_and_nulls_survive_the_disk(store: TableStore) -> None:
    relation = changes([INSERT], {0: [b"1", None, None]}, {}, CUSTOMERS).relation
    rows: list[Row] = [(b"k" * 5000, None, b""), (b"k" * 5001, b"x" * 3000, None)]
    store.replace(relation, state_of(rows))
    assert listed(store.load(relation).list_rows()) == set(rows)
