"""The `kafka` source: topics that other instances write, as micro-batches."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from confluent_kafka import IsolationLevel, KafkaException

from psql_streamer.errors import SourceError, SourceRefused, SourceUnavailable
from psql_streamer.event_reader.parsed import Message
from psql_streamer.event_reader.reader import EventReader, Refused
from psql_streamer.interfaces import (
    CaptureRequest,
    ConsumedOffsets,
    Finding,
    Source,
    Status,
    TopicsRead,
    TransactionWriter,
)
from psql_streamer.model import Batch, Position, Relation, Stats
from psql_streamer.options import SourceOptions
from sinks.kafka.findings import show_names
from sources.kafka.capturing import KafkaCapture
from sources.kafka.check import check_source, find_topics_made_anew, make_administrator
from sources.kafka.committing import Committing
from sources.kafka.dead_letters import DeadLetters
from sources.kafka.errors import make_source_error
from sources.kafka.framing import make_framed_records
from sources.kafka.group import GroupMember
from sources.kafka.look_back import LookBack
from sources.kafka.member_state import MemberSummary
from sources.kafka.offsets import (
    Partition,
    TopicIds,
    advance,
    compute_total_lag,
    has_reached,
    list_partitions,
    move_position,
    to_offsets,
    to_position,
    to_topic_ids,
)
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.refusals import as_it_came, make_refusal
from sources.kafka.subscribed import find_topic_ids, select_subscribed
from sources.kafka.taken import Taken

if TYPE_CHECKING:
    from sources.kafka.framed import FramedRecords

log = logging.getLogger(__name__)

_DRAIN_LOOK_SECONDS = 0.05

_LEAVE_SECONDS = 5.0
"""The time that the client gets to commit and to leave the group."""


class KafkaSource(Source):
    """A member of a consumer group. Its position is the offset of each partition; the group's offsets follow it."""

    Options: ClassVar[type[SourceOptions]] = KafkaSourceOptions
    also_called = ("redpanda", "confluent", "debezium", "msk")
    first_start = "at the offsets of its group, and of partitions that have none at startAt"
    no_snapshots: ClassVar[str] = (
        "to read its topics again, stop all instances and set the group's offsets back (kafka-consumer-groups.sh "
        "--reset-offsets --to-earliest); or ask the instance that writes them for a snapshot"
    )

    def __init__(self, name: str, options: SourceOptions) -> None:
        super().__init__(name, options)
        assert isinstance(options, KafkaSourceOptions)  # noqa: S101 - it is of type Options
        self._settings = options
        self._reader = EventReader(name)
        self._told: dict[str, Relation] = {}
        self._durable: dict[Partition, int] = {}
        self._ids: dict[str, str] = {}  # of the topics that its offsets are of
        self._found: TopicIds = {}
        self._there: frozenset[str] | None = None  # topics that existed when it first looked
        self._cluster = ""
        self._writer: TransactionWriter | None = None
        self._offsets: dict[Partition, int] = {}
        self._position: Position | None = None  # of these offsets, as far as it was made
        self._group: GroupMember | None = None
        self._letters = DeadLetters(name, options.dead_letter_topic, options.make_client_properties())
        self._before = LookBack(options)
        self._framed = make_framed_records(name, options)
        self._refused: Sequence[Refused] = ()
        self._ready: deque[Batch] = deque()
        self._refusal: SourceRefused | None = None
        self._interrupted = False
        self._left_in: int | None = None
        self._starts = self._records = self._dead_lettered = self._headers_left_out = 0
        self._tombstones = self._tombstone_deletes = self._unknown_tombstones = 0

    def check(self) -> Iterable[Finding]:
        return check_source(self._settings)

    def check_position(self, position: Position | None) -> Iterable[Finding]:
        return find_topics_made_anew(self.name, self._settings, to_topic_ids(position))

    def read_stream_identity(self) -> Mapping[str, str]:
        """The cluster, and of each topic the id that it got when it was made: a topic made anew has other offsets."""
        options = self._settings
        administrator = make_administrator(options)
        try:
            metadata = administrator.list_topics()
            ids = find_topic_ids(
                administrator.client, select_subscribed(options.topics, metadata.topics), options.timeout
            )
        except KafkaException as error:
            raise make_source_error(f"no answer from {','.join(options.hosts)}", error.args[0]) from None
        self._cluster, self._found = str(metadata.cluster_id), ids
        if self._there is None:
            self._there = frozenset(ids)
        return {
            "cluster": self._cluster,
            "group": options.group_id,
            **{f"topic {topic}": one for topic, one in ids.items()},
        }

    def describe_topics_read(self) -> TopicsRead:
        return TopicsRead(self._cluster, self._settings.topics, self._found)

    def remember(self, relations: Iterable[Relation]) -> None:
        self._told |= {relation.id: relation for relation in relations}

    def has_reached(self, position: Position, mark: Position) -> bool:
        return has_reached(to_offsets(position), to_offsets(mark))

    def serve_transactions(self, writer: TransactionWriter) -> None:
        self._writer = writer

    @property
    def keeps_place_in_transactions(self) -> bool:
        return self._writer is not None and self._writer.cluster == self._cluster

    def start(self, position: Position | None) -> None:
        committing = self._choose_committing()
        if committing.by_sink and self._group is not None:
            self._group.state.settle(to_offsets(position))
        group = self._group
        self.stop()
        if group is not None and group.generation is not None:
            self._left_in = group.generation
        # Shapes of batches that were not given are told of again.
        self._reader = EventReader(self.name)
        self._reader.remember(self._told.values())
        self._offsets, self._position = to_offsets(position), None
        # Where earlier versions stored a position without ids, its stream has been compared with what was found.
        for topic in {topic for topic, _ in self._offsets} & self._found.keys():
            self._ids.setdefault(topic, self._found[topic])
        self._ids |= to_topic_ids(position)
        self._ready.clear()
        self._refused, self._refusal, self._interrupted = (), None, False
        self._group = GroupMember(
            self.name,
            self._settings,
            self._offsets,
            None if committing.by_sink else self._left_in,
            self._durable,
            self._ids,
            self._there or (),
            committing,
            {} if group is None else group.state.leave(self._offsets),
        )
        self._group.start()
        self._starts += 1

    def _choose_committing(self) -> Committing:
        if not self.keeps_place_in_transactions:
            return Committing(writer=self._writer.name if self._writer is not None else "")
        if self._settings.isolation_level == IsolationLevel.READ_UNCOMMITTED:
            raise SourceRefused(
                "offsets of transactions that are open are seen with isolation.level = read_uncommitted",
                "take it out of the source's [kafka] table, or exactlyOnce out of its sink's section",
            )
        return Committing(by_sink=True)

    def read(self, timeout: float) -> Batch | None:
        if self._interrupted:
            raise SourceUnavailable("interrupted")
        if self._refused and not self._put_aside(timeout):
            return None
        if self._ready:
            return self._give()
        assert self._group is not None  # noqa: S101 - start was called
        if self._refusal is not None:
            self._refuse(self._group, self._refusal, timeout)
            return None
        taken = self._take(self._group, timeout)
        if taken is None or not taken.offsets:
            return None
        self._read_taken(self._group, taken)
        if self._refused and not self._put_aside(timeout):
            return None
        return self._give()

    def _take(self, group: GroupMember, timeout: float) -> Taken | None:
        """See MemberState.take; decoded."""
        if self._framed is None:
            return group.state.take(timeout)
        if self._framed.waits(timeout):
            return None
        taken = group.state.take(timeout)
        if taken is None:
            self._framed.wait_for_none()
        elif taken.messages:
            return self._decode(self._framed, group, taken)
        return taken

    def _refuse(self, group: GroupMember, refusal: SourceRefused, timeout: float) -> None:
        """What is in front of the record is delivered, and committed, before the source stops."""
        if group.state.is_drained:
            raise refusal
        time.sleep(min(timeout, _DRAIN_LOOK_SECONDS))

    def _decode(self, framed: FramedRecords, group: GroupMember, taken: Taken) -> Taken:
        """What can be read of these, as far as its JSON is about a batch. The others go back: while the registry is
        away, another instance may get them.
        """
        decoded = framed.decode(taken.messages, self._settings.batch_bytes)
        first, rest = Taken.collect(taken.messages[: len(decoded)]), taken.messages[len(decoded) :]
        if rest:
            self._note_begun(group)
            group.state.put_back(Taken.collect(rest), {**self._offsets, **first.offsets})
            self._refusal = framed.refusal
        return Taken(decoded, first.size, first.offsets)

    def _find_records_before(self, message: Message) -> Sequence[Message]:
        found = self._before.find_records_before(message)
        return found if self._framed is None else self._framed.decode_all(found)

    def _read_taken(self, group: GroupMember, taken: Taken) -> None:
        self._note_begun(group)
        received_at, before, messages = time.monotonic(), self._offsets, taken.messages
        at = self._position or to_position(before, self._ids)

        def behind(count: int) -> Position:
            moved = taken.offsets if count == len(messages) else advance({}, messages[:count])
            self._offsets = {**before, **moved}
            self._position = move_position(at, moved, self._offsets, self._ids)
            return self._position

        stops = not self._settings.dead_letter_topic
        read = self._reader.read(messages, at, behind, received_at, stops, self._find_records_before)
        refused = [as_it_came(one, self.name, self._framed is not None) for one in read.refused]
        refused += self._leave_out(read.unknown_tombstones, stops)
        self._records += read.records
        self._tombstones += read.tombstones
        self._tombstone_deletes += read.tombstone_deletes
        self._headers_left_out += read.headers_left_out
        self._ready.extend(read.batches)
        if refused and stops:
            group.state.give_back(taken, self._offsets)
            self._refusal = make_refusal(refused[0], self._settings.group_id)
        elif refused:
            refused = sorted(
                refused, key=lambda one: (one.message.topic(), one.message.partition(), one.message.offset())
            )
            self._refused = refused
            self._letters.add(refused)

    def _note_begun(self, group: GroupMember) -> None:
        """Where others have read on, or an operator has set the group's offset, positions do not keep what was before,
        and nothing is known of the last record of a key.
        """
        begun = group.state.take_begun()
        self._reader.forget_partitions(begun)
        if known := {one: offset for one, offset in begun.items() if offset >= 0}:
            self._offsets, self._position = {**self._offsets, **known}, None

    def _leave_out(self, unknown: Sequence[Message], stops: bool) -> Sequence[Refused]:
        """Tombstones of which nobody knows what they delete: the dead letters that they are, if there is a topic."""
        if not unknown:
            return ()
        self._unknown_tombstones += len(unknown)
        first = f"{unknown[0].topic()}[{unknown[0].partition()}]@{unknown[0].offset()}"
        where = "left out" if stops else f"put aside to {self._settings.dead_letter_topic}"
        what = "source.%s: %d records without a value are %s: no record in front of them says of which table "
        log.warning(what + "they are; first: %s", self.name, len(unknown), where, first)
        why = "it has no value, and no record in front of it says of which table it is"
        return () if stops else [as_it_came(Refused(one, why), self.name, has_registry=True) for one in unknown]

    def _give(self) -> Batch:
        batch = self._ready.popleft()
        self._told |= {change.relation.id: change.relation for change in batch.schema_changes}
        return batch

    def _put_aside(self, timeout: float) -> bool:
        """Whether the dead letters are durable. The batches that hold the place of these records wait for them."""
        if not self._letters.settle(timeout):
            return False
        count, self._refused = len(self._refused), ()
        self._dead_lettered += count
        topic = self._settings.dead_letter_topic
        log.warning("source.%s: %d records that are no events were written to %s", self.name, count, topic)
        return True

    @property
    def failure(self) -> SourceError | None:
        return None if self._group is None else self._group.state.error

    def confirm(self, position: Position) -> None:
        self._durable = to_offsets(position)
        if self._group is not None:
            self._group.state.confirm(self._durable)

    def find_consumed_offsets(self, position: Position) -> ConsumedOffsets | None:
        if not self._choose_committing().by_sink:
            return None
        group = self._group
        if group is None:
            raise SourceUnavailable(f"source {self.name} is not a member of its group now")
        return group.state.offer(to_offsets(position))

    def make_capture(self, request: CaptureRequest) -> Source:
        return KafkaCapture(self.name, self._settings, request)

    def interrupt(self) -> None:
        self._interrupted = True
        if self._group is not None:
            self._group.interrupt(SourceUnavailable("interrupted while it waited for records"))

    def stop(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.close(_LEAVE_SECONDS)
        self._letters.close()
        self._before.close()

    def status(self) -> Status:
        group = self._group
        if group is None:
            return Status(False, "not started")
        if self._letters.problem:
            return Status(False, self._letters.problem)
        state = group.state.summarize()
        if state.problem:
            return Status(False, state.problem)
        if not group.is_started:
            return Status(False, "not started")
        if self._framed is not None and self._framed.problem:
            return Status(False, f"records wait: {self._framed.problem}")
        if self._refusal is not None:
            return Status(False, f"waits until every sink has what is in front of it: {self._refusal.what}")
        if state.missing:
            return Status(
                False,
                f"waits for topics that do not exist: {show_names(state.missing)}; {self._describe_reading(state)}",
            )
        return Status(True, self._describe_reading(state))

    def _describe_reading(self, state: MemberSummary) -> str:
        """What it reads, and how far it is."""
        if state.partitions:
            lag = compute_total_lag(state.partitions)
            behind = "their ends are not known yet" if lag is None else f"{lag} records behind"
            return f"reads {list_partitions(state.partitions)}, {behind}"
        if state.missing or state.unmatched:
            patterns = f": no topic matches {show_names(state.unmatched)}" if state.unmatched else ""
            return f"reads nothing yet{patterns}"
        return f"group {self._settings.group_id} has not given it a partition; others may have all"

    def stats(self) -> Stats:
        group = self._group
        state = group.state.summarize() if group is not None else None
        lags = state.partitions if state else {}
        lag = compute_total_lag(lags)
        return {
            "records": self._records,
            "tombstones": self._tombstones,
            "tombstone_deletes": self._tombstone_deletes,
            "unknown_tombstones": self._unknown_tombstones,
            "headers_left_out": self._headers_left_out + (state.headerless if state else 0),
            "dead_lettered": self._dead_lettered,
            "partitions": {str(partition): one for partition, one in lags.items() if one >= 0},
            "rebalances": state.rebalances if state else 0,
            "reconnects": max(0, self._starts - 1),
            **({} if lag is None else {"lag_records": lag}),
            **({} if self._framed is None else self._framed.stats()),
        }
