"""What a Kafka sink says of tables that its section does not fit, before anything streams."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from psql_streamer.interfaces import Finding, Severity
from psql_streamer.model import Relation, ReplicaIdentity
from sinks.kafka.sink import KafkaSink
from tests.columns import postgres_column, postgres_table
from tests.kafka_sinks import Canned, options


def table(name: str, *columns: str, schema: str = "public", key: str = "id") -> Relation:
    """A table keyed by `key`; "" for none."""
    all_columns = tuple(
        postgres_column(column, 25, key=column == key) for column in columns or ("id", "customer_id", "body")
    )
    return postgres_table(1, schema, name, ReplicaIdentity.DEFAULT, all_columns)


SHOP = (table("orders"), table("customers", "id", "email"), table("sales_2024"), table("log", "note", key=""))


def review(tables: Sequence[Relation] = SHOP, other: Sequence[Relation] = (), **section: Any) -> list[Finding]:
    published = {"db1": tables, **({"db2": other} if other else {})}
    given = {"topicFallback": "", "topicPrefix": "t", "handlers": ["passthrough"], "sources": list(published)}
    return list(KafkaSink("kafka1", options("a:1", **given | section), Canned([])).review(published))


def warned(**section: Any) -> list[str]:
    findings = review(**section)
    assert {finding.severity for finding in findings} <= {Severity.WARNING}
    return [finding.problem for finding in findings]


def refused(**section: Any) -> list[str]:
    return [str(finding) for finding in review(**section) if finding.severity is Severity.ERROR]


def test_a_section_that_fits_gives_nothing() -> None:
    section = {
        "tableTopicMapping": {"public.orders": "o", "customers": "c", "sales_*": "s-{table}", "/^public[.]l/": "l"},
        "key": {"orders": ["customer_id"], "c*": ["email"], "*": ["id"]},
        "excludeTables": ["log"],
        "unchanged": {"body": "omit", "public.orders.body": "marker", "sales_*.body": "fill", "*": "fill"},
    }
    assert review(**section) == []


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"tableTopicMapping": {"order": "x"}}, '"order" fits no published table; did you mean orders?'),
        ({"tableTopicMapping": {"public.order": "x"}}, '"public.order" fits no published table; did you mean public.'),
        ({"tableTopicMapping": {"Orders": "x"}}, "; did you mean orders?"),
        ({"tableTopicMapping": {"order_*": "x"}}, 'tableTopicMapping: "order_*" fits no published table'),
        ({"tableTopicMapping": {"/^ordr/": "x"}}, 'tableTopicMapping: "/^ordr/" fits no published table'),
        ({"key": {"oders": ["id"]}}, 'key: "oders" fits no published table; did you mean orders?'),
        ({"excludeTables": ["lgo"]}, 'excludeTables: "lgo" fits no published table; did you mean log?'),
        ({"unchanged": {"oders.body": "omit"}}, 'unchanged: "oders.body" fits no column of a published table; did you'),
        ({"unchanged": {"orders.bdy": "omit"}}, "; did you mean body?"),
        ({"unchanged": {"bdy": "omit"}}, "; did you mean body?"),
        ({"unchanged": {"sales_*.bdy": "omit"}}, '"sales_*.bdy" fits no column of a published table'),
        ({"unchanged": {"customers.b*": "omit"}}, '"customers.b*" fits no column of a published table'),
    ],
    ids=str,
)
def test_an_entry_that_fits_nothing_is_warned_of_with_what_may_be_meant(section: dict[str, Any], says: str) -> None:
    (problem,) = warned(**section)
    assert says in problem


def test_an_entry_that_another_one_always_beats_is_warned_of() -> None:
    (problem,) = warned(tableTopicMapping={"*": "all", "sales_*": "sales"})
    what = 'tableTopicMapping: "sales_*" has no effect'
    assert problem == f"{what}: every published table that it matches uses another entry"


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (
            {"key": {"orders": ["custmer_id"]}},
            'key: "orders" names the column "custmer_id", which is not in public.orders',
        ),
        ({"key": {"orders": ["custmer_id"]}}, "; did you mean customer_id?"),
        ({"key": ["id"]}, 'key: "*" names the column "id", which is not in public.log'),
        (
            {"key": {"sales_*": ["region"]}},
            'key: "sales_*" names the column "region", which is not in public.sales_2024',
        ),
        (
            {"tableTopicMapping": {"orders": [{"topic": "by-region", "key": ["region"]}]}},
            'the key for topic "by-region" names the column "region", which is not in public.orders',
        ),
    ],
    ids=str,
)
def test_a_key_column_that_a_table_lacks_is_refused_before_its_first_row(section: dict[str, Any], says: str) -> None:
    (problem,) = refused(**section)
    assert says in problem


def test_a_key_column_that_a_handler_may_make_is_only_warned_of() -> None:
    (finding,) = review(key={"orders": ["region"]}, handlers=["spark"])
    assert finding.severity is Severity.WARNING
    assert finding.remedy == "correct it, unless a rule of spark makes the column"


def test_tables_without_a_topic_need_no_key_column() -> None:
    assert review(key=["id"], excludeTables=["log"]) == []
    assert review(key=["id"], topicPrefix="", tableTopicMapping={"orders": "orders"}) == []


def test_flat_refuses_tables_without_a_key_and_says_what_helps() -> None:
    (problem,) = refused(format="flat")
    assert 'format "flat" cannot take public.log' in problem
    for remedy in ("primary key", "`key`", "another format", "excludeTables"):
        assert remedy in problem


@pytest.mark.parametrize(
    "section",
    [
        {"excludeTables": ["log"]},
        {"key": {"log": ["note"]}},
        {"tableTopicMapping": {"log": {"topic": "log", "key": ["note"]}}},
        {"format": "event"},
    ],
    ids=str,
)
def test_every_remedy_for_a_table_without_a_key_works(section: dict[str, Any]) -> None:
    assert review(**{"format": "flat"} | section) == []


def test_topics_that_two_tables_would_share_by_accident_are_refused_with_both_names() -> None:
    (problem,) = refused(tables=(table("a b"), table("a_b"), table("orders")))
    assert 'table "public"."a_b" and table "public"."a b" would both go to topic "t.public.a_b"' in problem


def test_a_topic_that_kafka_does_not_allow_is_refused() -> None:
    (problem,) = refused(tables=(table("t" * 63),), topicPrefix="p" * 200)
    assert "which Kafka does not allow" in problem


def test_tables_of_two_sources_in_one_topic_are_warned_of_with_the_way_out() -> None:
    orders = (table("orders"),)
    (finding,) = review(orders, orders)
    assert finding.severity is Severity.WARNING
    assert "tables of db1 and db2 share topics" in finding.problem
    assert finding.problem.endswith(": t.public.orders")
    assert "{source}" in finding.remedy
    assert review(orders, orders, topicPrefix="t.{source}") == []
    assert review(orders, orders, tableTopicMapping={"orders": "{source}-orders"}) == []
    assert review(orders, (table("customers"),)) == []


def test_many_findings_of_a_kind_are_summed_up() -> None:
    problems = warned(tableTopicMapping={f"nowhere_{number}": "x" for number in range(50)})
    assert len(problems) == 11
    assert problems[-1] == "40 more findings like the one before"
    (problem,) = refused(tables=[table(f"t{number}", key="") for number in range(50)], format="flat")
    assert "public.t9 and 40 more" in problem


def test_ten_thousand_tables_are_reviewed_in_a_moment() -> None:
    names = [f"shop_table_{number:05d}" for number in range(10_000)]
    tables = [table(name, "id", *(f"c{number}" for number in range(20))) for name in names]
    section = {
        "tableTopicMapping": {f"shop_tabel_{number:05d}": "x" for number in range(20)} | {"/^x_(.*)$/": "y-{1}"},
        "key": {"shop_*": ["id"]},
        "excludeTables": ["tmp_*", "shop_table_00007"],
        "unchanged": {"shop_tabel_1.c1": "omit", "c99": "marker", "x*.c*": "omit"},
    }
    began = time.perf_counter()
    assert review(tables, **section)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("section", "name", "topic"),
    [
        ({"deadLetterTopic": "t.public.orders"}, "deadLetterTopic", "t.public.orders"),
        ({"deadLetterTopic": "lost", "tableTopicMapping": {"orders": ["o", "lost"]}}, "deadLetterTopic", "lost"),
        (
            {"exactlyOnce": True, "transactionalId": "x", "positionTopic": "t.public.orders"},
            "positionTopic",
            "t.public.orders",
        ),
    ],
    ids=str,
)
def test_a_topic_of_the_sink_itself_that_a_table_goes_to_is_refused(
    section: dict[str, Any], name: str, topic: str
) -> None:
    (problem,) = refused(**section)
    assert problem == f'error: {name} "{topic}" is also the topic of public.orders: give {name} a topic of its own'
