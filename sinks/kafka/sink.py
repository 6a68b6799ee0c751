"""The Kafka sink: encodes a batch, routes it, and returns when every event is durable."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]  # exported

from psql_streamer.binary_columns import measure_bytes
from psql_streamer.errors import SinkError, SinkRefused, SinkUnavailable, StreamerError
from psql_streamer.events.records import Records
from psql_streamer.events.source_fields import choose_fields
from psql_streamer.interfaces import (
    AliveKeys,
    Finding,
    KeysRequest,
    Published,
    Severity,
    Sink,
    SinkMemory,
    Status,
    TopicsRead,
    Transaction,
    TransactionWriter,
)
from psql_streamer.model import Batch, Stats
from psql_streamer.name_counts import MOST_PREFIXES, OTHERS, NameCounts
from sinks.kafka.administrator import Administrator
from sinks.kafka.batch_writer import BatchWriter, Begun, Encoder, Unfinished
from sinks.kafka.check import KafkaCheck, make_administrator
from sinks.kafka.delivery import Delivery
from sinks.kafka.errors import make_sink_error
from sinks.kafka.options import KafkaSinkOptions
from sinks.kafka.position_topic import PositionTopic
from sinks.kafka.review import KafkaReview
from sinks.kafka.topics import Topics
from sinks.kafka.transactional_delivery import TransactionalDelivery
from sinks.kafka.transactions import Transactions
from sinks.kafka.written_topics import WrittenTopics

_MOST_NAMES = 2000
"""Tables, and columns, that are counted by themselves."""

_MOST_IDS = 10
"""Topics whose ids are compared to know whether two clusters are one. One would do, if nobody deleted it meanwhile."""

_NO_MESSAGE_TOPIC = 'messages with prefix "%s" have no topic and are skipped: see messageTopic'
_NO_LEGAL_TOPIC = 'messages with prefix "%s" are skipped: Kafka does not allow the topic that messageTopic makes of it'
_NULLED = "%s has a value that format %s cannot hold: it, or a part of it, is null"
_LEFT_BEHIND = (
    "%s: an update changed the key of a row and left this value alone, so the server did not send it, and the record "
    "under the new key lacks it: have the server send old rows whole (REPLICA IDENTITY FULL, binlog_row_image = FULL), "
    "and ask for a snapshot of the table"
)
_MANY_PREFIXES = "messages with more than %d prefixes are skipped: the others are counted as %s"


class KafkaSink(Sink):
    """Writes to Kafka; a batch is done when every record of it is acknowledged, or dead-lettered.

    encoder: makes the records; None for the one that the options describe.
    """

    Options = KafkaSinkOptions
    also_called = ("redpanda", "confluent", "kafkaconnect", "msk")

    def __init__(self, name: str, options: KafkaSinkOptions, encoder: Encoder | None = None) -> None:
        super().__init__(name, options)
        self._options = options
        self._encoder = encoder or options.make_encoder(options.timestamps)
        self._check = KafkaCheck(name, options)
        self._delivery: Delivery | None = None
        self._topics: Topics | None = None
        self._written_topics: WrittenTopics | None = None
        self._unfinished: Unfinished | None = None
        self._given: tuple[Batch, Callable[[], None]] | None = None
        self._begin_next: Callable[[], bool] | None = None
        self._transactions: Transactions | None = None
        self._memory: SinkMemory | None = None
        self._debug = options.debug
        self._log = logging.getLogger(f"psql_streamer.sink.{name}")
        self._writer = BatchWriter(options, self._encoder, self._log)
        self._state = Status(True, "not started")
        names = ("events", "bytes", "batches", "excluded", "dead_lettered", "uncompressed", "retries")
        self._counts = dict.fromkeys((*names, "transactions") if options.exactly_once else names, 0)
        self._skipped = NameCounts(_MOST_NAMES)
        self._skipped_messages = NameCounts(MOST_PREFIXES)
        self._nulled = NameCounts(_MOST_NAMES)
        self._left_behind = NameCounts(_MOST_NAMES)

    def attach(self, memory: SinkMemory) -> None:
        """See Sink.attach. It keeps the ids of topics, by their names."""
        self._memory = memory

    def attach_next(self, begin_next: Callable[[], bool]) -> None:
        """See Sink.attach_next. The next records are made while brokers acknowledge those of a batch of a backlog."""
        self._begin_next = begin_next

    def check(self) -> Iterable[Finding]:
        """Whether the brokers answer, whether the topics that the section names exist and may be written, and what the
        format says of the servers that it needs.
        """
        yield from self._check.collect_findings()
        for problem in self._options.make_format().find_problems():
            yield Finding(
                Severity.ERROR if problem.stops else Severity.WARNING, problem.what, problem.remedy, alone=True
            )

    def review(self, published: Published) -> Iterable[Finding]:
        """Which entries fit no table, and what the first row of a table would stop the sink with; behind `check`, which
        topics of tables do not exist or may not be written.
        """
        review = KafkaReview(self._options, published)
        yield from review.collect_findings()
        yield from self._check.review_topics(review.list_topics())

    def find_alive_keys(self, request: KeysRequest) -> AliveKeys:
        """Those of the table's topics."""
        from sinks.kafka.alive_keys import find_alive_keys  # with sqlite3, which few services ever need

        return find_alive_keys(self.name, self._options, request, self._log)

    def start(self) -> None:
        """Make the client and ask the brokers for their metadata: a wrong address or password shows now."""
        self.stop()
        options = self._options
        self._delivery = self._make_delivery()
        self._topics = Topics(
            self._delivery,
            host=options.hosts[0],
            timeout=options.timeout,
            interval=options.rebalance_interval,
            appear_timeout=options.delivery_timeout,
            create=options.create_topics,
            admin=self._make_admin,
        )
        try:
            self._delivery.read_metadata(None, options.timeout)
            if self._transactions is not None:
                self._transactions.begin_session()
        except SinkError as error:
            self.stop()
            self._state = Status(False, str(error))
            raise
        self._written_topics = WrittenTopics(
            self._make_admin, options.timeout, options.rebalance_interval, self._memory, self._log
        )
        self._written_topics.start()
        self._state = Status(True, "started, nothing written yet")

    def write(self, batch: Batch) -> None:
        """See Sink.write. SinkRefused for a record that Kafka rejects when there is no dead-letter topic.

        Given the same batch again after SinkUnavailable, it goes on with the records that are not acknowledged.
        """
        if self._given is None or self._given[0] is not batch:
            self._given = batch, self.begin_write(iter([batch]))
        self._given[1]()
        self._given = None

    @property
    def rows_at_once(self) -> int:
        """See Sink.rows_at_once: more than one batch has where records go to so many partitions that requests are
        small.
        """
        return self._writer.rows_at_once

    def begin_write(self, batches: Iterator[Batch]) -> Callable[[], None]:
        """See Sink.begin_write. Rows are let go of when their records are made. Raises as `write`."""
        unfinished = Unfinished(batches)
        if self._unfinished is not None:  # which waits
            self._writer.make_records_early(unfinished)
        return partial(self._write, unfinished)

    @property
    def is_transactional(self) -> bool:
        """See Sink.is_transactional: with exactlyOnce."""
        return self._options.exactly_once

    def write_transaction(self, transaction: Transaction) -> None:
        """See Sink.write_transaction. SinkRefused as for `write`, and when another instance has taken over."""
        started = time.monotonic()
        with self._note_failures():
            _, topics = self._require_started()
            if self._transactions is None:
                raise SinkRefused(f"sink {self.name} writes no transactions", "set exactlyOnce")
            finished = self._transactions.write(transaction, topics)
        self._counts["transactions"] += 1
        self._note_written(finished, started)

    def find_note(self, source: str) -> bytes | None:
        """See Sink.find_note."""
        transactions = self._transactions  # a stop may come beside it
        return None if transactions is None else transactions.find_note(source)

    def find_writer(self) -> TransactionWriter | None:
        """See Sink.find_writer. Raises as `start` does."""
        if not self._options.exactly_once:
            return None
        _, cluster = self._ask()
        return TransactionWriter(self._options.transactional_id, str(cluster.cluster_id))

    def find_circle(self, read: TopicsRead) -> str:
        """See Sink.find_circle. Raises as `start` does."""
        written = next(filter(self._options.may_write_to, read.names), "")
        if not written:
            return ""
        administrator, cluster = self._ask()
        if str(cluster.cluster_id) != read.cluster:
            return ""
        # Clusters that were set up alike may have one id. Their topics have not.
        common = sorted(read.ids.keys() & cluster.topics.keys())[:_MOST_IDS]
        ids = administrator.find_ids(common)
        return "" if any(read.ids[topic] != one for topic, one in ids.items()) else written

    def interrupt(self) -> None:
        """See Sink.interrupt."""
        self._encoder.interrupt()
        if self._delivery is not None:
            self._delivery.interrupt()

    def stop(self) -> None:
        """See Sink.stop."""
        if self._delivery is not None:
            self._delivery.close()
        if self._written_topics is not None:
            self._written_topics.stop()
        self._delivery = self._topics = self._written_topics = self._transactions = None
        self._unfinished = self._given = None
        self._encoder.stop()

    def status(self) -> Status:
        """Whether the last write worked; what the present one waits for before it writes; and what consumers lack of
        topics that were made again.
        """
        watched, state = self._written_topics, self._state  # a stop may come beside it
        losses = "" if watched is None else watched.describe_losses()
        told = (state.reason, self._encoder.describe_wait(), losses)
        return Status(state.ok, "; ".join(filter(None, told)))

    def stats(self) -> Stats:
        """events and bytes acknowledged, batches, dead_lettered, uncompressed records, retries; with exactlyOnce
        transactions and transactions_written_again; excluded and, by table, skipped: changes that have no topic, as it
        was wanted or for want of a rule; nulled: values that the format cannot hold, by column; left_behind: rows
        under a new key that lack a value, by column; request_bytes: the most that a request has, where a topic takes no
        larger ones; topics_made_again: those that were found to be others.

        Logical messages are in skipped as `message PREFIX`. All names are bounded in number: the rest is (others).
        """
        messages = {f"message {prefix}": count for prefix, count in self._skipped_messages.copy_counts().items()}
        transactions = self._transactions
        given_up = {} if transactions is None else {"transactions_written_again": transactions.given_up}
        skipped = self._skipped.copy_counts() | messages
        delivery = self._delivery
        smaller = None if delivery is None else delivery.lowered_request_bytes
        lowered = {} if smaller is None else {"request_bytes": smaller}
        watched = self._written_topics
        made_again = {"topics_made_again": 0 if watched is None else watched.made_again}
        named = {"skipped": skipped, "nulled": self._nulled.copy_counts()}
        named["left_behind"] = self._left_behind.copy_counts()
        return {**self._counts, **given_up, **lowered, **made_again, **named}

    def set_debug(self, on: bool) -> None:
        """With debug, a line per batch."""
        self._debug = on

    def _ask(self) -> tuple[Administrator, ClusterMetadata]:
        """Whoever asks the brokers, and what they show. Raises SinkError."""
        administrator = make_administrator(self._options)
        try:
            return administrator, administrator.list_topics()
        except KafkaException as error:
            raise make_sink_error(f"no answer from {','.join(self._options.hosts)}", error.args[0]) from None

    def _find_unwritable(self, topics: Sequence[str]) -> Sequence[str]:
        return make_administrator(self._options).find_unwritable(topics)

    def _make_admin(self) -> AdminClient:
        return AdminClient({**self._options.make_admin_properties()})

    def _make_delivery(self) -> Delivery:
        options, settings = self._options, self._options.make_properties()
        if not options.exactly_once:
            return Delivery(settings, options.delivery_timeout, self._log)
        delivery = TransactionalDelivery(
            settings, options.delivery_timeout, self._log, options.transactional_id, self._find_unwritable
        )
        notes = PositionTopic(options, self._log)
        self._transactions = Transactions(delivery, self._writer, notes, self._log)
        return delivery

    def _write(self, unfinished: Unfinished) -> None:
        started = time.monotonic()
        with self._note_failures():
            if self._unfinished is not unfinished:
                self._prepare(unfinished)
            self._writer.write(*self._require_started(), unfinished, self._begin_next)
        if unfinished.shipment.is_compressed is False:
            self._counts["uncompressed"] += len(unfinished.shipment.records)
        self._unfinished = None
        self._note_written(unfinished.begun, started)

    def _prepare(self, unfinished: Unfinished) -> None:
        """Make the records of batches that come for the first time."""
        if self._delivery is not None:
            self._delivery.listen() if self._unfinished is None else self._delivery.abandon()
        self._writer.make_records(unfinished)
        self._unfinished = unfinished

    def _require_started(self) -> tuple[Delivery, Topics]:
        if self._delivery is None or self._topics is None:
            raise SinkRefused("the sink is not started")
        return self._delivery, self._topics

    @contextmanager
    def _note_failures(self) -> Iterator[None]:
        """Failures show in the status. Behind one that may pass, topics are looked up anew."""
        try:
            yield
        except StreamerError as error:
            if isinstance(error, SinkUnavailable):
                self._counts["retries"] += 1
                if self._topics is not None:
                    self._topics.forget()
                if self._written_topics is not None:
                    self._written_topics.hurry()
            self._state = Status(False, str(error))
            raise

    def _note_written(self, finished: Sequence[Begun], started: float) -> None:
        """Count what is durable."""
        watched = self._written_topics
        for one in finished:
            self._count(one)
            if watched is not None and len(one.records):
                watched.look(one.records.topic_names)
        count = sum(len(one.records) for one in finished)
        if self._state.ok or count:  # a batch without records says nothing of the brokers
            last = finished[-1].batch
            how_far = "a part of what ends at" if last.continues else "up to"
            self._state = Status(True, f"wrote {how_far} {last.position}")
        if self._options.verbose:
            for one in finished:
                self._log_each(one.records)
        if self._debug:
            self._log.info("wrote %d records in %.1f ms", count, (time.monotonic() - started) * 1000)

    def _count(self, finished: Begun) -> None:
        records, dead_lettered = finished.records, finished.dead_lettered
        for aside in finished.put_aside:
            dead_lettered += len(aside)
            self._skip(aside)
        self._counts["events"] += len(records) - finished.dead_lettered
        self._counts["bytes"] += measure_bytes(records.keys) + measure_bytes(records.values)
        self._counts["batches"] += 1
        self._counts["dead_lettered"] += dead_lettered
        self._counts["excluded"] += records.excluded
        if records.skipped or records.skipped_messages:
            self._skip(records)
        self._tell_of_columns(_NULLED, self._nulled, records.nulled, self._options.format)
        self._tell_of_columns(_LEFT_BEHIND, self._left_behind, records.left_behind)

    def _tell_of_columns(self, told: str, counted: NameCounts, found: Mapping[str, int], *details: str) -> None:
        """Count what became of values, and tell it of each column once."""
        for column in counted.add(found) if found else ():
            self._log.warning(told, column or f"a column beyond the first {_MOST_NAMES}", *details)

    def _skip(self, records: Records) -> None:
        """Count what has no topic, and tell it of each table and prefix once."""
        for table in self._skipped.add(records.skipped):
            who = table or f"a table beyond the first {_MOST_NAMES}"
            self._log.warning("%s has no topic and is skipped: see tableTopicMapping", who)
        why = _NO_LEGAL_TOPIC if self._options.message_topic else _NO_MESSAGE_TOPIC
        for prefix in self._skipped_messages.add(records.skipped_messages):
            if prefix is None:
                self._log.warning(_MANY_PREFIXES, MOST_PREFIXES, OTHERS)
            else:
                self._log.warning(why, prefix)

    def _log_each(self, records: Records) -> None:
        for index in range(len(records)):
            table, topic = records.look_up_table(index), records.look_up_topic(index)
            commit = choose_fields(records.source).show_commit(int(records.commit[index]))
            self._log.info("%s, commit %s, change %d, to %s", table, commit, records.seq[index], topic)
