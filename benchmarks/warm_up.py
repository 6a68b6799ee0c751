"""A broker that has run for a while: its JVM compiles what it executes often, so the first requests take longest.

A new broker took 300 us of CPU for a request with ten records, and the same broker 70 us after 50,000 of them.
"""

from __future__ import annotations

from confluent_kafka import Producer

from benchmarks.topics import Topics

_TOPICS = 200
_REQUESTS = 60_000
_RECORD = b"x" * 330
_SETTINGS = {"enable.idempotence": True, "linger.ms": 0, "compression.type": "lz4", "log_level": 0}


def warm_up(hosts: str) -> None:
    """Write many small requests to topics that are removed afterwards; it takes some 10 s."""
    topics = Topics(hosts, tuple(f"warm-up-{number}" for number in range(_TOPICS)), partitions=1)
    topics.make()
    producer = Producer({"bootstrap.servers": hosts, **_SETTINGS})
    for _ in range(_REQUESTS // _TOPICS):
        for name in topics.names:
            for _ in range(10):
                producer.produce(name, _RECORD)
        producer.flush()
    topics.require(10 * _REQUESTS)
    topics.remove()
