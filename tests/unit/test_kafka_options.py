"""The Kafka sink's section."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from psql_streamer.events.formats import format_class
from psql_streamer.events.routing import Route
from psql_streamer.events.unchanged import Unchanged
from sinks.kafka.options import KafkaSinkOptions
from tests.encoding import FORMATS
from tests.kafka_sinks import options


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"kafka": {"sasl.passwort": "geheim"}}, 'No such configuration property: "sasl.passwort"'),
        ({"hosts": ["nowhere"]}, "host:port"),
        ({"hosts": ["::1:9092"]}, r'IPv6 address stands in brackets: "\[::1\]:9092"'),
        ({"topicPrefix": "x" * 3000}, r"x{80}\.\.\. (3,017 characters"),
        (
            {"kafka": {"security.protocol": "ssl", "ssl.ca.location": "/no/such.pem"}},
            r'kafka\."ssl\.ca\.location" names a file that cannot be read: no such file or directory',
        ),
        ({"hosts": []}, "empty"),
        ({"handlers": []}, "empty"),
        ({"handlers": ["spark", "spark"]}, "twice"),
        ({"topicFallback": ""}, "tableTopicMapping, topicPrefix or topicFallback"),
        ({"tableTopicMapping": {"orders": "events"}}, "topicFallback already"),
        ({"tableTopicMapping": {"/(/": "x"}}, "not a regular expression"),
        ({"tableTopicMapping": {"orders": ["orders", {"topic": "events"}]}}, "orders: .*topicFallback already"),
        (
            {"tableTopicMapping": {"orders": ["t", {"topic": "t", "key": ["id"]}]}},
            'orders: the topic "t" is named twice',
        ),
        ({"format": "debezium", "unchangedMarker": "?"}, 'unchangedMarker has no meaning for format = "debezium"'),
        ({"debeziumTransactions": True}, 'belongs to "debezium"'),
        ({"debeziumTransactions": True, "format": "debezium"}, "needs transactionTopic"),
        (
            {"debeziumTransactions": True, "format": "debezium", "transactionTopic": "{schema}-transactions"},
            "placeholder {schema}",
        ),
        ({"deadLetterTopic": "{source}-dead"}, "deadLetterTopic: .* placeholder {source}"),
        ({"schemaTopic": "{table}-shapes"}, "allowed here: {source}"),
        ({"excludeTables": ["/(/"]}, "not a regular expression"),
        ({"excludeTables": [""]}, "at least 1 character"),
        ({"key": {"/(/": ["id"]}}, "not a regular expression"),
        ({"key": {"orders": []}}, "name at least one"),
        ({"unchanged": {"/^docs$/": "omit"}}, "names no column"),
        ({"timeout": "0s"}, "greater than 0"),
        ({"createTopics": {"partitions": 0}}, "1 or more"),
    ],
)
def test_a_section_that_cannot_work_is_refused_with_the_reason(section: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match="(?s)" + says.replace("(", r"\(")):
        options("127.0.0.1:9092", **section)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"requiredAcks": 0}, "lost"),
        ({"requiredAcks": 1}, "lost"),
        ({"async": True}, "async"),
        ({"transactionTopic": "transactions"}, "debeziumTransactions"),
        ({"batchSize": 100}, "10000"),
        ({"unchangedMarker": "?", "unchanged": "omit"}, "unchangedMarker has no effect"),
    ],
)
def test_a_section_that_one_may_be_sorry_for_is_warned_of(section: dict[str, Any], says: str) -> None:
    (warning,) = options("127.0.0.1:9092", **section).list_warnings()
    assert says in warning


def test_the_section_means_this_in_librdkafkas_terms() -> None:
    properties = options("a:1,b:2", timeout="3s", batchTimeout="20ms", batchSize=500).make_properties()
    expected = {
        "bootstrap.servers": "a:1,b:2",
        "acks": "-1",
        "enable.idempotence": "true",
        "compression.type": "lz4",
        "linger.ms": "20.0",
        "socket.timeout.ms": "3000",
        "batch.num.messages": "500",
    }
    assert {name: properties[name] for name in expected} == expected


def test_small_requests_are_only_made_when_asked_for() -> None:
    assert "batch.num.messages" not in options("a:1").make_properties()


def test_a_property_passed_through_wins() -> None:
    given = {"compression.type": "zstd", "linger.ms": 50, "enable.ssl.certificate.verification": False}
    properties = options("a:1", kafka=given).make_properties()
    assert properties["compression.type"] == "zstd"
    assert properties["linger.ms"] == "50"
    assert properties["enable.ssl.certificate.verification"] == "false"


@pytest.mark.parametrize("section", [{"requiredAcks": 1}, {"kafka": {"enable.idempotence": False}}])
def test_without_idempotence_one_request_is_under_way_at_a_time(section: dict[str, Any]) -> None:
    assert options("a:1", **section).make_properties()["max.in.flight.requests.per.connection"] == "1"


def test_key_columns_are_a_list_for_all_tables_or_a_table_of_lists() -> None:
    assert options("a:1", key=["id"]).key_columns == {"*": ("id",)}
    assert options("a:1", key={"shop.orders": ["id", "region"]}).key_columns == {"shop.orders": ("id", "region")}
    assert options("a:1").key_columns == {}


def test_a_mapping_is_a_topic_a_table_or_a_list_of_both() -> None:
    by_customer = {"topic": "by-customer", "key": ["customer_id"]}
    router = options(
        "a:1", tableTopicMapping={"a": "{table}", "b": by_customer, "c": ["c1", by_customer]}
    ).make_router()
    keyed = Route("by-customer", ("customer_id",))
    assert router.find_routes("db1", "shop", "a") == (Route("a"),)
    assert router.find_routes("db1", "shop", "b") == (keyed,)
    assert router.find_routes("db1", "shop", "c") == (Route("c1"), keyed)


def test_unchanged_is_one_rule_for_all_columns_or_a_table_of_rules() -> None:
    assert options("a:1").make_unchanged_policy() == Unchanged({"*": "fill"}, "__unchanged__")
    assert options("a:1", unchanged="omit").make_unchanged_policy() == Unchanged({"*": "omit"}, "__unchanged__")
    section = {"unchanged": {"*": "omit", "docs.body": "marker"}, "unchangedMarker": "?"}
    assert list(options("a:1", **section).list_warnings()) == []
    assert options("a:1", **section).make_unchanged_policy() == Unchanged({"*": "omit", "docs.body": "marker"}, "?")


def test_properties_which_may_hold_secrets_are_not_shown() -> None:
    assert "geheim" not in repr(options("a:1", kafka={"sasl.password": "geheim"}))


def test_schemas_belong_to_the_format_that_has_them() -> None:
    section = {"type": "kafka", "sources": ["db1"], "hosts": ["localhost:9092"], "topicPrefix": "t"}
    assert KafkaSinkOptions.model_validate(section | {"format": "debezium", "debeziumSchemas": True}).debezium_schemas
    with pytest.raises(ValidationError, match='no meaning for format = "event"'):
        KafkaSinkOptions.model_validate(section | {"debeziumSchemas": True})


def test_every_format_of_the_events_can_be_asked_for() -> None:
    assert set(FORMATS) == {"event", "envelope", "debezium", "debezium-avro", "flat"}
    needed = {"debezium-avro": {"formatOptions": {"registry": {"url": "http://localhost:8081"}}}}
    made = [options("a:1", format=form, **needed.get(form, {})).make_format() for form in FORMATS]
    assert [type(one) for one in made] == [*map(format_class, FORMATS)]
