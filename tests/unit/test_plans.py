"""What becomes of shapes, collected one by one as they are met, is what it is when they are met together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.cells import Shape, convert_to_cells
from psql_streamer.errors import SinkRefused
from psql_streamer.events.plans import Plan, Plans, SourcePlans, Way
from psql_streamer.model import ReplicaIdentity
from psql_streamer.testing.batches import make_mixed_batch
from tests.columns import postgres_table
from tests.spark_changes import ORDERS

NAMES = st.sampled_from("abcd")
WAYS = st.builds(Way, st.lists(st.integers(0, 3), max_size=2).map(tuple), st.lists(NAMES, max_size=3).map(tuple))
PLANS = st.builds(Plan, NAMES, st.lists(WAYS, max_size=3).map(tuple), st.none(), st.booleans())


@given(each=st.lists(PLANS, max_size=12), cut=st.integers(0, 12))
def test_plans_that_come_one_after_the_other_are_as_those_that_come_together(each: list[Plan], cut: int) -> None:
    together, one_by_one, in_two = Plans(), Plans(), Plans()
    together.add(each)
    for plan in each:
        one_by_one.add([plan])
    in_two.add(each[:cut])
    in_two.add(each[cut:])
    assert contents(one_by_one) == contents(in_two) == contents(together)
    assert together.tables == [plan.table for plan in each]
    for number, ways in enumerate(together.of_way):
        for shape, plan in enumerate(each):
            way = plan.ways[number] if number < len(plan.ways) else Way((), ())
            topics = [names[place[shape]] for names, place in ways.topics if place[shape] >= 0]
            assert (ways.keys[shape], topics) == (way.key, list(way.topics))


def test_a_list_that_grew_is_planned_for_what_is_new_and_another_list_anew() -> None:
    planned: list[str] = []

    def plan(shape: Shape) -> Plan:
        planned.append(shape.relation.table)
        return Plan(shape.relation.table, (Way((0,), (shape.relation.table,)),))

    def make_shape(table: str) -> Shape:
        return Shape(postgres_table(16384, "public", table, ReplicaIdentity.DEFAULT, ORDERS), ORDERS)

    plans, session = SourcePlans(plan), [make_shape("a")]
    assert plans.collect_plans(session).tables == ["a"]
    session.append(make_shape("b"))
    assert plans.collect_plans(session).tables == ["a", "b"]
    assert plans.collect_plans([make_shape("c")]).tables == ["c"]
    assert planned == ["a", "b", "c"]


def test_a_shape_that_is_refused_is_refused_by_its_place_also_when_it_comes_later() -> None:
    plans = Plans()
    plans.add([Plan("a", (Way((), ("a",)),))])
    plans.refuse_rows(convert_to_cells(make_mixed_batch().changes))
    refused = Plans()
    refused.add([])
    refused.add([Plan("a", (), SinkRefused("no key", "give it one"))])
    with pytest.raises(SinkRefused, match="no key"):
        refused.refuse_rows(convert_to_cells(make_mixed_batch().changes))


def contents(plans: Plans) -> Any:
    ways = [
        (
            ways.keys.of_shapes,
            *(array.tolist() for array in (ways.keys.counts, ways.keys.columns, ways.keys.firsts)),
            [(list(names), np.asarray(number).tolist()) for names, number in ways.topics],
        )
        for ways in plans.of_way
    ]
    return plans.tables, plans.ways.tolist(), plans.excluded.tolist(), ways
