"""A member of a consumer group: it holds records until somebody takes them. It gives a partition up when what was taken
of it is durable.

One thread speaks with the client. It polls, also while nobody takes anything, so that the group does not give the
member up (max.poll.interval.ms). The client calls the functions of a rebalance from within a poll, in that thread.

Offsets are committed for records that every sink has. A commit carries a mark in its metadata. Where an operator has
set the group's offset there is none, and that offset is followed, also backwards.

Where the sink's transactions commit the offsets, the member commits none: a commit of its own that arrives late would
set the group's offset back. Brokers take a transaction's offsets only from the generation of the group that they know.
The member notes its own within each rebalance, and so knows that it had the partitions all the time since the records
were taken. Records on their way of partitions that others got must never be written: the service stops then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from psql_streamer.batching import LINGER_BYTES, LINGER_SECONDS, READ_AHEAD_BYTES
from psql_streamer.errors import PositionRefused, SourceError, SourceRefused, SourceUnavailable
from psql_streamer.event_reader import parsed
from psql_streamer.interfaces import ConsumedOffsets
from sources.kafka.beginnings import Beginnings, gap_remedy
from sources.kafka.committing import Committing
from sources.kafka.errors import NOT_SHOWN, REFUSED, source_error
from sources.kafka.held import HeldRecords
from sources.kafka.membership import Membership, find_membership
from sources.kafka.offsets import Offsets, Partition, list_partitions, to_position
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.progress import Progress
from sources.kafka.subscribed import PATTERN_MARK, topic_ids
from sources.kafka.taken import Taken
from sources.kafka.unreadable_headers import replace_unreadable

_POLL_SECONDS = 0.1
"""How long one poll waits; commits are due at least as often."""

_PAUSE_AFTER_SECONDS = 3.0
"""The time that the member does without polling while it holds as much as it may. A pause costs fetching anew what the
client has fetched already."""

_IDS_SECONDS = 5.0
"""Between two looks at whether a topic was made anew."""

_OPEN_TRANSACTION_SECONDS = 120.0
"""The time for which the group's offsets are waited for in a rebalance; less than max.poll.interval.ms."""

_LAG_SECONDS = 1.0
"""Between two looks at how far the partitions' ends are away."""

_HOW_LONG = " (after "
"""What follows in the client's errors differs from attempt to attempt. An error is logged once until it has passed."""

_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
_ENDS = {*REFUSED, *_MISSING}
"""Errors of a topic behind which there is nothing to wait for in this session."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupState:
    """partitions: that the member has, each with the records between it and the partition's end (-1: not known yet).
    problem: what is wrong at the moment, or what a rebalance waits for. rebalances: that gave or took partitions.
    headerless: records whose headers cannot be read.
    """

    partitions: Mapping[Partition, int]
    problem: str
    rebalances: int
    headerless: int


class GroupMember:
    """name: of the source. reached: offsets where the source has got. in_flight: whether records in front of them may
    be on their way to sinks, from the session before. durable: offsets in front of which every sink has all. ids: of
    topics that were read, to which those of others are added. committing: who commits.
    """

    def __init__(
        self,
        name: str,
        options: KafkaSourceOptions,
        reached: Offsets,
        in_flight: bool,
        durable: Offsets,
        ids: dict[str, str],
        committing: Committing,
    ) -> None:
        self._name = name
        self._options = options
        self._lock = threading.Condition()
        self._held = HeldRecords(options.batch_size, options.batch_bytes)
        self._progress = Progress(durable)
        self._committing = committing
        self._beginnings = Beginnings(options, reached, in_flight, committing)
        self._begun: dict[Partition, int] = {}
        self._membership: Membership | None = None
        self._member = ""  # the last id that the group gave
        self._undelivered: SourceRefused | None = None
        self._ids = ids
        self._admin = AdminClient(options.client_properties())
        self._paused = False
        self._error: SourceError | None = None
        self._problem = ""
        self._troubles: set[str] = set()
        self._rebalances = self._headerless = 0
        self._fast = False
        self._stopping = threading.Event()
        self._consumer: Consumer | None = None
        self._thread = threading.Thread(target=self._run, name=f"{name}.consumer", daemon=True)

    def start(self) -> None:
        """Ask the brokers for the topics, and join. SourceUnavailable when they do not answer."""
        options = self._options
        settings = {**options.consumer_properties(), "error_cb": self._note_trouble, "on_commit": self._note_commit}
        self._consumer = Consumer(settings, logger=log)
        try:
            found = self._consumer.list_topics(timeout=options.timeout).topics
        except KafkaException as error:
            self._consumer.poll(0)  # librdkafka gives the reason to a callback, and a timeout to whoever waits
            raise self.error or source_error(f"no answer from {','.join(options.hosts)}", error.args[0]) from None
        missing = [topic for topic in options.topics if not topic.startswith(PATTERN_MARK) and topic not in found]
        if missing:
            raise SourceUnavailable(f"topics do not exist, or may not be described: {', '.join(missing)}", NOT_SHOWN)
        self._consumer.subscribe(
            list(options.topics), on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
        )
        self._thread.start()

    def take(self, timeout: float) -> Taken | None:
        """Records in the order of their partitions, about a batch of them; None when nothing came for so long.

        Raises what went wrong in the thread.
        """
        with self._lock:
            if not self._lock.wait_for(lambda: self._held or self._error, timeout):
                return None
            if self._fast:
                linger = min(LINGER_SECONDS, self._options.batch_flush_interval)
                self._lock.wait_for(lambda: self._held.size >= LINGER_BYTES or self._error, linger)
            if self._error is not None:
                raise self._error
            taken = self._held.take()
            self._progress.give(taken.offsets)
            self._fast = taken.size >= READ_AHEAD_BYTES
            self._lock.notify_all()
        return taken

    def take_begun(self) -> Offsets:
        """Where partitions begin that were given to the member since the last call, as far as that is known."""
        with self._lock:
            begun, self._begun = self._begun, {}
            return begun

    def offer(self, offsets: Offsets) -> ConsumedOffsets:
        """See Source.consumed_offsets. From any thread."""
        with self._lock:
            if self._undelivered is not None:
                raise self._undelivered
            if isinstance(self._error, SourceRefused):
                raise self._error
            if self._membership is None:
                raise SourceUnavailable(f"group {self._options.group_id} has not taken this instance in (again)")
            offered, mark = self._progress.offer(offsets), self._committing.mark
            return ConsumedOffsets(
                self._membership.metadata,
                [(topic, number, offset, mark) for (topic, number), offset in offered.items()],
            )

    def settle(self, offsets: Offsets) -> None:
        """Wait until every sink has what was taken; no more of it is on its way than what lies in front of these.

        SourceRefused when that takes longer than drainTimeout, or when others got what is on its way. SourceUnavailable
        when it is interrupted.
        """
        with self._lock:
            self._progress.give_back_behind(offsets)
            self._lock.wait_for(
                lambda: self._stopping.is_set() or not self._progress.unconfirmed(), self._options.drain_timeout
            )
            if self._stopping.is_set():
                raise SourceUnavailable("interrupted while it waited for the sinks")
            if self._undelivered is None and (left := self._progress.unconfirmed()):
                self._undelivered = SourceRefused(
                    f"group {self._options.group_id} has to be joined anew, and not every sink has what was read of "
                    f"{list_partitions(left)} after {self._options.drain_timeout:g} s",
                    "start this instance again, when the sinks are well",
                )
            if self._undelivered is not None:
                raise self._undelivered

    def confirm(self, offsets: Offsets) -> None:
        """Every sink has what lies in front of these. From any thread; does not wait."""
        with self._lock:
            self._progress.confirm(offsets)
            self._lock.notify_all()

    def give_back(self, taken: Taken, offsets: Offsets) -> None:
        """Of what was taken, only what lies in front of these is on its way to the sinks."""
        with self._lock:
            self._progress.give_back(taken.offsets, offsets)

    @property
    def error(self) -> SourceError | None:
        """What ended the thread, if something did. From any thread."""
        with self._lock:
            return self._error

    @property
    def is_drained(self) -> bool:
        """Whether every sink has all that was taken."""
        with self._lock:
            return not self._progress.unconfirmed()

    def fail(self, error: SourceError) -> None:
        """Make `take` raise this. From any thread."""
        with self._lock:
            self._error = self._error or error
            self._lock.notify_all()

    def interrupt(self, error: SourceError) -> None:
        """The same, and wait for nothing any more. From any thread."""
        self._stopping.set()
        self.fail(error)

    def close(self, seconds: float) -> None:
        """Commit what is confirmed, and leave the group; with an instanceId it keeps its partitions for a while."""
        self._stopping.set()
        with self._lock:
            self._lock.notify_all()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        elif self._consumer is not None:
            self._consumer.close()

    @property
    def state(self) -> GroupState:
        """How it is doing. From any thread."""
        with self._lock:
            problem = self._problem if self._error is None else str(self._error)
            return GroupState(dict(self._progress.lags), problem, self._rebalances, self._headerless)

    # In the thread of the client.

    def _run(self) -> None:
        consumer = self._client
        try:
            while not self._stopping.is_set() and self._error is None:
                self._commit(consumer)
                self._look_at_lag(consumer)
                if self._has_room(consumer):
                    self._poll(consumer)
        except KafkaException as error:
            self.fail(source_error(f"group {self._options.group_id}", error.args[0]))
        except SourceError as error:
            self.fail(error)
        except Exception as error:  # a thread that ends without a word would be a silent source
            log.exception("source.%s: the consumer's thread ended", self._name)
            self.fail(SourceUnavailable(f"the consumer's thread ended: {type(error).__name__}"))
        finally:
            if self._committing.by_sink and isinstance(self.error, SourceUnavailable):
                self._stopping.wait()  # what is on its way can be committed for as long as the client is a member
            self._leave(consumer)

    @property
    def _client(self) -> Consumer:
        assert self._consumer is not None  # noqa: S101 - start made it
        return self._consumer

    def _poll(self, consumer: Consumer) -> None:
        first = consumer.poll(_POLL_SECONDS)
        if first is None:
            return
        # Records come out of compressed batches, of which the client's own limits count the compressed bytes.
        most = max(1, min(self._options.batch_size, self._options.batch_bytes // self._held.size_of_record))
        self._hold([first, *consumer.consume(most, 0)])

    def _hold(self, messages: Sequence[Message]) -> None:
        """Records of partitions that were given up in the same poll belong to others by now."""
        good = self._read_headers(cast("parsed.Message", one) for one in messages if not self._is_error(one))
        if not good:
            return
        records = Taken.of(good)
        with self._lock:
            self._held.put(records.without(records.offsets.keys() - self._progress.lags.keys()))
            self._lock.notify_all()

    def _read_headers(self, messages: Iterable[parsed.Message]) -> list[parsed.Message]:
        """The records, without headers those whose headers cannot be read."""
        found, bare = replace_unreadable(messages)
        if bare:
            what = "source.%s: the headers of %d records are left out, because names of them are not UTF-8; first: %s"
            log.warning(what, self._name, len(bare), f"{bare[0].topic()}[{bare[0].partition()}]@{bare[0].offset()}")
            with self._lock:
                self._headerless += len(bare)
        return found

    def _is_error(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise PositionRefused(
                f"{message.topic()}[{message.partition()}]: {error.str()}", gap_remedy(self._options.group_id)
            )
        if error.code() in _MISSING and (message.topic() or "").startswith(PATTERN_MARK):
            log.info("source.%s: no topic matches %s yet", self._name, message.topic())
            return True
        if error.code() in _ENDS:
            where = f"topic {message.topic()}" if message.topic() else f"group {self._options.group_id}"
            raise source_error(where, error)
        log.warning("source.%s: %s", self._name, error.str())
        return True

    def _has_room(self, consumer: Consumer) -> bool:
        """Wait until there is. A member that waits long must poll all the same, with its partitions paused."""
        most = 2 * self._options.batch_bytes

        def has_room() -> bool:
            return self._held.size < most or self._stopping.is_set() or self._error is not None

        with self._lock:
            if self._lock.wait_for(has_room, _POLL_SECONDS):
                return not self._stopping.is_set()
            self._full_since = self._full_since or time.monotonic()
            if time.monotonic() - self._full_since < _PAUSE_AFTER_SECONDS:
                return False
        self._paused = True
        consumer.pause(consumer.assignment())
        try:
            while not has_room():
                self._commit(consumer)
                self._look_at_lag(consumer)
                if (message := consumer.poll(_POLL_SECONDS)) is not None:
                    self._hold([message])
        finally:
            self._full_since, self._paused = 0.0, False
            consumer.resume(consumer.assignment())
        return True

    _full_since = 0.0

    def _commit(self, consumer: Consumer, wait: bool = False) -> None:
        if self._committing.by_sink or (not wait and time.monotonic() < self._commit_at):
            return
        with self._lock:
            due = self._progress.take_due()
        if not due:
            return
        mark = self._committing.mark
        offsets = [TopicPartition(topic, number, offset, mark) for (topic, number), offset in due.items()]
        if wait:
            consumer.commit(offsets=offsets, asynchronous=False)
        else:
            consumer.commit(offsets=offsets, asynchronous=True)

    def _note_commit(self, error: KafkaError | None, offsets: Sequence[TopicPartition]) -> None:
        """A commit that failed is made again a second later."""
        if error is None:
            return
        log.warning("source.%s: offsets were not committed: %s", self._name, error.str())
        with self._lock:
            self._commit_at = time.monotonic() + _LAG_SECONDS
            self._progress.send_again(Partition(one.topic, one.partition) for one in offsets)

    _commit_at = 0.0

    def _note_trouble(self, error: KafkaError) -> None:
        if error.code() in REFUSED:
            self.fail(source_error(f"group {self._options.group_id}", error))
        with self._lock:
            self._problem = error.str()
        what, _, _ = error.str().partition(_HOW_LONG)
        if what not in self._troubles:
            self._troubles.add(what)
            log.warning("source.%s: %s", self._name, error.str())

    _look_at = 0.0

    def _look_at_lag(self, consumer: Consumer) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LAG_SECONDS
        if now >= self._look_at_ids:
            self._look_at_ids = now + _IDS_SECONDS
            self._require_same_topics({partition.topic for partition in self._progress.lags})
        for partition in list(self._progress.lags):
            _, end = consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
            with self._lock:
                self._progress.note_end(partition, end)
        self._look_for_brokers(consumer)

    _look_at_ids = 0.0

    def _require_same_topics(self, topics: set[str]) -> None:
        """A topic that was deleted and made again has other records at its offsets. Who is not answered goes on."""
        try:
            found = topic_ids(self._admin, topics, self._options.timeout)
        except SourceUnavailable:
            return
        for topic, one in found.items():
            if self._ids.setdefault(topic, one) != one:
                raise PositionRefused(
                    f"topic {topic} was deleted and made again: its offsets are others",
                    f"stop every instance, delete the offsets of group {self._options.group_id} for it, and run "
                    "psql-streamer position forget",
                )

    def _look_for_brokers(self, consumer: Consumer) -> None:
        """Whether what was wrong with the brokers has passed."""
        if not self._problem:
            return
        try:
            consumer.list_topics(timeout=_LAG_SECONDS)
        except KafkaException:
            return
        with self._lock:
            self._problem = ""
        self._troubles.clear()
        log.info("source.%s: the brokers answer again", self._name)

    # Called by the client from within a poll.

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note_membership(consumer)
        try:
            self._require_same_topics({one.topic for one in partitions})
            if begun := self._beginnings.begin(consumer):
                consumer.commit(offsets=list(begun), asynchronous=False)
                shown = to_position({Partition(one.topic, one.partition): one.offset for one in begun})
                log.info("source.%s: the group has no offsets, startAt sets %s", self._name, shown)
            placed = self._place(consumer, partitions)
            consumer.incremental_assign(placed)
            # The client keeps the pause of a partition that was given up and comes back.
            (consumer.pause if self._paused else consumer.resume)(placed)
        except KafkaException as error:
            self.fail(source_error("partitions cannot be read", error.args[0]))
        except SourceError as error:
            self.fail(error)

    def _place(self, consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Where each partition is read from."""
        placed = []
        for committed in self._find_committed(consumer, partitions):
            partition = Partition(committed.topic, committed.partition)
            start, why = self._beginnings.find(consumer, partition, committed)
            log.info("source.%s: reads %s from %s, %s", self._name, partition, _show(start), why)
            with self._lock:
                self._progress.begin(partition, committed.offset, start, self._beginnings.in_flight)
                if start >= 0:
                    self._begun[partition] = start
            placed.append(TopicPartition(*partition, start))
        with self._lock:
            self._rebalances += 1
        return placed

    def _find_committed(self, consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The group's offsets. Brokers give none that an open transaction may change, for as long as it is open."""
        if not self._committing.by_sink:
            return consumer.committed(partitions, timeout=self._options.timeout)
        deadline, waits = time.monotonic() + _OPEN_TRANSACTION_SECONDS, ""
        while True:
            try:
                found = consumer.committed(partitions, timeout=self._options.timeout)
            except KafkaException as error:
                late = time.monotonic() > deadline or self._stopping.is_set() or self._error is not None
                if error.args[0].code() != KafkaError._TIMED_OUT or late:
                    raise
                waits = self._note_wait(partitions)
            else:
                with self._lock:
                    if self._problem == waits:
                        self._problem = ""
                return found

    def _note_wait(self, partitions: list[TopicPartition]) -> str:
        """What /status says then."""
        shown = list_partitions(Partition(one.topic, one.partition) for one in partitions)
        problem = (
            f"waits for the group's offsets of {shown}: an instance that had them may have left a transaction open, "
            "which it ends when it is started again, and brokers after its transaction.timeout.ms"
        )
        if problem != self._problem:
            log.warning("source.%s: %s", self._name, problem)
        with self._lock:
            self._problem = problem
        return problem

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Others get these partitions: they must find committed what the sinks have by then."""
        given_up = {Partition(one.topic, one.partition) for one in partitions}
        self._note_membership(consumer)
        self._forget(given_up)
        if not self._stopping.is_set() and self._error is None:
            self._drain(given_up)
        try:
            self._commit(consumer, wait=True)
        except KafkaException as error:
            log.warning("source.%s: offsets were not committed: %s", self._name, error.args[0].str())
        self._drop(given_up)

    def _lose(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Others have them already: what was taken of these and is not committed is read again there."""
        lost = {Partition(one.topic, one.partition) for one in partitions}
        log.warning("source.%s: lost %s: the group went on without this instance", self._name, list_partitions(lost))
        self._forget(lost)
        with self._lock:
            self._membership = None
        self._drop(lost)

    def _note_membership(self, consumer: Consumer) -> None:
        """Called within a rebalance, in front of what it gives and takes."""
        if not self._committing.by_sink:
            return
        found = find_membership(consumer)
        with self._lock:
            self._membership = found
            if found is not None:
                if self._member not in ("", found.member):
                    self._stop_if_undelivered(self._progress.lags)
                self._member = found.member

    def _stop_if_undelivered(self, partitions: Iterable[Partition]) -> None:
        """Others have these partitions now, or soon. Its caller has the lock."""
        if waiting := self._progress.unconfirmed(partitions):
            self._undelivered = self._undelivered or _undelivered(waiting)
            self._error = self._error or self._undelivered
            self._lock.notify_all()

    def _forget(self, partitions: set[Partition]) -> None:
        """Drop the records of these that nobody has taken."""
        with self._lock:
            self._held.forget(partitions)

    def _drain(self, partitions: set[Partition]) -> None:
        deadline = time.monotonic() + self._options.drain_timeout
        with self._lock:
            while (
                (waiting := self._progress.unconfirmed(partitions))
                and not self._stopping.is_set()
                and self._error is None
            ):
                self._problem = f"a rebalance waits until every sink has the records of {list_partitions(waiting)}"
                self._lock.wait(min(1.0, max(0.0, deadline - time.monotonic())))
                if time.monotonic() > deadline:
                    self._stop_if_undelivered(waiting)
            self._problem = ""

    def _drop(self, partitions: set[Partition]) -> None:
        with self._lock:
            if not self._stopping.is_set():
                self._stop_if_undelivered(partitions)
            self._progress.drop(partitions)
            self._rebalances += 1
        log.info("source.%s: gave up %s", self._name, list_partitions(partitions))

    def _leave(self, consumer: Consumer) -> None:
        try:
            self._commit(consumer, wait=True)
        except KafkaException as error:
            log.warning("source.%s: offsets were not committed: %s", self._name, error.args[0].str())
        consumer.close()


def _undelivered(partitions: Iterable[Partition]) -> SourceRefused:
    """Batches that are on their way must not be written any more: behind them another instance writes newer values."""
    return SourceRefused(
        f"{list_partitions(partitions)} went to another instance with records that not every sink has, and which that "
        "instance reads again",
        "start this one again, when the sinks are well",
    )


def _show(offset: int) -> str:
    return f"offset {offset}" if offset >= 0 else "its oldest record"
