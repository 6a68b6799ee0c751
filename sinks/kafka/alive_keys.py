"""The keys of a table's topics whose last record is no delete: all records are read, in no group.

The keys are kept in a file of their own, which goes with the process: a topic may have more of them than memory holds.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from psql_streamer.errors import SinkRefused, SinkUnavailable
from psql_streamer.interfaces import AliveKeys, KeysRequest
from psql_streamer.snapshots import KeyForm
from sinks.kafka.options import KafkaSinkOptions
from sinks.kafka.record_rows import Headers, NotReadableError, RecordRow, list_readable_formats, read_record

_RECORDS_AT_ONCE = 10_000
_SILENT_SECONDS = 60.0
"""The time after which brokers that give nothing have failed."""

_TELL_SECONDS = 10.0
_KEYS_POLL_SECONDS = 1.0
_LEADER_SECONDS, _LEADER_PAUSE_SECONDS = 15.0, 0.1
_MOVING = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)
"""What brokers say of a partition that has just been made, or has got another leader."""

_AS_FILE = "give the keys as a file"

Place = tuple[str, int]
"""Topic and partition."""


def find_alive_keys(sink: str, options: KafkaSinkOptions, request: KeysRequest, log: logging.Logger) -> AliveKeys:
    """See Sink.find_alive_keys."""
    if options.format not in list_readable_formats():
        raise SinkRefused(f'sink {sink}: events of the format "{options.format}" are not read', _AS_FILE)
    topics = _choose_topics(sink, options, request)
    form = KeyForm.DEBEZIUM if options.format == "debezium" else KeyForm.JSON
    return AliveKeys(form, _read(options, topics, request, log))


def _choose_topics(sink: str, options: KafkaSinkOptions, request: KeysRequest) -> Sequence[str]:
    router = options.make_router()
    table = f"{request.schema}.{request.table}"
    topics = [route.topic for route in router.find_routes(request.source, request.schema, request.table)]
    if not topics:
        raise SinkRefused(f"sink {sink} writes {table} to no topic", f"name another sink, or {_AS_FILE}")
    if request.topic is not None:
        if request.topic not in topics:
            raise SinkRefused(f"sink {sink} does not write {table} to {request.topic}", f"it has {', '.join(topics)}")
        topics = [request.topic]
    if options.format == "flat" and not request.mixed:
        _require_own_topics(sink, options, request, topics)
    return topics


def _require_own_topics(sink: str, options: KafkaSinkOptions, request: KeysRequest, topics: Sequence[str]) -> None:
    """Records of this format do not say of which source they are."""
    router = options.make_router()
    for source in options.sources:
        others = {route.topic for route in router.find_routes(source, request.schema, request.table)}
        if source != request.source and not others.isdisjoint(topics):
            raise SinkRefused(
                f"sink {sink} writes {request.schema}.{request.table} of source {source} to the same topic, and its "
                "records do not say of which source they are",
                "give the keys as a file, or say --mixed if that source has no such table",
            )


def _read(
    options: KafkaSinkOptions, topics: Sequence[str], request: KeysRequest, log: logging.Logger
) -> Iterator[bytes]:
    keys = _KeyTable()
    judge = _Judge(options.format, request)
    try:
        with _Reading(options, topics, log) as reading:
            for messages in reading.read_messages():
                keys.note(judge.judge_records(messages))
                reading.tell(request.on_wait)
        yield from keys.list_alive()
    finally:
        keys.close()


class _Judge:
    """Says of records which keys they are about; SinkRefused where a topic has events of something else, too: a key of
    another table would be looked up in this one, and be gone there.
    """

    def __init__(self, name: str, request: KeysRequest) -> None:
        self._format = name
        self._request = request
        self._origin: tuple[str, ...] | None = None

    def judge_records(self, messages: Sequence[Message]) -> Iterator[tuple[bytes, Place, bool]]:
        """Key, where, and whether its row is there behind it. Records without a key say nothing."""
        for message in messages:
            key = message.key()
            if key is None:
                continue
            key = key if isinstance(key, bytes) else key.encode()
            place = str(message.topic()), int(message.partition() or 0)
            try:
                row = read_record(self._format, message.value(), cast("Headers", message.headers() or ()))
            except NotReadableError as error:
                raise SinkRefused(
                    f"{_describe(message)} is no event of the format {self._format}: {error}",
                    _AS_FILE,
                ) from None
            if row is None:
                yield key, place, False  # a tombstone
            elif row.is_row:
                self._require_own(row, message)
                yield key, place, not row.is_delete

    def _require_own(self, row: RecordRow, message: Message) -> None:
        request = self._request
        if (row.schema, row.table) != (request.schema, request.table):
            raise SinkRefused(
                f"{_describe(message)} is of {row.schema}.{row.table}: the topic has events of several tables",
                _AS_FILE,
            )
        if request.mixed or row.origin == self._origin:
            return
        if self._origin is not None or (row.source is not None and row.source != request.source):
            raise SinkRefused(
                f"{_describe(message)} is of another host, database or source than "
                f"{'those before it' if self._origin is not None else request.source}",
                "give the keys as a file; or say --mixed if all of them were once names of this source",
            )
        self._origin = row.origin


def _describe(message: Message) -> str:
    return f"the record at offset {message.offset()} of {message.topic()}, partition {message.partition()},"


class _KeyTable:
    """Keys by partition: a topic that was given more partitions has a key in two, and nothing says which was last."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)  # a file that goes with the connection
        self._database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;"
            "CREATE TABLE alive (key BLOB, topic TEXT, part INTEGER, PRIMARY KEY (key, topic, part)) WITHOUT ROWID"
        )

    def note(self, rows: Iterator[tuple[bytes, Place, bool]]) -> None:
        """What records say, in the order of each partition."""
        last = {(key, *place): is_there for key, place, is_there in rows}
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT OR IGNORE INTO alive VALUES (?, ?, ?)", [key for key, is_there in last.items() if is_there]
        )
        self._database.executemany(
            "DELETE FROM alive WHERE key = ? AND topic = ? AND part = ?",
            [key for key, is_there in last.items() if not is_there],
        )
        self._database.execute("COMMIT")

    def list_alive(self) -> Iterator[bytes]:
        """Each once."""
        for (key,) in self._database.execute("SELECT DISTINCT key FROM alive ORDER BY key"):
            yield key

    def close(self) -> None:
        self._database.close()


class _Reading:
    """Reads partitions from their beginnings to the ends that they have when it begins."""

    def __init__(self, options: KafkaSinkOptions, topics: Sequence[str], log: logging.Logger) -> None:
        self._options = options
        self._topics = topics
        self._log = log
        self._ends: dict[Place, int] = {}
        self._read = 0
        self._tell_at = time.monotonic() + _TELL_SECONDS

    def __enter__(self) -> Self:
        self._consumer = Consumer(self._options.make_consumer_properties(), logger=self._log)
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read_messages(self) -> Iterator[Sequence[Message]]:
        """Blocks of records. SinkUnavailable."""
        try:
            self._assign()
            heard_at = time.monotonic()
            while self._ends:
                first = self._consumer.poll(_KEYS_POLL_SECONDS)
                found = [] if first is None else [first, *self._consumer.consume(_RECORDS_AT_ONCE, 0)]
                if found:
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at > _SILENT_SECONDS:
                    raise SinkUnavailable(
                        f"{','.join(self._options.hosts)} gave no record for {_SILENT_SECONDS:g} s",
                        "look at the brokers",
                    )
                records = [message for message in found if self._is_record(message)]
                self._read += len(records)
                yield records
        except KafkaException as error:
            raise SinkUnavailable(
                f"no answer from {','.join(self._options.hosts)}: {error.args[0].str()}", "look at the brokers"
            ) from None

    def tell(self, on_wait: Callable[[str], None]) -> None:
        """How far it is, now and then."""
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + _TELL_SECONDS
            on_wait(f"reads {', '.join(self._topics)}: {self._read:,} records")

    def _assign(self) -> None:
        timeout = self._options.timeout * self._options.max_attempts
        for topic in self._topics:
            found = self._consumer.list_topics(topic, timeout=timeout).topics[topic]
            if found.error is not None:
                raise SinkRefused(f"topic {topic}: {found.error.str()}", f"name another topic, or {_AS_FILE}")
            for number in found.partitions:
                low, high = self._find_bounds(TopicPartition(topic, number), timeout)
                if high > low:
                    self._ends[topic, number] = high
        self._consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in self._ends])

    def _find_bounds(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        """A partition that has just got another leader is asked for again."""
        deadline = time.monotonic() + _LEADER_SECONDS
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(partition, timeout=timeout)
            except KafkaException as error:
                if error.args[0].code() not in _MOVING or time.monotonic() > deadline:
                    raise
                time.sleep(_LEADER_PAUSE_SECONDS)
            else:
                return int(low), int(high)

    def _is_record(self, message: Message) -> bool:
        """Whether it is one; of errors those that say that a partition ends. What is behind the ends counts, too."""
        place = str(message.topic()), int(message.partition() or 0)
        error = message.error()
        if error is not None:
            if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                return False  # the client asks for the coordinator of a group that nobody joins; it reads all the same
            if error.code() != KafkaError._PARTITION_EOF:
                raise SinkUnavailable(f"topic {place[0]}: {error.str()}", "look at the brokers")
            self._ends.pop(place, None)
            return False
        if int(message.offset() or 0) + 1 >= self._ends.get(place, 1 << 62):
            self._ends.pop(place, None)
        return True
