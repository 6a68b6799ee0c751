"""Which topic a table's events go to."""

import pytest

from psql_streamer.errors import SinkRefused
from psql_streamer.routing import Router


def test_an_exact_qualified_name_beats_the_bare_table_and_every_pattern() -> None:
    router = Router({"/orders/": "regex", "o*": "glob", "orders": "bare", "shop.orders": "qualified"}, "", "")
    assert router.topic("shop", "orders") == "qualified"
    assert router.topic("public", "orders") == "bare"


def test_patterns_are_tried_in_the_order_of_the_file() -> None:
    assert Router({"sales_*": "first", "*_eu": "second"}, "", "").topic("public", "sales_eu") == "first"
    assert Router({"*_eu": "second", "sales_*": "first"}, "", "").topic("public", "sales_eu") == "second"


@pytest.mark.parametrize(
    ("glob", "schema", "table", "matches"),
    [
        ("sales_*", "public", "sales_2024", True),
        ("sales_*", "sales_eu", "orders", False),
        ("*.orders", "anything", "orders", True),
        ("*.orders", "public", "old.orders", False),
        ("shop?.t[0-9]", "shop1", "t7", True),
        ("shop?.t[0-9]", "shop1", "tx", False),
        ("Orders*", "public", "orders", False),
    ],
)
def test_a_glob_without_a_dot_matches_tables_and_with_a_dot_schema_and_table(
    glob: str, schema: str, table: str, matches: bool
) -> None:
    assert Router({glob: "found"}, "", "").topic(schema, table) == ("found" if matches else None)


def test_a_regular_expression_gives_its_groups_to_the_topic() -> None:
    router = Router({r"/^sales_(\d+)$/": "y{1}", r"/^(?P<tenant>\w+)\.orders$/": "orders.{tenant}.{1}"}, "", "")
    assert router.topic("public", "sales_2024") == "y2024"
    assert router.topic("acme", "orders") == "orders.acme.acme"


def test_schema_and_table_are_placeholders_in_every_topic() -> None:
    assert Router({"orders": "cdc.{schema}-{table}"}, "", "").topic("shop", "orders") == "cdc.shop-orders"


def test_what_no_rule_maps_goes_to_the_prefix_then_to_the_fallback_then_nowhere() -> None:
    assert Router({"a": "b"}, "cdc", "rest").topic("public", "orders") == "cdc.public.orders"
    assert Router({"a": "b"}, "", "rest").topic("public", "orders") == "rest"
    assert Router({"a": "b"}, "", "").topic("public", "orders") is None


def test_characters_that_kafka_does_not_allow_become_underscores() -> None:
    assert Router({}, "cdc", "").topic("Größe", 'a "b"/ü') == "cdc.Gr__e.a__b___"


@pytest.mark.parametrize(
    ("one", "other"),
    [(("public", "a b"), ("public", "a_b")), (("public", "a b"), ("public", "a/b")), (("a.b", "c"), ("a", "b.c"))],
)
def test_two_tables_that_would_share_a_topic_by_accident_are_refused(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    router = Router({}, "cdc", "")
    router.topic(*one)
    with pytest.raises(SinkRefused, match=r"both go to topic .* of its own under tableTopicMapping"):
        router.topic(*other)


def test_tables_that_a_rule_sends_to_one_topic_share_it() -> None:
    router = Router({"order*": "orders", "t*": "{table}"}, "", "rest")
    assert {router.topic("a", "orders_1"), router.topic("b", "orders 1")} == {"orders"}
    assert {router.topic("a", "t 1"), router.topic("b", "t 1")} == {"t_1"}
    assert {router.topic("a", "x y"), router.topic("b", "x_y")} == {"rest"}


def test_a_topic_longer_than_kafka_allows_is_refused_with_the_way_out() -> None:
    with pytest.raises(SinkRefused, match="tableTopicMapping"):
        Router({}, "p" * 200, "").topic("s" * 30, "t" * 30)


def test_a_table_named_with_dots_alone_is_no_topic() -> None:
    with pytest.raises(SinkRefused, match="does not allow"):
        Router({"*": "{table}"}, "", "").topic("public", "..")


def test_messages_go_to_their_own_topic_by_prefix() -> None:
    assert Router({}, "", "rest", "messages.{prefix}").message_topic("audit log") == "messages.audit_log"
    assert Router({}, "", "rest").message_topic("audit") is None


@pytest.mark.parametrize(
    ("mapping", "prefix", "fallback", "says"),
    [
        ({"/(/": "x"}, "", "", "not a regular expression"),
        ({"a": "{nope}"}, "", "", r"placeholder \{nope\}"),
        ({"a*": "{1}"}, "", "", r"placeholder \{1\}"),
        ({"a": "no spaces"}, "", "", "not a topic"),
        ({"a": ""}, "", "", "not a topic"),
        ({}, "p/q", "", "topicPrefix"),
        ({}, "", "{table}", "topicFallback"),
    ],
)
def test_a_rule_that_cannot_work_is_named(mapping: dict[str, str], prefix: str, fallback: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Router(mapping, prefix, fallback)
