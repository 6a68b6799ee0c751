"""Where partitions begin and end at the brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from sources.kafka.offsets import Offsets, Partition

_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]

_AWAY = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._NOENT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
"""Of single partitions, while their leader is away, or another broker becomes it. Where other leaders have answered,
the client gives no offset (-1001) in place of an error.
"""

Ends = Mapping[Partition, tuple[int, int]]
"""Partition -> its first offset, and the one behind its last record."""

Answers = Mapping[TopicPartition, "Future[ListOffsetsResultInfo]"]


def find_ends(
    admin: AdminClient,
    asked: Iterable[Partition],
    timeout: float,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Ends:
    """Of each partition the first offset, and the one behind its last record. isolation: READ_COMMITTED for the end in
    front of open transactions. Raises KafkaException, also for partitions whose leader does not answer.
    """
    asked = list(asked)
    found = find_known_ends(admin, asked, timeout, isolation)
    if silent := [one for one in asked if one not in found]:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer from the leader of {silent[0]}"))
    return found


def find_known_ends(
    admin: AdminClient,
    asked: Iterable[Partition],
    timeout: float,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Ends:
    """The same without those whose leader does not answer."""
    asked = list(asked)
    both = [_ask(admin, asked, of, timeout, isolation) for of in (_EARLIEST, _LATEST)]  # then wait for either
    begins, ends = ({_to_partition(one): _read_offset(answer) for one, answer in answers.items()} for answers in both)
    return {one: (begin, end) for one in asked if (begin := begins[one]) is not None and (end := ends[one]) is not None}


@dataclass(frozen=True, slots=True)
class FoundEnds:
    """ends: behind the last records. unanswered: partitions of which no broker has said it."""

    ends: Offsets
    unanswered: Collection[Partition]


class AskedEnds:
    """Ends that brokers are asked for without waiting for the answer. admin: asks them. isolation: READ_COMMITTED for
    those in front of open transactions.
    """

    def __init__(self, admin: AdminClient, isolation: IsolationLevel) -> None:
        self._admin = admin
        self._isolation = isolation
        self._answers: Answers = {}

    def ask(self, partitions: Iterable[Partition], timeout: float) -> None:
        """Of these. timeout: what brokers get for it, in seconds."""
        self._answers = _ask(self._admin, partitions, _LATEST, timeout, self._isolation)

    @property
    def is_waiting(self) -> bool:
        """Whether there are answers that were not collected."""
        return bool(self._answers)

    def collect(self) -> FoundEnds | None:
        """What was asked for last, once; None while an answer is waited for, and where nothing was asked."""
        if not self._answers or not all(answer.done() for answer in self._answers.values()):
            return None
        answers, self._answers = self._answers, {}
        found = {_to_partition(one): _read_answer(answer) for one, answer in answers.items()}
        return FoundEnds(
            {one: offset for one, offset in found.items() if offset is not None},
            [one for one, offset in found.items() if offset is None],
        )


def _ask(
    admin: AdminClient,
    partitions: Iterable[Partition],
    of: OffsetSpec,
    timeout: float,
    isolation: IsolationLevel,
) -> Answers:
    asked = dict.fromkeys([TopicPartition(*one) for one in partitions], of)
    return admin.list_offsets(asked, isolation_level=isolation, request_timeout=timeout) if asked else {}


def _read_offset(answer: Future[ListOffsetsResultInfo]) -> int | None:
    """The offset; None where the leader has not said it. Raises KafkaException for what it has said otherwise."""
    try:
        offset = int(answer.result().offset)
    except KafkaException as error:
        if error.args[0].code() in _AWAY:
            return None
        raise
    return offset if offset >= 0 else None


def _read_answer(answer: Future[ListOffsetsResultInfo]) -> int | None:
    try:
        return _read_offset(answer)
    except KafkaException:
        return None


def _to_partition(one: TopicPartition) -> Partition:
    return Partition(one.topic, one.partition)
