"""Records of one key end in the order of their commits, whatever the section says and the brokers answer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from sinks.kafka.errors import REJECTED
from tests.kafka_reader import consume
from tests.kafka_sinks import Canned, started, write_until_it_works
from tests.mock_brokers import PRODUCE, MockBrokers

SETTINGS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "the client's murmur2": {"kafka": {"partitioner": "murmur2"}},
    "not idempotent": {"kafka": {"enable.idempotence": False}},
    "one acknowledgement": {"requiredAcks": 1},
    "one acknowledgement and the client's fnv1a": {"requiredAcks": 1, "kafka": {"partitioner": "fnv1a_random"}},
}

FAULTS = {
    "one request rejected": (KafkaError.MSG_SIZE_TOO_LARGE,),
    "every second request rejected": (KafkaError.MSG_SIZE_TOO_LARGE, 0) * 5,
    "rejected behind one that is tried again": (KafkaError.REQUEST_TIMED_OUT, KafkaError.INVALID_RECORD, 0),
    "a leader that moves": (KafkaError.NOT_LEADER_FOR_PARTITION, 0, KafkaError.NOT_LEADER_FOR_PARTITION),
    "too few replicas": (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0),
    "a connection that breaks": (KafkaError._TRANSPORT, 0, KafkaError._TRANSPORT),
    "one request refused": (KafkaError.INVALID_MSG, 0, 0),
    "fatal to the client": (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, 0),
    "a client that brokers do not know": (KafkaError.UNKNOWN_PRODUCER_ID, 0),
    "a client that is fenced": (KafkaError.INVALID_PRODUCER_EPOCH, 0),
}

NUMBERS = range(60)


def key_of(number: int) -> bytes:
    return b"key %d" % (number % 3)


@pytest.mark.behaviour("K2")
@pytest.mark.parametrize("section", SETTINGS.values(), ids=list(SETTINGS))
def test_every_key_ends_with_its_latest_record_in_order(section: dict[str, Any]) -> None:
    small = section | {"kafka": {"batch.num.messages": 5, **section.get("kafka", {})}, "batchTimeout": "1ms"}
    encoder = Canned([])
    with MockBrokers() as brokers, started(brokers.bootstrap, encoder, deadLetterTopic="dead", **small) as sink:
        topics = {f"t{place}": fault for place, fault in enumerate(FAULTS)}
        for topic, fault in topics.items():
            brokers.create(topic, 2)
            encoder.records = Canned([(topic, key_of(number), b"%d" % number) for number in NUMBERS]).records
            brokers.answer(PRODUCE, *FAULTS[fault])
            write_until_it_works(sink)
            brokers.answer_well(PRODUCE)
        found = consume(brokers.bootstrap, topics)
        letters = consume(brokers.bootstrap, ["dead"])
    for topic, fault in topics.items():
        alone = {int(one.value or b"") for one in letters if one.headers["dead_letter_topic"] == topic.encode()}
        assert len(alone) <= sum(code in REJECTED for code in FAULTS[fault]), "only what is alone in such a request"
        for key in map(key_of, range(3)):
            told = [int(record.value or b"") for record in found if (record.topic, record.key) == (topic, key)]
            latest = [number for place, number in enumerate(told) if number not in told[place + 1 :]]
            expected = [number for number in NUMBERS if key_of(number) == key and number not in alone]
            assert latest == expected, f"{fault}: {key!r} has {told}"
