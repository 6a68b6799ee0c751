"""librdkafka's properties that would lose records or their order are refused, under each of their names."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import cimpl
from pydantic import ValidationError

from sinks.kafka.properties import _RULES
from tests.kafka_sinks import options

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"bootstrap.servers": "other:9092"}, "hosts sets it"),
    ({"metadata.broker.list": "other:9092"}, "hosts sets it"),
    ({"transactional.id": "x"}, "transactionalId sets it, with exactlyOnce"),
    ({"test.mock.num.brokers": 1}, "brokers inside this process"),
    ({"topic.blacklist": "t.*"}, "would wait for ever"),
    ({"delivery.report.only.error": False}, "waits for every delivery itself"),
    ({"acks": 0}, "but for -1: requiredAcks sets it"),
    ({"acks": "1"}, "but for -1: requiredAcks sets it"),
    ({"request.required.acks": 1}, "but for -1: requiredAcks sets it"),
    ({"partitioner": "random"}, "any partition, in any order"),
    ({"queuing.strategy": "lifo"}, "newest records would be written first"),
    ({"queuing.strategy": "LIFO", "enable.idempotence": False}, "newest records would be written first"),
    ({"message.timeout.ms": 300_000}, "given up one by one"),
    ({"delivery.timeout.ms": "0x10"}, "given up one by one"),
    ({"message.send.max.retries": 0}, "given up one by one"),
    ({"retries": 5}, "given up one by one"),
    ({"enable.idempotence": False, "max.in.flight.requests.per.connection": 5}, "without enable.idempotence"),
    ({"enable.idempotence": "f", "max.in.flight": 2}, "without enable.idempotence"),
    ({"enable.gapless.guarantee": True}, "never be put aside"),
    ({"max.in.flight": 6}, "max.in.flight"),
    ({"default.topic.config": "acks=1"}, "No such configuration property"),
    ({"on_delivery": "print"}, "No such configuration property"),
    ({"dr_msg_cb": "print"}, "must be set through dedicated"),
]

TAKEN: list[dict[str, Any]] = [
    {"acks": "all"},
    {"request.required.acks": -1},
    {"partitioner": "fnv1a"},
    {"queuing.strategy": "fifo"},
    {"delivery.timeout.ms": 0},
    {"retries": 2147483647},
    {"max.in.flight": 5},
    {"enable.idempotence": False, "max.in.flight": 1},
    {"enable.gapless.guarantee": False},
    {"queue.buffering.max.ms": 50},
]


@pytest.mark.parametrize(("kafka", "why"), REFUSED, ids=str)
def test_what_loses_records_or_their_order_is_refused_with_the_reason(kafka: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(why)) as refused:
        options("localhost:9092", kafka=kafka)
    assert any(name in str(refused.value) for name in kafka)


@pytest.mark.parametrize("kafka", TAKEN, ids=str)
def test_what_does_no_harm_is_taken(kafka: dict[str, Any]) -> None:
    options("localhost:9092", kafka=kafka)


def test_everything_that_is_refused_is_told_at_once() -> None:
    with pytest.raises(ValidationError, match=r'kafka\."retries".*; kafka\."partitioner"|"partitioner".*"retries"'):
        options("localhost:9092", kafka={"retries": 0, "partitioner": "random"})


def test_an_alias_does_not_get_round_the_section_either() -> None:
    with pytest.raises(ValidationError, match="without enable"):
        options("localhost:9092", requiredAcks=1, kafka={"max.in.flight": 5})


def test_acknowledgements_may_be_said_twice_if_they_are_the_same() -> None:
    options("localhost:9092", requiredAcks=1, kafka={"acks": 1})
    with pytest.raises(ValidationError, match="but for 1: requiredAcks sets it"):
        options("localhost:9092", requiredAcks=1, kafka={"acks": "all"})


def test_repeats_without_idempotence_are_warned_of() -> None:
    (warning,) = options("localhost:9092", kafka={"enable.idempotence": False}).list_warnings()
    assert "enable.idempotence" in warning


def test_the_rules_know_every_name_that_the_installed_librdkafka_has(tmp_path: Path) -> None:
    described = descriptions(tmp_path / "properties")
    aliases = {name: found[1] for name, text in described.items() if (found := re.search(r"Alias for `([^`]+)`", text))}
    for rule in _RULES:
        same = {aliases.get(name, name) for name in rule.names}
        assert len(same) == 1
        assert {name for name in (*described, *rule.names) if aliases.get(name, name) in same} == set(rule.names)


def descriptions(file: Path) -> dict[str, str]:
    """Property -> what librdkafka says of it, in the words of CONFIGURATION.md."""
    library, c = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(None)
    c.fopen.restype, c.fclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    stream = c.fopen(str(file).encode(), b"w")
    library.rd_kafka_conf_properties_show(stream)
    c.fclose(stream)
    columns = [line.split(" | ") for line in file.read_text().splitlines() if line.count(" | ") >= 5]
    return {found[0].strip(): found[-1] for found in columns}


def test_a_timeout_that_a_transaction_does_not_have_is_refused() -> None:
    once = {"exactlyOnce": True, "transactionalId": "shop"}
    options("localhost:9092", timeout="60s", **once)
    options("localhost:9092", timeout="70s", kafka={"transaction.timeout.ms": 80_000}, **once)
    with pytest.raises(ValidationError, match=r"timeout is at most kafka.*which is 60000"):
        options("localhost:9092", timeout="70s", **once)
    with pytest.raises(ValidationError, match="must be set <="):
        options("localhost:9092", kafka={"socket.timeout.ms": 70_000}, **once)
