"""Which of librdkafka's properties would lose records or their order, and so may not be set as one likes.

https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md has all properties and their aliases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sinks.kafka import librdkafka


def _applies_always(_in_force: Mapping[str, str]) -> bool:
    return True


def _is_not_idempotent(in_force: Mapping[str, str]) -> bool:
    return in_force["enable.idempotence"] != "true"


@dataclass(frozen=True, slots=True)
class _Rule:
    """names: of the property and its aliases. only: values that are all right; none: it cannot be set at all.
    applies: whether it counts, by the values that are in force.
    """

    names: tuple[str, ...]
    why: str
    only: tuple[str, ...] = ()
    applies: Callable[[Mapping[str, str]], bool] = _applies_always


_OF_FILES = (".location", ".keytab")
"""How names of properties end whose values are files."""

_RULES = (
    _Rule(("bootstrap.servers", "metadata.broker.list"), "hosts sets it"),
    _Rule(("test.mock.num.brokers",), "records would go to brokers inside this process, and be gone with it"),
    _Rule(("transactional.id",), "transactionalId sets it, with exactlyOnce"),
    _Rule(("delivery.report.only.error",), "the sink waits for every delivery itself"),
    _Rule(("request.required.acks", "acks"), "requiredAcks sets it", only=("{required_acks}",)),
    _Rule(
        ("partitioner",),
        "records of one key would go to any partition, in any order",
        only=("murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a"),
    ),
    _Rule(("queuing.strategy",), "the newest records would be written first", only=("fifo",)),
    _Rule(
        ("message.timeout.ms", "delivery.timeout.ms"),
        "records would be given up one by one, and later ones written first; use timeout and maxAttempts",
        only=("0",),
    ),
    _Rule(
        ("message.send.max.retries", "retries"),
        "records would be given up one by one, and later ones written first; use timeout and maxAttempts",
        only=("2147483647",),
    ),
    _Rule(
        ("max.in.flight.requests.per.connection", "max.in.flight"),
        "without enable.idempotence a request that is sent again arrives after later ones that were in flight with it",
        only=("1",),
        applies=_is_not_idempotent,
    ),
    _Rule(("topic.blacklist",), "records of these topics would wait for ever; use excludeTables"),
    _Rule(
        ("enable.gapless.guarantee",),
        "a record that Kafka rejects would end the client each time, and never be put aside",
        only=("false",),
    ),
)


def find_objections(given: Iterable[str], properties: Mapping[str, str], required_acks: int) -> Iterator[str]:
    """What is wrong with the properties that a section passes through.

    given: their names. properties: everything that the client would get, this sink's own included. KafkaException for
    what librdkafka itself does not take.
    """
    named = set(given)
    in_force = librdkafka.resolve_properties(properties, [rule.names[0] for rule in _RULES] + ["enable.idempotence"])
    for rule in _RULES:
        only = [value.format(required_acks=required_acks) for value in rule.only]
        if rule.applies(in_force) and in_force[rule.names[0]] not in only:
            yield from (_describe_objection(name, only, rule.why) for name in rule.names if name in named)


def find_unreadable_files(properties: Mapping[str, object]) -> Iterator[str]:
    """Which properties name files that cannot be read, for a client that is refused: librdkafka tells of the failure of
    a library, not of the file.
    """
    for name, value in properties.items():
        if not name.endswith(_OF_FILES):
            continue
        try:
            Path(str(value)).open("rb").close()
        except IsADirectoryError:
            continue  # some may be folders
        except OSError as error:
            yield f'kafka."{name}" names a file that cannot be read: {str(error.strerror).lower()}'


def _describe_objection(name: str, only: list[str], why: str) -> str:
    allowed = f", but for {' or '.join(only)}" if only else ""
    return f'kafka."{name}" cannot be set{allowed}: {why}'
