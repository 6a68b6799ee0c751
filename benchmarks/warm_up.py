"""A broker that has run for a while: its JVM compiles what it executes often, so the first requests take longest.

A new broker took 300 us of CPU for a request with ten records, and the same broker 70 us after 50,000 of them. It goes
through the records of a large request in other code, which it compiles when it has seen some hundred of these.
"""

from __future__ import annotations

from confluent_kafka import Producer

from benchmarks.topics import Topics

_TOPICS = 200
_REQUESTS = 60_000
_RECORD = b"x" * 330
_LARGE_REQUESTS = 300
_RECORDS_OF_LARGE = 3000
_SETTINGS = {"enable.idempotence": True, "compression.type": "lz4", "log_level": 0}


def warm_up(hosts: str) -> None:
    """Write many small requests, and large ones, to topics that are removed afterwards; it takes some 15 s."""
    topics = Topics(hosts, tuple(f"warm-up-{number}" for number in range(_TOPICS)), partitions=1)
    topics.make()
    producer = Producer({"bootstrap.servers": hosts, "linger.ms": 0, **_SETTINGS})
    for _ in range(_REQUESTS // _TOPICS):
        for name in topics.names:
            for _ in range(10):
                producer.produce(name, _RECORD)
        producer.flush()
    large = Producer({"bootstrap.servers": hosts, "linger.ms": 1000, "batch.size": 1_000_000, **_SETTINGS})
    for number in range(_LARGE_REQUESTS):
        for _ in range(_RECORDS_OF_LARGE):
            large.produce(topics.names[number % 4], _RECORD)
        large.flush()
    topics.require(10 * _REQUESTS + _LARGE_REQUESTS * _RECORDS_OF_LARGE)
    topics.remove()
