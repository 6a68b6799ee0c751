"""Records on their way to Kafka, by columns, and laid out as librdkafka takes them: a row a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer import batching
from psql_streamer.binary_columns import measure_bytes, read_offsets
from psql_streamer.cells import join_arrays
from psql_streamer.events.assembling import join_names, order_headers
from psql_streamer.model import NO_RECORD_TIME, Index
from sinks.kafka import librdkafka
from sinks.kafka.librdkafka import FIELD, MESSAGE, ONE_MESSAGE

Bytes: TypeAlias = pa.BinaryArray | pa.ChunkedArray
"""In chunks where records of several batches stand behind one another."""

_BINARY = pa.binary()

_MOST_RECORDS_BYTES = (1 << 31) - 1
"""What an array of the type `binary` holds at most."""

Run: TypeAlias = tuple[int, int, int]
"""Records of one topic that stand together: the topic's number, place of the first, place behind the last."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Records on their way to Kafka; all arrays have one element a record.

    topics: index into topic_names. keys, values: may be null. partitions: -1 leaves it to the client.
    headers: name -> array (null: this record lacks the header). timestamps: as Records has them.
    """

    topic_names: tuple[str, ...]
    topics: NDArray[np.int32]
    keys: pa.BinaryArray
    values: Bytes
    partitions: NDArray[np.int32]
    headers: Mapping[str, Bytes] = field(default_factory=dict)
    timestamps: Index | None = None

    def __len__(self) -> int:
        return len(self.topics)

    def with_partitions(self, partitions: NDArray[np.int32]) -> Outgoing:
        """The same records, to these partitions."""
        return replace(self, partitions=partitions)

    def count_partitions(self) -> int:
        """To how many partitions of all topics they are directed; all that are not, of a topic, count as one."""
        return len(np.unique(self.topics.astype(np.int64) << 32 | (self.partitions.astype(np.int64) & 0xFFFFFFFF)))


def join(parts: Sequence[Outgoing]) -> Outgoing:
    """The records of all, one behind the other; at least one part, and each as batches give it. Values stay where
    they are.
    """
    if len(parts) == 1:
        return parts[0]
    topic_names, topics = join_names([(part.topic_names, part.topics) for part in parts])
    headers = order_headers({name for part in parts for name in part.headers})
    return Outgoing(
        topic_names,
        topics,
        _join_binary([part.keys for part in parts]),
        pa.chunked_array([part.values for part in parts]),
        np.concatenate([part.partitions for part in parts]),
        {name: pa.chunked_array([part.headers.get(name, _make_nulls(part)) for part in parts]) for name in headers},
        join_arrays([(part.timestamps, len(part)) for part in parts], NO_RECORD_TIME),
    )


def list_chunks(column: Bytes) -> Sequence[pa.BinaryArray]:
    """Its parts, the column itself where it is not in chunks."""
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def find_runs(records: Outgoing, at: Index) -> Iterator[Run]:
    """The runs that these records make, by their places in `at`."""
    if len(records.topic_names) == 1:
        return iter([(0, 0, len(at))])
    topics = records.topics[at]
    starts = [0, *((topics[1:] != topics[:-1]).nonzero()[0] + 1).tolist()]
    return zip(topics[starts].tolist(), starts, [*starts[1:], len(at)], strict=True)


def lay_out(records: Outgoing, at: Index) -> NDArray[np.void]:
    """rd_kafka_produce_batch's messages, one a record at these places. Their bytes stay where they are."""
    if len(at) <= batching.FEW_ROWS and _has_all(records.keys) and _has_all(records.values):
        return _lay_out_few(records, at.tolist())
    messages = np.zeros(len(at), MESSAGE)
    messages["value"], messages["value_size"] = locate(records.values, at)
    messages["key"], messages["key_size"] = locate(records.keys, at)
    messages["partition"] = records.partitions[at]
    messages["opaque"] = at
    return messages


def _has_all(column: Bytes) -> bool:
    """Whether it is one array, without a null."""
    return bool(column.type == _BINARY and not column.null_count and isinstance(column, pa.BinaryArray))


def _lay_out_few(records: Outgoing, at: Sequence[int]) -> NDArray[np.void]:
    """The same of values that are all there, one by one."""
    values, keys = read_offsets(records.values).tolist(), read_offsets(records.keys).tolist()
    value, key = find_address(records.values), find_address(records.keys)
    partitions, laid_out = records.partitions.tolist(), bytearray(MESSAGE.itemsize * len(at))
    for row, place in enumerate(at):
        start, end, key_start, key_end = values[place], values[place + 1], keys[place], keys[place + 1]
        where = value + start, end - start, key + key_start, key_end - key_start
        ONE_MESSAGE.pack_into(laid_out, row * MESSAGE.itemsize, 0, partitions[place], *where, place)
    return np.frombuffer(laid_out, MESSAGE)


def lay_out_fields(
    topics: NDArray[np.uint64], records: Outgoing, at: Index, header_names: Mapping[str, int]
) -> NDArray[np.void]:
    """rd_kafka_produceva's arguments, a row a record. topics: rd_kafka_topic_t by the topic's number. header_names:
    where in memory each stands.
    """
    fields = np.zeros((len(at), 6 + len(header_names)), FIELD)
    to_topic, to_partition, value, key, opaque, timestamp = fields.T[:6]
    partition = records.partitions[at].astype(np.int64).view(np.uint64)
    to_topic["kind"], to_topic["pointer"] = librdkafka.FIELD_TOPIC, topics[records.topics[at]]
    to_partition["kind"], to_partition["pointer"] = librdkafka.FIELD_PARTITION, partition
    value["kind"], (value["pointer"], value["second"]) = librdkafka.FIELD_VALUE, locate(records.values, at)
    key["kind"], (key["pointer"], key["second"]) = librdkafka.FIELD_KEY, locate(records.keys, at)
    opaque["kind"], opaque["pointer"] = librdkafka.FIELD_OPAQUE, at
    # 0 is the time of the call (rd_kafka_msg_new0).
    timestamp["kind"] = librdkafka.FIELD_TIMESTAMP
    timestamp["pointer"] = 0 if records.timestamps is None else np.maximum(records.timestamps[at], 0)
    for header, (name, address) in zip(fields.T[6:], header_names.items(), strict=True):
        there, size = locate(records.headers[name], at)
        held = there != 0
        # A row that lacks the header says once more where it goes, which changes nothing.
        header["kind"] = np.where(held, librdkafka.FIELD_HEADER, librdkafka.FIELD_PARTITION)
        header["pointer"] = np.where(held, np.uint64(address), partition)
        header["second"], header["size"] = there, size
    return fields


def locate(column: Bytes, at: Index) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Where the bytes of these elements stand, 0 (NULL) for a null; and how many they are."""
    if isinstance(column, pa.ChunkedArray):
        return _locate_in_chunks(column, at)
    bounds = read_offsets(column).view(np.uint64 if pa.types.is_large_binary(column.type) else np.uint32)
    start, end = bounds[at].astype(np.uint64), bounds[at + 1].astype(np.uint64)
    address, size = start + np.uint64(find_address(column)), end - start
    if column.null_count:
        missing = np.asarray(column.is_null())[at]
        address[missing] = size[missing] = 0
    return address, size


def find_address(column: pa.BinaryArray) -> int:
    """Where the bytes of all its values begin. An empty value is not a null one: it needs an address, though nothing is
    read there.
    """
    _, nearest, data = column.buffers()
    return int(data.address if data is not None and data.size else nearest.address)


def _locate_in_chunks(column: pa.ChunkedArray, at: Index) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    address, size = np.zeros((2, len(at)), np.uint64)
    first = 0
    for chunk in column.chunks:
        there = ((at >= first) & (at < first + len(chunk))).nonzero()[0]
        address[there], size[there] = locate(chunk, at[there] - first)
        first += len(chunk)
    return address, size


def _join_binary(arrays: Sequence[pa.BinaryArray]) -> pa.BinaryArray:
    if sum(map(measure_bytes, arrays)) > _MOST_RECORDS_BYTES:
        arrays = [array.cast(pa.large_binary()) for array in arrays]
    return pa.concat_arrays(arrays)


def _make_nulls(part: Outgoing) -> pa.BinaryArray:
    return pa.nulls(len(part), pa.binary())
