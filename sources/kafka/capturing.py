"""Records of topics without a trace: read by their offsets, in no group, and nothing is committed."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from psql_streamer.errors import SourceUnavailable
from psql_streamer.event_reader import parsed
from psql_streamer.event_reader.reader import EventReader
from psql_streamer.interfaces import CaptureRequest, Finding, Source
from psql_streamer.model import Batch, Position
from sources.kafka.errors import make_source_error
from sources.kafka.framing import make_framed_records
from sources.kafka.offsets import Offsets, Partition, advance, has_reached, to_offsets, to_position
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.subscribed import find_missing, find_unmatched, list_wanted_partitions
from sources.kafka.unreadable_headers import replace_unreadable

log = logging.getLogger(__name__)


class KafkaCapture(Source):
    """The records that come from now on, or, if that is wanted, those that the topics have."""

    Options = KafkaSourceOptions

    def __init__(self, name: str, options: KafkaSourceOptions, request: CaptureRequest) -> None:
        super().__init__(name, options)
        self._settings = options
        self._request = request
        self._reader = EventReader(name)
        self._framed = make_framed_records(name, options)
        self._consumer: Consumer | None = None
        self._offsets: Offsets = {}
        self._unread: set[Partition] = set()
        self._ready: deque[Batch] = deque()

    def check(self) -> Iterable[Finding]:
        return ()

    def read_stream_identity(self) -> Mapping[str, str]:
        return {}

    def has_reached(self, position: Position, mark: Position) -> bool:
        return has_reached(to_offsets(position), to_offsets(mark))

    def start(self, position: Position | None) -> None:  # noqa: ARG002 - there is none
        options = self._settings
        # A consumer that is assigned its partitions joins no group. The client asks for the coordinator of one all the
        # same, which the user may be allowed to do for the source's alone.
        given = {
            name: value for name, value in options.make_consumer_properties().items() if name != "group.instance.id"
        }
        consumer = self._consumer = Consumer({**given, "enable.partition.eof": True}, logger=log)
        try:
            found = consumer.list_topics(timeout=options.timeout).topics
            begins = {
                one: self._find_first_offset(consumer, one) for one in list_wanted_partitions(options.topics, found)
            }
        except KafkaException as error:
            raise make_source_error(f"no answer from {','.join(options.hosts)}", error.args[0]) from None
        if not begins:
            raise SourceUnavailable(
                f"topics do not exist: {', '.join(options.topics)}", "create them, or correct topics"
            )
        if absent := [*find_missing(options.topics, found), *find_unmatched(options.topics, found)]:
            self._request.on_wait(f"topics that do not exist are left out: {', '.join(absent)}")
        self._offsets, self._unread = begins, set(begins)
        consumer.assign([TopicPartition(*partition, offset) for partition, offset in begins.items()])

    def read(self, timeout: float) -> Batch | None:
        if self._ready:
            return self._ready.popleft()
        if self._consumer is None:
            raise SourceUnavailable("the source is not started")
        first = self._consumer.poll(timeout)
        if first is None:
            return None
        messages = [first, *self._consumer.consume(self._settings.batch_size, 0)]
        records, _ = replace_unreadable(cast("parsed.Message", one) for one in messages if not self._is_end(one))
        self._read(records if self._framed is None else self._framed.decode_all(records))
        return self._ready.popleft() if self._ready else None

    @property
    def is_exhausted(self) -> bool:
        return self._request.existing and not self._unread and not self._ready

    def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _find_first_offset(self, consumer: Consumer, partition: Partition) -> int:
        low, high = consumer.get_watermark_offsets(TopicPartition(*partition), timeout=self._settings.timeout)
        return int(low if self._request.existing else high)

    def _is_end(self, message: Message) -> bool:
        """Whether it says that a partition has no more; errors are raised."""
        error = message.error()
        if error is None:
            return False
        if error.code() != KafkaError._PARTITION_EOF:
            raise make_source_error(f"topic {message.topic()}", error)
        self._unread.discard(Partition(str(message.topic()), int(message.partition() or 0)))
        return True

    def _read(self, messages: list[parsed.Message]) -> None:
        before = self._offsets

        def behind(count: int) -> Position:
            self._offsets = advance(before, messages[:count])
            return to_position(self._offsets)

        read = self._reader.read(messages, to_position(before), behind, time.monotonic(), stops=False)
        if read.refused:
            self._request.on_wait(f"{len(read.refused)} records that are no events are left out")
        if read.unknown_tombstones:
            what = "records without a value of which no record in front of them says their table are left out"
            self._request.on_wait(f"{len(read.unknown_tombstones)} {what}")
        self._ready.extend(read.batches)
