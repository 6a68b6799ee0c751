"""What the instances of a handler say together."""

from __future__ import annotations

from psql_streamer.interfaces import Status
from psql_streamer.pipeline.handler_instances import choose_worst_by_name, sum_by_name

WELL, AWAY = Status(True, "the engine runs"), Status(False, "the engine ended")


def test_a_handler_is_as_well_as_its_worst_instance() -> None:
    other = Status(True, "nothing has gone through it yet")
    instances = [{"handler.spark": WELL}, {"handler.spark": AWAY, "handler.own": other}, {"handler.spark": WELL}]
    told = choose_worst_by_name(instances)
    assert told == {"handler.spark": AWAY, "handler.own": other}


def test_numbers_of_a_handler_are_those_of_all_its_instances() -> None:
    one = {"rows": 3, "dead_lettered": 0, "engine": "local", "executors": 2}
    told = sum_by_name([{"handler.spark": one}, {"handler.spark": {**one, "rows": 4}}, {"handler.own": {}}])
    assert told == {"handler.spark": {**one, "rows": 7}, "handler.own": {}}


def test_what_is_a_number_in_one_instance_and_none_in_another_is_the_last_ones() -> None:
    told = sum_by_name([{"handler.own": {"rows": "many"}}, {"handler.own": {"rows": 4}}])
    assert told == {"handler.own": {"rows": 4}}
