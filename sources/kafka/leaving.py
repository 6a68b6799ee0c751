"""How a member leaves its group."""

from __future__ import annotations

import time
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException

from psql_streamer.held_interpreter import end_if_held

_PARTITIONS_SECONDS = 5.0
"""For a member to give up its partitions; brokers need not answer for that."""
_POLL_SECONDS = 0.1


def leave(consumer: Consumer, is_static: bool) -> None:
    """Give up the partitions, leave the group, and close the client. is_static: with an instanceId; such a member keeps
    its partitions and stays, and may be back before its session ends.

    Partitions are given up before `close`, within polls. While `close` does it, a request to join that is under way
    holds the request to leave back for 5 s. And a second rebalance that ends meanwhile makes it wait for ever, with the
    interpreter's lock: the binding asks the client for the group's protocol, and nobody answers (librdkafka's issue
    4041). A client without partitions would not leave at all before its session ends (librdkafka 2.16).
    """
    with end_if_held():
        try:
            with suppress(KafkaException):
                if is_static:
                    consumer.poll(0)  # a rebalance that has ended is not left to `close`
                else:
                    _give_up(consumer)
        finally:
            consumer.close()


def _give_up(consumer: Consumer) -> None:
    consumer.unsubscribe()
    deadline = time.monotonic() + _PARTITIONS_SECONDS
    while consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(_POLL_SECONDS)
