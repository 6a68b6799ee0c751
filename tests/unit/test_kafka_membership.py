"""What a consumer says of its membership."""

from __future__ import annotations

from confluent_kafka import Consumer

from sources.kafka.membership import find_membership


def test_a_client_that_no_group_has_taken_in_is_no_member() -> None:
    """Brokers would take a transaction's offsets from it without a question."""
    consumer = Consumer({"group.id": "copy", "log_level": 0})
    try:
        assert find_membership(consumer) is None
    finally:
        consumer.close()
