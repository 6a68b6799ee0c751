"""Dead letters of handlers: rows that a rule could not take, as events in the sink's format."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
from confluent_kafka import KafkaError

from psql_streamer.errors import SinkRefused
from psql_streamer.events.records import Records
from psql_streamer.model import Batch, Rejection
from sinks.kafka.dead_letters import HEADER_PREFIX, DeadLetters, describe, suggest_remedy
from sinks.kafka.delivery import Delivery


class RejectedRows:
    """The rows of one batch that handlers put aside, on their way to the dead-letter topic.

    Every event has the headers of a record that Kafka rejects, and of its rule: dead_letter_rule, dead_letter_column.
    """

    def __init__(self, topic: str, encode: Callable[[Batch], Records], batch: Batch) -> None:
        """encode: gives the records of a batch. Raises SinkRefused for rows without a topic to put them aside in."""
        if batch.rejections and not topic:
            what = f"rule {batch.rejections[0].rule!r} puts rows aside and there is no place for them"
            raise SinkRefused(what, 'set deadLetterTopic, or onError = "stop"')
        self._topic = topic
        self._all = [_make_letters(topic, one, encode(batch.with_only((one.changes,)))) for one in batch.rejections]
        self._waiting = deque(self._all)

    def __len__(self) -> int:
        """How many rejections of handlers are not durable."""
        return len(self._waiting)

    @property
    def wants_singly(self) -> bool:
        """See DeadLetters.wants_singly."""
        return any(letters.wants_singly for _, letters in self._all)

    def write_again(self) -> None:
        """None of them was written after all."""
        for _, letters in self._all:
            letters.write_again()
        self._waiting = deque(self._all)

    def deliver(self, delivery: Delivery) -> Iterator[Records]:
        """Write them; gives the records of each rejection when they are acknowledged, and goes on with what is left
        when it is called again. Raises SinkRefused when one cannot be written, and as Delivery.deliver does.
        """
        while self._waiting:
            records, letters = self._waiting[0]
            for index, error in letters.deliver(delivery).items():
                raise _make_refused_error(self._topic, records, index, error)
            self._waiting.popleft()
            yield records


def _make_letters(topic: str, rejection: Rejection, records: Records) -> tuple[Records, DeadLetters]:
    records = _with_rule_headers(rejection, records)
    reason = KafkaError(KafkaError.INVALID_RECORD, rejection.reason)
    return records, DeadLetters(topic, records, dict.fromkeys(range(len(records)), reason))


def _with_rule_headers(rejection: Rejection, records: Records) -> Records:
    """The records with headers that name the rule, and the column if it is one."""
    about = {"rule": rejection.rule, "column": rejection.column}
    headers = {
        HEADER_PREFIX + name: pa.repeat(pa.scalar(None if text is None else text.encode(), pa.binary()), len(records))
        for name, text in about.items()
    }
    return replace(records, headers={**records.headers, **headers})


def _make_refused_error(topic: str, records: Records, index: int, error: KafkaError) -> SinkRefused:
    return SinkRefused(
        f'topic "{topic}" rejects {describe(records, index)}: {error.str()}', suggest_remedy(error, topic)
    )
