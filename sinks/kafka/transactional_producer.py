"""A producer whose records become visible together, or not at all (KIP-98), with offsets of consumer groups (KIP-447).

https://docs.confluent.io/platform/current/clients/librdkafka/html/rdkafka_8h.html describes the calls and their errors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from psql_streamer.interfaces import ConsumedOffsets
from sinks.kafka import librdkafka
from sinks.kafka.librdkafka import Pointer, rdkafka
from sinks.kafka.producer import Producer


class TransactionalProducer(Producer):
    """Every method raises KafkaException. An error that is retriable is of a call that goes on when it is made again;
    seconds: how long a call waits for brokers at most.
    """

    def init_transactions(self, seconds: float) -> None:
        """Take over the transactional id: brokers end what another client left open, and refuse what it still sends."""
        with self._in_use:
            _require(rdkafka.init_transactions(self._open(), _to_milliseconds(seconds)))

    def begin_transaction(self) -> None:
        """What is produced from now on belongs together."""
        with self._in_use:
            _require(rdkafka.begin_transaction(self._open()))

    def send_offsets(self, consumed: ConsumedOffsets, seconds: float) -> None:
        """Commit offsets of a consumer group with the transaction."""
        with self._in_use:
            client, group = self._open(), Pointer()
            _require(rdkafka.consumer_group_metadata_read(ctypes.byref(group), consumed.group, len(consumed.group)))
            offsets = _make_offset_list(consumed.offsets)
            try:
                _require(rdkafka.send_offsets_to_transaction(client, offsets, group, _to_milliseconds(seconds)))
            finally:
                rdkafka.topic_partition_list_destroy(offsets)
                rdkafka.consumer_group_metadata_destroy(group)

    def commit_transaction(self, seconds: float) -> None:
        """Make all of it visible. After an error that is not retriable it may be visible or not."""
        with self._in_use:
            _require(rdkafka.commit_transaction(self._open(), _to_milliseconds(seconds)))

    @property
    def transaction_error(self) -> KafkaError | None:
        """What the open transaction has failed with, if it did: reports say of most records that they were purged."""
        try:
            self.begin_transaction()  # which nobody may do in a transaction
        except KafkaException as error:
            found: KafkaError = error.args[0]
            return None if found.code() == KafkaError._STATE else found
        return None

    @property
    def fatal_error(self) -> KafkaError | None:
        """What the client failed with for good, if it did."""
        reason = ctypes.create_string_buffer(512)
        with self._in_use:
            code = rdkafka.fatal_error(self._open(), reason, len(reason))
        return KafkaError(code, reason.value.decode(errors="replace"), fatal=True) if code else None


def _to_milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _require(error: librdkafka.Handle) -> None:
    if error is None:
        return
    code, text = int(rdkafka.error_code(error)), (rdkafka.error_string(error) or b"").decode(errors="replace")
    retriable = bool(rdkafka.error_is_retriable(error))
    rdkafka.error_destroy(error)
    raise KafkaException(KafkaError(code, text, retriable=retriable))


def _make_offset_list(offsets: Sequence[tuple[str, int, int, str]]) -> librdkafka.Handle:
    listed = rdkafka.topic_partition_list_new(len(offsets))
    for topic, partition, offset, metadata in offsets:
        entry = rdkafka.topic_partition_list_add(listed, topic.encode(), partition).contents
        entry.offset = offset
        if metadata:
            # librdkafka copies as many bytes as metadata_size says, and then reads the copy up to a 0 byte.
            written = metadata.encode() + b"\0"
            entry.metadata = rdkafka.mem_malloc(None, len(written))
            ctypes.memmove(entry.metadata, written, len(written))
            entry.metadata_size = len(written)
    return listed
