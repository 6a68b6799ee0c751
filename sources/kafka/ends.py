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

Answers = Mapping[TopicPartition, "Future[ListOffsetsResultInfo]"]


def find_ends(
    admin: AdminClient,
    asked: Iterable[Partition],
    timeout: float,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[Partition, tuple[int, int]]:
    """Of each partition the first offset, and the one behind its last record. isolation: READ_COMMITTED for the end in
    front of open transactions. Raises KafkaException, also for partitions whose leader does not answer.
    """
    asked = list(asked)
    first, last = (_ask(admin, asked, of, timeout, isolation) for of in (_EARLIEST, _LATEST))
    begins, ends = _wait_for(first), _wait_for(last)
    return {one: (begins[one], ends[one]) for one in asked}


@dataclass(frozen=True, slots=True)
class FoundEnds:
    """ends: behind the last records. unanswered: partitions of which no broker has said it."""

    ends: Offsets
    unanswered: Collection[Partition]


class AskedEnds:
    """Ends that brokers are asked for without waiting for the answer. admin: asks them."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._answers: Answers = {}

    def ask(self, partitions: Iterable[Partition], timeout: float) -> None:
        """Of these. timeout: what brokers get for it, in seconds."""
        self._answers = _ask(self._admin, partitions, _LATEST, timeout)

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
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Answers:
    asked = dict.fromkeys([TopicPartition(*one) for one in partitions], of)
    return admin.list_offsets(asked, isolation_level=isolation, request_timeout=timeout) if asked else {}


def _wait_for(answers: Answers) -> Mapping[Partition, int]:
    found = {_to_partition(one): answer.result().offset for one, answer in answers.items()}
    if silent := [one for one, offset in found.items() if offset < 0]:
        # The client gives what other leaders have answered, and no offset (-1001) for the others.
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer from the leader of {silent[0]}"))
    return found


def _read_answer(answer: Future[ListOffsetsResultInfo]) -> int | None:
    """The offset, if a broker has said it."""
    if answer.exception() is not None:
        return None
    offset = int(answer.result().offset)
    return offset if offset >= 0 else None


def _to_partition(one: TopicPartition) -> Partition:
    return Partition(one.topic, one.partition)
