"""Dead letters of handlers: rows that a rule could not take, as events in the sink's format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
from confluent_kafka import KafkaError

from psql_streamer.errors import SinkRefused
from psql_streamer.model import Batch, Bounds, Rejection, Tallies
from psql_streamer.records import Records
from sinks.dead_letters import PREFIX, advice, deliver_dead_letters, describe
from sinks.kafka_delivery import Delivery


def deliver_rejected_rows(
    delivery: Delivery, topic: str, encode: Callable[[Batch], Records], batch: Batch
) -> Iterator[Records]:
    """Write the rows that handlers put aside to `topic`; gives the records when they are acknowledged.

    Every event has the headers of a record that Kafka rejects, and of its rule: dead_letter_rule, dead_letter_column.
    Raises SinkRefused without a topic, or when one cannot be written there.
    """
    if batch.rejections and not topic:
        what = f"rule {batch.rejections[0].rule!r} puts rows aside and there is no place for them"
        raise SinkRefused(what, 'set deadLetterTopic, or onError = "stop"')
    for rejection in batch.rejections:
        records = _about(rejection, encode(_alone(batch, rejection)))
        reason = KafkaError(KafkaError.INVALID_RECORD, rejection.reason)
        rejected = dict.fromkeys(range(len(records)), reason)
        refused = deliver_dead_letters(delivery, topic, records, rejected) if rejected else {}
        for index, error in refused.items():
            raise _refused(topic, records, index, error)
        yield records


def _about(rejection: Rejection, records: Records) -> Records:
    """The records with headers that name the rule, and the column if it is one."""
    about = {"rule": rejection.rule, "column": rejection.column}
    headers = {
        PREFIX + name: pa.repeat(pa.scalar(None if text is None else text.encode(), pa.binary()), len(records))
        for name, text in about.items()
    }
    return replace(records, headers={**records.headers, **headers})


def _alone(batch: Batch, rejection: Rejection) -> Batch:
    """The batch with these changes and nothing else."""
    return replace(
        batch,
        changes=(rejection.changes,),
        truncates=(),
        messages=(),
        schema_changes=(),
        begins=Bounds(),
        ends=Bounds(),
        tallies=Tallies(),
        rejections=(),
    )


def _refused(topic: str, records: Records, index: int, error: KafkaError) -> SinkRefused:
    return SinkRefused(f'topic "{topic}" rejects {describe(records, index)}: {error.str()}', advice(error))
