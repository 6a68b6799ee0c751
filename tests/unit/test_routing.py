"""Which topics a table's events go to, and what keys them there."""

import tracemalloc

import pytest

from psql_streamer.errors import SinkRefused
from psql_streamer.events.routing import Route, Router, SourceTopic


def test_an_exact_qualified_name_beats_the_bare_table_and_every_pattern() -> None:
    router = Router({"/orders/": "regex", "o*": "glob", "orders": "bare", "shop.orders": "qualified"}, "", "")
    assert topics(router, "shop", "orders") == ["qualified"]
    assert topics(router, "public", "orders") == ["bare"]


def test_patterns_are_tried_in_the_order_of_the_file() -> None:
    assert topics(Router({"sales_*": "first", "*_eu": "second"}, "", ""), "public", "sales_eu") == ["first"]
    assert topics(Router({"*_eu": "second", "sales_*": "first"}, "", ""), "public", "sales_eu") == ["second"]


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
    assert topics(Router({glob: "found"}, "", ""), schema, table) == (["found"] if matches else [])


def test_a_regular_expression_gives_its_groups_to_the_topic() -> None:
    router = Router({r"/^sales_(\d+)$/": "y{1}", r"/^(?P<tenant>\w+)\.orders$/": "orders.{tenant}.{1}"}, "", "")
    assert topics(router, "public", "sales_2024") == ["y2024"]
    assert topics(router, "acme", "orders") == ["orders.acme.acme"]


def test_schema_and_table_are_placeholders_in_every_topic() -> None:
    assert topics(Router({"orders": "cdc.{schema}-{table}"}, "", ""), "shop", "orders") == ["cdc.shop-orders"]


def test_what_no_rule_maps_goes_to_the_prefix_then_to_the_fallback_then_nowhere() -> None:
    assert topics(Router({"a": "b"}, "cdc", "rest"), "public", "orders") == ["cdc.public.orders"]
    assert topics(Router({"a": "b"}, "", "rest"), "public", "orders") == ["rest"]
    assert topics(Router({"a": "b"}, "", ""), "public", "orders") == []


@pytest.mark.behaviour("D7")
def test_characters_that_kafka_does_not_allow_become_underscores() -> None:
    assert topics(Router({}, "cdc", ""), "Größe", 'a "b"/ü') == ["cdc.Gr__e.a__b___"]


@pytest.mark.behaviour("D7")
@pytest.mark.parametrize(
    ("one", "other"),
    [(("public", "a b"), ("public", "a_b")), (("public", "a b"), ("public", "a/b")), (("a.b", "c"), ("a", "b.c"))],
)
def test_two_tables_that_would_share_a_topic_by_accident_are_refused(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    router = Router({}, "cdc", "")
    router.find_routes("db1", *one)
    with pytest.raises(SinkRefused, match=r"both go to topic .* of its own under tableTopicMapping"):
        router.find_routes("db1", *other)


def test_tables_that_a_rule_sends_to_one_topic_share_it() -> None:
    router = Router({"order*": "orders", "t*": "{table}"}, "", "rest")
    assert topics(router, "a", "orders_1") == topics(router, "b", "orders 1") == ["orders"]
    assert topics(router, "a", "t 1") == topics(router, "b", "t 1") == ["t_1"]
    assert topics(router, "a", "x y") == topics(router, "b", "x_y") == ["rest"]


def test_a_topic_longer_than_kafka_allows_is_refused_with_the_way_out() -> None:
    with pytest.raises(SinkRefused, match="tableTopicMapping"):
        Router({}, "p" * 200, "").find_routes("db1", "s" * 30, "t" * 30)


@pytest.mark.parametrize(
    ("prefix", "table", "other"),
    [("", "..", "a"), ("", "__consumer_offsets", "a"), ("p" * 200, "t" * 60, "t"), ("cdc", "a b", "a_b")],
)
def test_either_remedy_of_a_table_without_a_legal_topic_is_one(prefix: str, table: str, other: str) -> None:
    every = {} if prefix else {"*": "{table}"}
    for names in ((table, other), (other, table)):
        refusing = Router(every, prefix, "")
        with pytest.raises(SinkRefused, match="tableTopicMapping, or leave it out with excludeTables"):
            [topics(refusing, "public", name) for name in names]
        for entry in (table, f"public.{table}"):
            mapped, excluding = Router({**every, entry: "mine"}, prefix, ""), Router(every, prefix, "", "", [entry])
            for name in names:
                assert topics(mapped, "public", name) == (
                    ["mine"] if name == table else topics(excluding, "public", name)
                )
                assert topics(excluding, "public", table) == []


def test_a_table_named_with_dots_alone_is_no_topic() -> None:
    with pytest.raises(SinkRefused, match="does not allow"):
        Router({"*": "{table}"}, "", "").find_routes("db1", "public", "..")


@pytest.mark.behaviour("D11")
def test_messages_go_to_their_own_topic_by_prefix() -> None:
    assert Router({}, "", "rest", "messages.{prefix}").find_message_topic("db1", "audit log") == "messages.audit_log"
    assert Router({}, "", "rest").find_message_topic("db1", "audit") is None


@pytest.mark.parametrize("prefix", ["", ".", "..", "p" * 250, "__consumer_offsets", "__cluster_metadata"])
def test_a_message_whose_topic_kafka_does_not_allow_has_none(prefix: str) -> None:
    assert Router({}, "", "rest", "{prefix}").find_message_topic("db1", prefix) is None


def test_prefixes_that_differ_in_illegal_characters_alone_share_a_topic_and_take_it_from_no_table() -> None:
    router = Router({}, "cdc", "", "cdc.public.{prefix}")
    assert {router.find_message_topic("db1", prefix) for prefix in ("a b", "a/b", "a_b")} == {"cdc.public.a_b"}
    assert topics(router, "public", "a_b") == ["cdc.public.a_b"]


def test_prefixes_leave_nothing_behind() -> None:
    router = Router({}, "", "rest", "m.{prefix}")
    tracemalloc.start()
    try:
        after_some, after_more = (_memory_after(router, range(first, first + 5000)) for first in (0, 5000))
    finally:
        tracemalloc.stop()
    assert after_more - after_some < 20_000


def _memory_after(router: Router, numbers: range) -> int:
    for number in numbers:
        router.find_message_topic("db1", f"request {number}")
    return tracemalloc.get_traced_memory()[0]


def test_a_table_whose_topic_brokers_keep_for_themselves_is_refused_with_the_way_out() -> None:
    with pytest.raises(SinkRefused, match=r'"__transaction_state", which Kafka does not allow: .*excludeTables'):
        Router({"*": "{table}"}, "", "").find_routes("db1", "public", "__transaction_state")


@pytest.mark.parametrize(
    ("mapping", "prefix", "fallback", "says"),
    [
        ({"/(/": "x"}, "", "", "not a regular expression"),
        ({"a": "{nope}"}, "", "", r"placeholder \{nope\}"),
        ({"a*": "{1}"}, "", "", r"placeholder \{1\}"),
        ({"a": "no spaces"}, "", "", "not a topic"),
        ({"a": ""}, "", "", "not a topic"),
        ({"a": [Route("x"), Route("y"), Route("x", ("id",))]}, "", "", '^a: the topic "x" is named twice'),
        ({"a*": [Route("x"), Route("{1}")]}, "", "", r"placeholder \{1\}"),
        ({}, "p/q", "", "topicPrefix"),
        ({"a": ".."}, "", "", "not a topic"),
        ({}, "", "__consumer_offsets", "not a topic"),
        ({}, "", "{table}", "topicFallback"),
    ],
)
def test_a_rule_that_cannot_work_is_named(
    mapping: dict[str, str | list[Route]], prefix: str, fallback: str, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        Router(mapping, prefix, fallback)


def test_a_table_goes_to_every_topic_of_the_rule_that_matches_keyed_as_it_says() -> None:
    router = Router({"o*": [Route("{table}"), Route("{schema}-by-customer", ("customer_id",))]}, "cdc", "rest")
    assert router.find_routes("db1", "shop", "orders") == (Route("orders"), Route("shop-by-customer", ("customer_id",)))
    assert router.find_routes("db1", "shop", "users") == (Route("cdc.shop.users"),)


def test_the_groups_of_a_regular_expression_are_for_all_topics_of_its_rule() -> None:
    router = Router({r"/^sales_(\d+)$/": [Route("y{1}"), Route("all-sales")]}, "", "")
    assert topics(router, "public", "sales_2024") == ["y2024", "all-sales"]
    assert topics(router, "public", "sales_2025") == ["y2025", "all-sales"]


@pytest.mark.parametrize(("table", "topic"), [("orders", "orders"), ("or ders", "or_ders")])
def test_a_table_whose_topics_turn_out_to_be_the_same_is_refused_every_time(table: str, topic: str) -> None:
    router = Router({"*": [Route("{table}"), Route(topic)]}, "", "")
    for _ in range(2):
        with pytest.raises(SinkRefused, match=f'table "public"."{table}" would go to topic "{topic}" twice'):
            router.find_routes("db1", "public", table)


@pytest.mark.parametrize(
    ("router", "topic"),
    [
        (Router({"orders": "{source}-orders"}, "", ""), "{}-orders"),
        (Router({}, "cdc.{source}", ""), "cdc.{}.public.orders"),
        (Router({}, "", "rest-{source}"), "rest-{}"),
        (Router({r"/^(?P<source>o)rders$/": "{source}"}, "", ""), "o"),
    ],
)
def test_the_source_is_a_placeholder_of_every_rule_unless_a_group_has_its_name(router: Router, topic: str) -> None:
    for source in ("db1", "db2"):
        assert topics(router, "public", "orders", source) == [topic.format(source)]


def test_sources_whose_topics_would_be_one_by_accident_are_refused() -> None:
    router = Router({}, "{source}", "")
    assert topics(router, "public", "orders", "a b") == ["a_b.public.orders"]
    with pytest.raises(SinkRefused, match="both go to topic"):
        router.find_routes("a_b", "public", "orders")


def test_messages_of_several_sources_can_have_topics_of_their_own() -> None:
    router = Router({}, "", "rest", "{source}.messages.{prefix}")
    assert [router.find_message_topic(source, "audit") for source in ("a", "b")] == [
        "a.messages.audit",
        "b.messages.audit",
    ]


def test_a_topic_of_a_source_alone_takes_no_other_placeholder() -> None:
    assert SourceTopic("schemaTopic", "{source}-schemas").render("my shop") == "my_shop-schemas"
    with pytest.raises(ValueError, match=r"schemaTopic: .* placeholder \{table\}; allowed here: \{source\}"):
        SourceTopic("schemaTopic", "{table}-schemas")


def test_excluded_tables_have_no_topic_whatever_else_fits_them() -> None:
    router = Router({"orders": "orders"}, "cdc", "", exclude=["public.orders", "tmp_*", r"/_old$/"])
    for schema, table in (("public", "orders"), ("any", "tmp_1"), ("any", "orders_old")):
        assert router.excludes(schema, table)
        assert topics(router, schema, table) == []
    assert not router.excludes("shop", "orders")
    assert topics(router, "shop", "orders") == ["orders"]


def topics(router: Router, schema: str, table: str, source: str = "db1") -> list[str]:
    return [route.topic for route in router.find_routes(source, schema, table)]
