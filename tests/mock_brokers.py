"""librdkafka's mock brokers, told to answer with errors."""

from __future__ import annotations

import ctypes
import logging
from types import TracebackType
from typing import Self

from confluent_kafka import cimpl

from sinks.kafka_producer import Producer

PRODUCE = 0
INIT_PRODUCER_ID = 22
"""Numbers of requests: https://kafka.apache.org/protocol#protocol_api_keys."""

_C = ctypes.CDLL(cimpl.__file__)
_C.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
_C.rd_kafka_handle_mock_cluster.argtypes = [ctypes.c_void_p]
_C.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
_C.rd_kafka_mock_cluster_bootstraps.argtypes = [ctypes.c_void_p]
_C.rd_kafka_mock_push_request_errors_array.argtypes = [
    ctypes.c_void_p,
    ctypes.c_int16,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_int),
]


class MockBrokers:
    """A cluster within a client that does nothing else."""

    def __init__(self) -> None:
        self._host = Producer({"test.mock.num.brokers": "1"}, lambda _: None, logging.getLogger(__name__))
        self._cluster = _C.rd_kafka_handle_mock_cluster(self._host._client)
        self.bootstrap = _C.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def answer(self, request: int, *errors: int) -> None:
        """The next requests of this kind are answered with these errors, one each; 0 is none."""
        _C.rd_kafka_mock_push_request_errors_array(
            self._cluster, request, len(errors), (ctypes.c_int * len(errors))(*errors)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._host.close()
