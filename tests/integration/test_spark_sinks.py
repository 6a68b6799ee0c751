"""Rules that are for some of the sinks: every sink's handler has those of its sink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from psql_streamer.errors import HandlerRefused
from psql_streamer.interfaces import Published
from psql_streamer.model import Batch
from psql_streamer.review import review
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.options import SparkOptions
from sinks.stub import StubDiscardSink
from tests.integration.conftest import MASTER
from tests.spark_changes import INSERT, batch, changes, names, only, shop

APART: Any = {
    "orders": [
        {"sql": "SELECT id, 'of a' AS said FROM changes", "sinks": ["a"]},
        {"sql": "SELECT id FROM changes", "sinks": ["b"]},
    ],
    "customers": {"sql": "SELECT id, 'to all' AS said FROM changes"},
}


@pytest.fixture
def serving(engine: SparkHandler) -> Iterator[Any]:
    """Makes handlers with the rules given, one for each sink; sinks: name -> its sources."""
    made: list[SparkHandler] = []

    def make(tables: Any, sinks: dict[str, list[str]]) -> dict[str, SparkHandler]:
        handlers = {}
        for sink, sources in sinks.items():
            handlers[sink] = SparkHandler("spark", SparkOptions(master=MASTER, tables=tables))
            handlers[sink].serve(sink, sources)
            made.append(handlers[sink])
        return handlers

    yield make
    for handler in made:
        handler.stop()


def test_each_sink_gets_what_its_rule_makes_and_one_without_a_rule_the_table_as_it_is(serving: Any) -> None:
    handlers = serving(APART, {"a": ["db1"], "b": ["db1"], "c": ["db1"]})
    given = batch(shop())
    found: dict[str, Batch] = {}
    for sink, handler in handlers.items():
        handler.start()
        found[sink] = handler.handle(given)
    assert names(only(found["a"])) == ["id", "said"]
    assert names(only(found["b"])) == ["id"]
    assert found["c"] is given


def test_a_sink_that_no_rule_is_for_needs_no_engine(serving: Any) -> None:
    handlers = serving({"orders": {"sql": "SELECT 1", "sinks": ["a"]}}, {"c": ["db1"]})
    handlers["c"].start()
    assert "nothing goes through Spark" in handlers["c"].status().reason
    given = batch(shop())
    assert handlers["c"].handle(given) is given


def findings(handlers: dict[str, SparkHandler], published: Published) -> list[str]:
    sinks = [
        (StubDiscardSink(name, StubDiscardSink.Options(type="stub_discard", sources=tuple(handler.sources))), [handler])
        for name, handler in handlers.items()
    ]
    return [finding.problem for _, finding in review(sinks, published)]


def test_rules_are_held_against_the_tables_of_their_sinks_sources(serving: Any) -> None:
    orders, customers = shop().relation, changes([INSERT], {}, {}, table="customers").relation
    wrong = {
        "orders": [
            {"sql": "SELECT id FROM changes", "sinks": ["a"]},
            {"sql": "SELECT nothing FROM changes", "sinks": ["b"]},
        ],
        "customers": {"sql": "SELECT * FROM changes"},
    }
    handlers = serving(wrong, {"a": ["db1"], "b": ["db2"]})
    both = findings(handlers, {"db1": [orders, customers], "db2": [orders]})
    assert len(both) == 1
    assert "UNRESOLVED_COLUMN" in both[0]
    (missing,) = findings(handlers, {"db1": [orders, customers], "db2": [customers]})
    assert "'orders' fits no table that is published for the sinks b; known: customers" in missing
    of_all = findings(handlers, {"db1": [orders], "db2": []})
    assert ["'customers' fits no table that is published; known" in one for one in of_all].count(True) == 1
    assert len(of_all) == 2


def test_what_is_wrong_for_all_sinks_is_told_once(serving: Any) -> None:
    handlers = serving({"*": {"sql": "SELECT nothing FROM changes"}, **APART}, {"a": ["db1"], "b": ["db1"]})
    tables = [changes([INSERT], {}, {}, table=name).relation for name in ("orders", "customers", "others")]
    (problem,) = findings(handlers, {"db1": tables})
    assert "UNRESOLVED_COLUMN" in problem


def test_a_rule_that_fails_is_told_with_the_sinks_that_it_is_for(serving: Any) -> None:
    rules = {"orders": [{"sql": "SELECT *, 1 div 0 AS bad FROM changes", "sinks": ["b", "c"]}, {"sinks": ["a"]}]}
    handlers = serving(rules, {"b": ["db1"]})
    handlers["b"].start()
    with pytest.raises(HandlerRefused, match=r"public\.orders, rule 'orders' of sinks b, c: Spark ended with DIVIDE"):
        handlers["b"].handle(batch(shop()))
    rejected = serving({"orders": [{**rules["orders"][0], "onError": "dead-letter", "sinks": ["b"]}]}, {"b": ["db1"]})
    rejected["b"].start()
    reasons = {one.reason for one in rejected["b"].handle(batch(shop())).rejections}
    assert [reason.partition(":")[0] for reason in reasons] == ["public.orders, rule 'orders' of sink b"]
