"""librdkafka's mock cluster: brokers that speak Kafka's protocol inside this process, for faults and for no Java."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from confluent_kafka import Producer

_ANSWER_SECONDS = 30.0


class MockKafka:
    """Brokers in memory, alive as long as this object is; topics are created when first asked for."""

    def __init__(self, brokers: int = 1) -> None:
        # The cluster belongs to the client that asks for it. INTRODUCTION.md of librdkafka: test.mock.num.brokers.
        self._owner: Producer | None = Producer({"test.mock.num.brokers": brokers, "log_level": 0})
        metadata = self._owner.list_topics(timeout=_ANSWER_SECONDS)
        self._bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())

    @property
    def bootstrap(self) -> str:
        """host:port of all brokers, for bootstrap.servers."""
        return self._bootstrap

    def close(self) -> None:
        """Shut the brokers down; their topics are gone."""
        self._owner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
