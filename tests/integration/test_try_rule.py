"""The helper for tests of one's own rules: one engine for all, results as plain Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from psql_streamer.errors import ConfigError, HandlerRefused
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.testing import RuleResult, deleted, inserted, try_rule, updated
from psql_streamer.testing.rules import _running
from tests.integration.conftest import MASTER

CONFIG = f"""
http = ":0"
lmdb = "/nonexistent/positions"
[source.db1]
type = "postgres"
dsn = "host=127.0.0.1 port=1 dbname=shop password=${{PASSWORD}}"
publication = "shop"
replicationSlot = "shop"
[sink.kafka]
type = "kafka"
sources = ["db1"]
hosts = ["127.0.0.1:1"]
topicPrefix = "shop"
deadLetterTopic = "shop.dead"
format = "envelope"
headers = true
[spark]
master = "{MASTER}"
"""

Try = Callable[..., RuleResult]


@pytest.fixture
def tried(engine: SparkHandler, tmp_path: Path) -> Try:
    """try_rule with these rules in the configuration. engine: its JVM is there for all."""
    assert engine.status().ok

    def run(rules: str, table: str = "public.orders", **arguments: Any) -> RuleResult:
        config = tmp_path / "psql-streamer.toml"
        config.write_text(CONFIG + rules)
        return try_rule(config, table, environ={"PASSWORD": "choose-one"}, **arguments)

    return run


def test_the_example_of_the_page_passes(tried: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "capture.md").read_text()
    rules, example = (
        re.search(rf"```{kind}\n(.*?)```", page[page.index("## In tests") :], re.DOTALL) for kind in ("toml", "python")
    )
    assert rules
    assert example
    (tmp_path / "shop.toml").write_text(CONFIG + rules[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PASSWORD", "choose-one")
    names: dict[str, Any] = {}
    exec(example[1], names)
    tests = [one for name, one in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        test()


def test_events_topics_keys_headers_dropped_and_dead_letters_are_plain_python(tried: Try) -> None:
    rules = """
    [spark.tables."public.orders"]
    coerce = { amount = "decimal(12,2)" }
    sql = "SELECT *, CAST(amount * 2 AS decimal(12,2)) AS twice FROM changes WHERE id <> 3"
    onError = "dead-letter"
    """
    rows = [
        {"id": 1, "amount": "10.00"},
        {"id": 2, "amount": "a secret"},
        {"id": 3, "amount": None},
        updated({"id": 4, "amount": "1.50"}, before={"id": 1}),
        deleted({"id": 4}),
    ]
    result = tried(rules, rows=rows)
    assert result.outcomes == ["sent", "dead-letter", "dropped", "sent", "sent"]
    assert result.topics == ["shop.public.orders"] * 4
    assert result.keys == [{"id": 1}, {"id": 1}, {"id": 4}, {"id": 4}]
    first = result.events[0]
    assert first["after"] == {"id": 1, "amount": 10.0, "twice": 20.0}
    assert result.headers[0]["op"] == "insert"
    assert [one["after"]["id"] for one in result.dropped] == ["3"]
    [letter] = result.dead_letters
    assert (letter.rule, letter.column, letter.topic) == ("public.orders", "amount", "shop.dead")
    assert letter.event["after"]["amount"] == "a secret"


@pytest.mark.parametrize(
    ("full", "outcomes", "deleted_rows"),
    [
        (True, ["sent", "sent", "dropped"], [{"id": 1, "status": "paid"}, {"id": 2, "status": "paid"}]),
        (False, ["dropped", "sent", "sent"], [{"id": 2}, {"id": 1}]),
    ],
)
def test_old_rows_are_those_that_the_replica_identity_gives(
    tried: Try, full: bool, outcomes: list[str], deleted_rows: list[Any]
) -> None:
    rows = [
        updated({"id": 1, "status": "new"}, before={"id": 1, "status": "paid"}),
        updated({"id": 3, "status": "new"}, before={"id": 2, "status": "paid"}),
        deleted({"id": 1, "status": "new"}),
    ]
    result = tried('[spark.tables."public.orders"]\nwhere = "status = \'paid\'"\n', rows=rows, full=full)
    assert result.outcomes == outcomes
    assert [name["op"] for name in result.headers] == ["delete", "delete"]
    known = [{name: value for name, value in event["before"].items() if value} for event in result.events]
    assert known == deleted_rows


def test_a_value_of_python_has_the_type_of_postgresql_that_is_its_own(tried: Try) -> None:
    row = {
        "id": 1,
        "whole": 2**60,
        "flag": True,
        "price": Decimal("1.50"),
        "ratio": 0.5,
        "day": date(2024, 2, 29),
        "moment": datetime(2024, 2, 29, 12, tzinfo=UTC),
        "local": datetime(2024, 2, 29, 12),
        "who": UUID(int=7),
        "data": b"\x00\xff",
        "doc": {"a": [1, None]},
        "tags": ["x", None],
        "nothing": None,
    }
    given = {"tags": "text[]", "price": "numeric(12,2)"}
    rules = '[spark.tables.orders]\nsql = "SELECT *, typeof(struct(*)) AS kinds FROM changes"\n'
    [event] = tried(rules, rows=[inserted(row)], types=given).events
    after = event["after"]
    assert after["moment"] == "2024-02-29T12:00:00Z"
    assert after["doc"] == {"a": [1, None]}
    assert after["tags"] == ["x", None]
    assert after["nothing"] is None
    kinds = dict(one.split(":") for one in after["kinds"].removeprefix("struct<")[:-1].replace("(12,2)", "").split(","))
    expected = {"id": "bigint", "flag": "boolean", "price": "decimal", "ratio": "double", "day": "date"}
    assert {name: kinds[name] for name in expected} == expected
    assert (kinds["moment"], kinds["local"], kinds["data"]) == ("timestamp", "timestamp_ntz", "binary")


def test_what_a_rule_refuses_is_the_error_of_the_service(tried: Try) -> None:
    with pytest.raises(HandlerRefused, match=r"public\.orders, rule 'orders': .*UNRESOLVED_COLUMN"):
        tried('[spark.tables.orders]\nsql = "SELECT nothing FROM changes"', rows=[{"id": 1}])
    assert tried("", rows=[{"id": 1}]).outcomes == ["sent"], "and the next one goes on"


def test_captured_events_and_rows_may_come_together(tried: Try, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    relation = {"table": "orders", "columns": [{"name": "id", "type": "int8", "key": True}]}
    file.write_text(json.dumps({"relation": relation}) + '\n{"op": "insert", "after": {"id": "1"}}\n')
    assert tried("", events=file, rows=[{"id": 2}]).keys == [{"id": 1}, {"id": 2}]
    with pytest.raises(ConfigError, match='there is no change of "customers"'):
        tried("", "customers", events=[file])


def test_calls_with_the_same_rules_share_the_handler_and_others_its_engine(tried: Try) -> None:
    def handlers() -> list[int]:
        assert _running._trial
        return [id(handler) for handler in _running._trial.handlers]

    rules = '[spark.tables.orders]\nsql = "SELECT * FROM changes"'
    tried(rules, rows=[{"id": 1}])
    first = handlers()
    tried(rules, rows=[{"id": 2}])
    assert handlers() == first
    tried(rules.replace("*", "id"), rows=[{"id": 2}])
    assert handlers() != first


def test_a_lookup_is_read_anew_by_every_call(tried: Try, tmp_path: Path) -> None:
    file = tmp_path / "segments.csv"
    rules = f'''
    [spark.lookups.segments]
    kind = "csv"
    path = "{file}"
    options = {{ header = true }}
    [spark.tables.orders]
    sql = "SELECT c.*, s.segment FROM changes c LEFT JOIN segments s ON s.id = c.id"
    '''
    for segment in ("gold", "tin"):
        file.write_text(f"id,segment\n1,{segment}\n")
        [event] = tried(rules, rows=[{"id": 1}]).events
        assert event["after"]["segment"] == segment


def test_a_rule_for_some_sinks_is_tried_for_the_sink_that_is_named(tried: Try) -> None:
    rules = """
    [sink.partners]
    type = "kafka"
    sources = ["db1"]
    hosts = ["127.0.0.1:1"]
    topicPrefix = "partners"
    [[spark.tables.orders]]
    sinks = ["partners"]
    sql = "SELECT *, 'p-' || id AS _key FROM changes"
    """
    assert tried(rules, rows=[{"id": 1}], sink="partners").keys == ["p-1"], "text that is no JSON"
    assert tried(rules, rows=[{"id": 1}], sink="kafka").keys == [{"id": 1}]
