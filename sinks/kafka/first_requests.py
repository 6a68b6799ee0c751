"""Which records librdkafka puts into the first request of each partition."""

from __future__ import annotations

import numpy as np

from psql_streamer.binary_columns import bound_bytes
from psql_streamer.model import Index
from sinks.kafka.outgoing import Outgoing
from sinks.kafka.rejections import measure_sizes

_BATCH_OVERHEAD_BYTES = 128
"""The head of a record batch has 61 bytes (Kafka documentation, "Record Batch"); the rest is reserve."""
_RECORD_OVERHEAD_BYTES = 36
"""RD_KAFKAP_MESSAGE_V2_MAX_OVERHEAD: what librdkafka reckons with for a record's lengths and deltas."""
_HEADER_OVERHEAD_BYTES = 10
"""Two lengths of up to 5 bytes."""

_COUNTED_PLACES = 1 << 20
"""Up to this many partitions of all topics it is quicker to add up what each gets than to sort."""

_SMALL_REQUEST_BYTES = 256 << 10
"""Requests below this size are over sooner than it pays to wait for each."""


def select_first_requests(records: Outgoing, at: Index, request_bytes: int) -> Index:
    """Those of these places whose records fit into the first request of their partition, in the same order.

    An idempotent client of librdkafka has one request of 5 records or more under way in a partition
    (rd_kafka_toppar_producer_serve compares RD_KAFKA_IDEMP_MAX_INFLIGHT, a number of requests, with the number of
    records in flight). While it waits for the answer and has records for another request, its thread does not sleep.
    So these records are better handed over when the others are acknowledged.

    Records whose partition the client chooses are all among them. at: topic by topic. request_bytes: batch.size of the
    client.
    """
    if request_bytes < _SMALL_REQUEST_BYTES or len(at) < 2:
        return at
    most = request_bytes - _BATCH_OVERHEAD_BYTES
    if _bound_all(records) <= most:
        return at
    sizes = measure_sizes(records, at) + _measure_overhead(records)
    if int(sizes.sum()) <= most:
        return at
    partitions = records.partitions[at].astype(np.int64)
    places = records.topics[at].astype(np.int64) * (int(partitions.max()) + 2) + partitions + 1
    if places.max() < _COUNTED_PLACES and np.bincount(places, sizes).max() <= most:
        return at
    order = np.argsort(places, kind="stable")
    sizes, places = sizes[order], places[order]
    ends = np.cumsum(sizes)
    is_first = np.append(True, places[1:] != places[:-1])
    heads = np.flatnonzero(is_first)
    before = np.repeat(ends[heads] - sizes[heads], np.diff(np.append(heads, len(at))))
    chosen: Index = at[np.sort(order[is_first | (ends - before <= most) | (partitions[order] < 0)])]
    return chosen


def _bound_all(records: Outgoing) -> int:
    """Bytes of all records at most, also of those that are not asked for: quickly known, and for a small batch all it
    takes.
    """
    columns = (records.keys, records.values, *records.headers.values())
    return sum(map(bound_bytes, columns)) + len(records) * _measure_overhead(records)


def _measure_overhead(records: Outgoing) -> int:
    return _RECORD_OVERHEAD_BYTES + sum(_HEADER_OVERHEAD_BYTES + len(name.encode()) for name in records.headers)
