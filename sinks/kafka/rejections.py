"""Which records Kafka rejects, as far as its answers tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from confluent_kafka import KafkaError

from psql_streamer.model import NO_RECORD_TIME, Index
from sinks.kafka.errors import REJECTED, TOO_LARGE
from sinks.kafka.outgoing import Outgoing, locate
from sinks.kafka.producer import Failed

Place = tuple[int, int]
"""A topic's number, and a partition."""


_TOLD_APART = (KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP)
"""Errors that brokers report of some records of a request (KIP-467)."""


def find_rejected(failed: Sequence[Failed], records: Outgoing, request_bytes: int, *, singly: bool) -> Sequence[Failed]:
    """Those that are known to be why their requests were rejected. request_bytes: batch.size of the client. singly: it
    made a request of each record.

    All records of a request that is rejected are reported. Of one with invalid records these are told from the others,
    which are _INVALID_DIFFERENT_RECORD (KIP-467). Where all of them are invalid and none has a key, that is why: the
    topic is compacted. For other reasons a record is known if it was alone: as the only one of its partition, or
    because it is so large that the client put no other one beside it. One that has the time of its writing may have
    become too old while the client tried: written again, it has another one.
    """
    rejected = [failure for failure in failed if failure.error.code() in REJECTED]
    if singly or not rejected:
        return rejected
    of_partition = Counter(_find_place(failure, records) for failure in rejected)
    told = {_find_place(failure, records) for failure in rejected if _blames_another(failure)}
    keyed = {
        _look_up_topic(failure, records) for failure in rejected if _is_invalid(failure) and _has_key(failure, records)
    }
    sizes = measure_sizes(records, np.array([failure.place for failure in rejected])).tolist()
    return [
        failure
        for failure, size in zip(rejected, sizes, strict=True)
        if not _blames_another(failure)
        and not _may_have_aged(failure, records)
        and (
            ((place := _find_place(failure, records)) in told and failure.error.code() in _TOLD_APART)
            or of_partition[place] == 1
            or (_is_invalid(failure) and _look_up_topic(failure, records) not in keyed)
            or (size >= request_bytes and failure.error.code() in TOO_LARGE)
        )
    ]


def find_without_key(rejected: Sequence[Failed], records: Outgoing) -> Sequence[Failed]:
    """The other records without a key of those topics from which one was rejected as invalid that has none: compacted
    topics take none of them. rejected: those that are known to be why their requests were rejected.
    """
    without_key = [one for one in rejected if _is_invalid(one) and not _has_key(one, records)]
    if not without_key:
        return ()
    known, topics = {one.place for one in rejected}, {_look_up_topic(one, records) for one in without_key}
    alike = np.isin(records.topics, list(topics)) & np.asarray(records.keys.is_null())
    return [Failed(place, without_key[0].error) for place in np.flatnonzero(alike).tolist() if place not in known]


def measure_sizes(records: Outgoing, at: Index) -> Index:
    """Bytes of keys, values and headers."""
    found: Index = np.zeros(len(at), np.int64)
    for column in (records.keys, records.values, *records.headers.values()):
        found += locate(column, at)[1].astype(np.int64)
    return found


def _find_place(failure: Failed, records: Outgoing) -> Place:
    return _look_up_topic(failure, records), int(records.partitions[failure.place])


def _look_up_topic(failure: Failed, records: Outgoing) -> int:
    return int(records.topics[failure.place])


def _has_key(failure: Failed, records: Outgoing) -> bool:
    return bool(records.keys[failure.place].is_valid)


def _is_invalid(failure: Failed) -> bool:
    return bool(failure.error.code() == KafkaError.INVALID_RECORD)


def _may_have_aged(failure: Failed, records: Outgoing) -> bool:
    if failure.error.code() != KafkaError.INVALID_TIMESTAMP:
        return False
    return records.timestamps is None or bool(records.timestamps[failure.place] == NO_RECORD_TIME)


def _blames_another(failure: Failed) -> bool:
    return bool(failure.error.code() == KafkaError._INVALID_DIFFERENT_RECORD)
