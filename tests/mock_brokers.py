"""librdkafka's mock brokers, told to answer with errors, to go away, and to change their topics."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from confluent_kafka import cimpl

from sinks.kafka.producer import Producer

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
OFFSET_COMMIT = 8
FIND_COORDINATOR = 10
JOIN_GROUP = 11
INIT_PRODUCER_ID = 22
"""Numbers of requests: https://kafka.apache.org/protocol#protocol_api_keys."""

_CLUSTER, _TOPIC, _NUMBER = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32

_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rd_kafka_handle_mock_cluster": (ctypes.c_void_p, (ctypes.c_void_p,)),
    "rd_kafka_mock_cluster_bootstraps": (ctypes.c_char_p, (_CLUSTER,)),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        (_CLUSTER, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int)),
    ),
    "rd_kafka_mock_clear_request_errors": (None, (_CLUSTER, ctypes.c_int16)),
    "rd_kafka_mock_topic_create": (ctypes.c_int, (_CLUSTER, _TOPIC, ctypes.c_int, ctypes.c_int)),
    "rd_kafka_mock_topic_delete": (ctypes.c_int, (_CLUSTER, _TOPIC)),
    "rd_kafka_mock_partition_set_leader": (ctypes.c_int, (_CLUSTER, _TOPIC, _NUMBER, _NUMBER)),
    "rd_kafka_mock_broker_set_down": (ctypes.c_int, (_CLUSTER, _NUMBER)),
    "rd_kafka_mock_broker_set_up": (ctypes.c_int, (_CLUSTER, _NUMBER)),
    "rd_kafka_mock_start_request_tracking": (None, (_CLUSTER,)),
    "rd_kafka_mock_get_requests": (
        ctypes.POINTER(ctypes.c_void_p),
        (_CLUSTER, ctypes.POINTER(ctypes.c_size_t)),
    ),
    "rd_kafka_mock_request_api_key": (ctypes.c_int16, (ctypes.c_void_p,)),
    "rd_kafka_mock_request_destroy_array": (None, (ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t)),
    "rd_kafka_mock_broker_set_rtt": (ctypes.c_int, (_CLUSTER, _NUMBER, ctypes.c_int)),
}

_C = ctypes.CDLL(cimpl.__file__)
for _name, (_result, _arguments) in _FUNCTIONS.items():
    _function = getattr(_C, _name)
    _function.restype, _function.argtypes = _result, _arguments


class MockBrokers:
    """A cluster within a client that does nothing else; its brokers are 1 and up."""

    def __init__(self, brokers: int = 1) -> None:
        self._host = Producer({"test.mock.num.brokers": str(brokers)}, lambda _: None, logging.getLogger(__name__))
        self._cluster = _C.rd_kafka_handle_mock_cluster(self._host._client)
        self.bootstrap = _C.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def answer(self, request: int, *errors: int) -> None:
        """The next requests of this kind are answered with these errors, one each; 0 is none."""
        array = (ctypes.c_int * len(errors))(*errors)
        _C.rd_kafka_mock_push_request_errors_array(self._cluster, request, len(errors), array)

    def answer_well(self, request: int) -> None:
        """No errors are left for requests of this kind."""
        _C.rd_kafka_mock_clear_request_errors(self._cluster, request)

    def create(self, topic: str, partitions: int) -> None:
        """A topic, each partition led by one broker."""
        assert _C.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0

    def delete(self, topic: str) -> None:
        """The topic and what is in it are gone."""
        assert _C.rd_kafka_mock_topic_delete(self._cluster, topic.encode()) == 0

    def lead(self, topic: str, partition: int, broker: int) -> None:
        """From now on this broker leads the partition."""
        assert _C.rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), partition, broker) == 0

    def take_down_leader(self, topic: str, partition: int, leader: int) -> None:
        """The broker that leads the partition goes away, and nobody leads it.

        The mock cluster reads through a null pointer when records reach a broker for a partition without a leader.
        """
        self.take_down(leader)
        self.lead(topic, partition, -1)

    def take_down(self, broker: int) -> None:
        """The broker closes its connections and takes none."""
        assert _C.rd_kafka_mock_broker_set_down(self._cluster, broker) == 0

    def bring_up(self, broker: int) -> None:
        """The broker takes connections again."""
        assert _C.rd_kafka_mock_broker_set_up(self._cluster, broker) == 0

    def delay(self, broker: int, milliseconds: int) -> None:
        """Every answer of the broker takes so long."""
        assert _C.rd_kafka_mock_broker_set_rtt(self._cluster, broker, milliseconds) == 0

    def track_requests(self) -> None:
        """From now on `count_requests` knows of them."""
        _C.rd_kafka_mock_start_request_tracking(self._cluster)

    def count_requests(self, kind: int) -> int:
        """How many of this kind have come."""
        size = ctypes.c_size_t()
        found = _C.rd_kafka_mock_get_requests(self._cluster, ctypes.byref(size))
        kinds = [_C.rd_kafka_mock_request_api_key(found[at]) for at in range(size.value)]
        _C.rd_kafka_mock_request_destroy_array(found, size.value)
        return kinds.count(kind)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._host.close()


@contextmanager
def start_two_leaders() -> Iterator[MockBrokers]:
    """Two brokers; each leads one of the partitions of topic t."""
    with MockBrokers(2) as cluster:
        cluster.create("t", 2)
        cluster.lead("t", 0, 1)
        cluster.lead("t", 1, 2)
        yield cluster
