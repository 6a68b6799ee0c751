"""Rules of [spark.tables] that are for some of the sinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from psql_streamer.config import load
from psql_streamer.spark.options import SparkOptions
from tests.config_files import MINIMAL, problems_of, written

TWO_SINKS = (
    MINIMAL.replace('["passthrough"]', '["spark"]')
    + """
        [sink.log]
        type = "stub_log"
        sources = ["db1"]
        handlers = ["spark"]
        [sink.plain]
        type = "stub_log"
        sources = ["db1"]
        handlers = ["passthrough"]
    """
)

APART = """
    [[spark.tables.orders]]
    sql = "SELECT 1 FROM changes"
    sinks = ["kafka1"]
    [[spark.tables.orders]]
    sql = "SELECT 2 FROM changes"
    sinks = ["log"]
    onError = "dead-letter"
    [spark.tables."public.*"]
    sql = "SELECT 3 FROM changes"
"""


def sql_of(options: SparkOptions, sink: str | None) -> dict[str, str | None]:
    return {entry: rule.sql for entry, rule in options.select_rules(sink).items()}


def test_each_sink_has_its_own_rule_of_a_table_and_those_of_all(tmp_path: Path) -> None:
    config = load(written(tmp_path, TWO_SINKS + APART), {})
    options = config.handlers["spark"].options
    assert isinstance(options, SparkOptions)
    assert sql_of(options, "kafka1") == {"orders": "SELECT 1 FROM changes", "public.*": "SELECT 3 FROM changes"}
    assert sql_of(options, "log") == {"orders": "SELECT 2 FROM changes", "public.*": "SELECT 3 FROM changes"}
    assert sql_of(options, "another") == {"public.*": "SELECT 3 FROM changes"}
    assert sql_of(options, None) == sql_of(options, "kafka1")


def test_only_a_sink_whose_rules_put_rows_aside_needs_a_place_for_them(tmp_path: Path) -> None:
    """The rule with dead-letter is for the other sink."""
    assert load(written(tmp_path, TWO_SINKS + APART), {}).handlers["spark"].options.puts_rows_aside
    swapped = APART.replace("kafka1", "LOG").replace('"log"', '"kafka1"').replace("LOG", "log")
    (problem,) = problems_of(tmp_path, TWO_SINKS + swapped)
    assert 'sink.kafka1.deadLetterTopic: is required, because a rule of [spark] has onError = "dead-letter"' in problem


def test_every_instance_of_a_handler_knows_its_sink(tmp_path: Path) -> None:
    config = load(written(tmp_path, TWO_SINKS + APART), {})
    assert [(one.sink, tuple(one.sources)) for one in config.build_handlers("log")] == [("log", ("db1",))]
    assert config.build_handlers("plain") == []
    assert not config.build_handlers("log")[0].same_for_all_sinks
    alike = load(written(tmp_path, TWO_SINKS + '[spark.tables.orders]\nsql = "SELECT 1"'), {})
    assert alike.build_handlers("log")[0].same_for_all_sinks


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (
            '[spark.tables.orders]\nsql = "x"\nsinks = ["kafka2"]',
            'spark.tables.orders.sinks: there is no sink "kafka2"; did you mean kafka1?',
        ),
        (
            '[spark.tables.orders]\nsql = "x"\nsinks = ["plain"]',
            'spark.tables.orders.sinks: sink "plain" does not have "spark" among its handlers: add it there, or leave',
        ),
        (
            '[[spark.tables.orders]]\nsql = "x"\nsinks = ["log"]\n[[spark.tables.orders]]\nsql = "x"\nsinks = ["no"]',
            'spark.tables.orders[1].sinks: there is no sink "no"',
        ),
        (
            '[[spark.tables.orders]]\nsql = "x"\n[[spark.tables.orders]]\nsql = "x"\nsinks = ["log"]',
            "spark.tables.orders: has several rules, and one of them is for all sinks: say in each which sinks",
        ),
        (
            '[[spark.tables.orders]]\nsinks = ["log"]\n[[spark.tables.orders]]\nsinks = ["kafka1", "log"]',
            'spark.tables.orders: has two rules for the sink "log": leave it out of one of them',
        ),
        ('[spark.tables.orders]\nsql = "x"\nsinks = ["log", "log"]', 'spark.tables.orders.sinks: names "log" twice'),
        ("[spark.tables]\norders = []", "spark.tables.orders: is empty: write a rule, or leave the table out"),
        (
            '[[spark.tables.orders]]\nsinks = ["log"]\n[[spark.tables.orders]]\nsqll = "x"\nsinks = ["kafka1"]',
            "spark.tables.orders[1]: unknown key sqll; did you mean sql?",
        ),
        ('[spark.tables.orders]\nsqll = "x"', "spark.tables.orders: unknown key sqll; did you mean sql?"),
    ],
)
def test_rules_that_cannot_be_are_told_in_words(tmp_path: Path, rules: str, says: str) -> None:
    problems = problems_of(tmp_path, TWO_SINKS + rules)
    assert len(problems) == 1, problems
    assert says in problems[0]
