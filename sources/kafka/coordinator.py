"""Questions to the coordinator of a group."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription  # type: ignore[attr-defined]  # exported

_NEVER = 3600.0
"""librdkafka 2.16 aborts the process when such a request runs into its own timeout and the coordinator is there again
later (`rd_kafka_enq_once_del_source_return: Assertion eonce->refcnt > 0`). So requests have the longest that there is.
"""

Answer = TypeVar("Answer")


def ask_coordinator(admin: AdminClient, ask: Callable[[float], Mapping[str, Future[Answer]]], timeout: float) -> Answer:
    """The answer to one question. ask: gives it to the client, with the timeout of the request. timeout: how long it is
    waited for here, in seconds. Raises KafkaException.
    """
    (answer,) = ask(_NEVER).values()
    try:
        return answer.result(timeout)
    except TimeoutError:
        keep_client(admin)
        raise KafkaException(
            KafkaError(KafkaError._TIMED_OUT, f"no answer from the group's coordinator within {timeout:g} s")
        ) from None


def describe_group(admin: AdminClient, group: str, timeout: float) -> ConsumerGroupDescription:
    """Its state and its members, waited for as ask_coordinator does. Raises KafkaException."""
    return ask_coordinator(admin, lambda limit: _ask_for_group(admin, group, limit), timeout)


def begin_describing(admin: AdminClient, group: str) -> Future[ConsumerGroupDescription]:
    """The same without waiting. Until it is done, the client must not be destroyed: see keep_client."""
    (answer,) = _ask_for_group(admin, group, _NEVER).values()
    return answer


def _ask_for_group(admin: AdminClient, group: str, timeout: float) -> Mapping[str, Future[ConsumerGroupDescription]]:
    asked: Mapping[str, Future[ConsumerGroupDescription]] = admin.describe_consumer_groups(
        [group], request_timeout=timeout
    )
    return asked


def keep_client(admin: AdminClient) -> None:
    """Never destroy it: with such a request under way, that would end the process, too."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(admin))
