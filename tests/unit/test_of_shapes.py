"""What is made of a shape is made once, also where every batch has a list of shapes of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from psql_streamer import cells
from psql_streamer.cells import OfShapes, Shape
from psql_streamer.hashed import Hashed
from psql_streamer.model import Column, Relation, ReplicaIdentity
from tests.columns import postgres_column, postgres_table
from tests.spark_changes import ORDERS


def relation(table: str) -> Relation:
    return postgres_table(16384, "public", table, ReplicaIdentity.DEFAULT, ORDERS)


class Asked:
    """Counts what is made. made: the tables of which it was, in turn."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.of_shapes = OfShapes(self._make)

    def _make(self, shape: Shape) -> tuple[str, int]:
        self.made.append(shape.relation.table)
        return shape.relation.table, len(shape.columns)


def test_a_list_of_a_session_is_asked_for_what_was_added_alone() -> None:
    asked, session = Asked(), [Shape(relation("orders"), ORDERS)]
    asked.of_shapes.make_each(session)
    session.append(Shape(relation("lines"), ORDERS))
    assert asked.of_shapes.make_each(session) == [("orders", len(ORDERS)), ("lines", len(ORDERS))]
    assert asked.made == ["orders", "lines"]


def test_a_new_list_of_the_same_relations_and_columns_makes_nothing_anew() -> None:
    asked, orders, lines = Asked(), relation("orders"), relation("lines")
    for _ in range(3):
        found = asked.of_shapes.make_each([Shape(orders, ORDERS), Shape(lines, ORDERS)])
        assert found == [("orders", len(ORDERS)), ("lines", len(ORDERS))]
    assert asked.made == ["orders", "lines"]


def test_other_columns_of_a_relation_are_another_shape() -> None:
    asked, orders = Asked(), relation("orders")
    fewer = ORDERS[1:]
    assert asked.of_shapes.make_each([Shape(orders, ORDERS)]) == [("orders", 4)]
    assert asked.of_shapes.make_each([Shape(orders, fewer)]) == [("orders", 3)]


def test_shapes_that_are_gone_lend_their_place_in_memory_to_no_others() -> None:
    asked = Asked()
    for count in range(2000):
        columns: tuple[Column, ...] = tuple(postgres_column(f"c{at}", 25) for at in range(count % 7 + 1))
        table = relation(f"t{count}")
        assert asked.of_shapes.make_each([Shape(table, columns)]) == [(f"t{count}", count % 7 + 1)]


def test_not_more_shapes_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "_MOST_HELD_COLUMNS", 2 * len(ORDERS) + 2 * cells._COLUMNS_A_SHAPE)
    asked, tables = Asked(), [relation(name) for name in "abc"]
    for table in (*tables, *tables):
        assert asked.of_shapes.make_each([Shape(table, ORDERS)]) == [(table.table, len(ORDERS))]
    assert asked.made == ["a", "b", "c", "a", "b", "c"]


def test_columns_that_are_others_in_every_batch_are_not_held_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "_MOST_HELD_COLUMNS", 1000)
    asked, orders = Asked(), relation("orders")
    for _ in range(500):
        asked.of_shapes.make_each([Shape(orders, (*ORDERS, postgres_column("more", 25)))])
    assert len(asked.of_shapes._of_objects) < 100


def test_hashed_values_are_equal_as_their_values_are() -> None:
    same = tuple(replace(column) for column in ORDERS)
    assert Hashed(ORDERS) == Hashed(same)
    assert {Hashed(ORDERS): 1}[Hashed(same)] == 1
    assert Hashed(ORDERS) != Hashed(ORDERS[1:])
    assert Hashed(ORDERS) != ORDERS
