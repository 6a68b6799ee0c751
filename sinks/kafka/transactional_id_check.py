"""Whether a user may write with a transactional id, asked without taking it over."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]  # exported, but not in its __all__

from psql_streamer.interfaces import Finding, Severity
from sinks.kafka.administrator import Administrator
from sinks.kafka.options import KafkaSinkOptions

_LONGEST_TIMEOUT_MS = 2_147_000_000
"""Nearly the largest transaction.timeout.ms that a client may ask for: 24 days."""

_silent = logging.getLogger(f"{__name__}.client")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False  # the refusal that is expected is a fatal error to the client, and logged as one


def find_forbidden_id(
    options: KafkaSinkOptions, administrator: Administrator, cluster: ClusterMetadata
) -> Iterator[Finding]:
    """A finding if the user may not use options.transactional_id, or if that cannot be seen.

    A client that is given the id takes it from the service that has it. So this one asks for a longer transaction
    timeout than brokers allow: they look at permissions first (KafkaApis.handleInitProducerIdRequest), then at the
    timeout, and after that at the id (TransactionCoordinator.handleInitProducerId). Brokers that allow any timeout are
    not asked.
    """
    longest = administrator.find_broker_setting(cluster, "transaction.max.timeout.ms")
    if longest is not None and int(longest) >= _LONGEST_TIMEOUT_MS:
        yield _make_unknown_finding(options, "brokers allow any transaction timeout (transaction.max.timeout.ms)")
        return
    given = {**options.make_properties(), "transactional.id": options.transactional_id}
    error = _ask({**given, "transaction.timeout.ms": _LONGEST_TIMEOUT_MS}, options.timeout)
    if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        mend = f"kafka-acls.sh --bootstrap-server {options.hosts[0]} --add --allow-principal User:NAME"
        mend += f" --operation Write --operation Describe --transactional-id {options.transactional_id}"
        problem = f'no permission to write with transactionalId "{options.transactional_id}"'
        yield Finding(Severity.ERROR, problem, mend)
    elif error.code() != KafkaError.INVALID_TRANSACTION_TIMEOUT:
        yield _make_unknown_finding(options, error.str())


def _ask(properties: dict[str, object], timeout: float) -> KafkaError:
    producer = Producer(properties, logger=_silent)
    try:
        producer.init_transactions(timeout)
    except KafkaException as raised:
        said: KafkaError = raised.args[0]
        return said
    return KafkaError(KafkaError.NO_ERROR, "brokers gave it to this check: a service that has it takes it back")


def _make_unknown_finding(options: KafkaSinkOptions, why: str) -> Finding:
    problem = f'whether transactionalId "{options.transactional_id}" may be used is not known: {why}'
    return Finding(Severity.WARNING, problem, "the sink says at its start what it may not do")
