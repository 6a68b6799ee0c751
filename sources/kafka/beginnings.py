"""Where the partitions that a member is given are read from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from psql_streamer.errors import PositionRefused
from sources.kafka.committing import Committing, add_topic_id, split_topic_id
from sources.kafka.ends import Ends, find_ends, find_known_ends
from sources.kafka.offsets import Offsets, Partition, TopicIds
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.same_topics import make_made_anew_error
from sources.kafka.subscribed import list_wanted_partitions


@dataclass(frozen=True, slots=True)
class Beginning:
    """offset: as the client is given it, OFFSET_BEGINNING among them. first: there is no record in front of it that is
    still to be read. why: whose offset it is. on_its_way: records in front of this may be on their way to sinks, since
    the session before; -1: none are.
    """

    offset: int
    first: int
    why: str
    on_its_way: int = -1


class Beginnings:
    """reached: offsets where this source has got. left_in: the generation of the group that the session before was in;
    None for the first session of this process. there: topics that existed when the source first looked; startAt is
    about them. admin: lists topics and ends; see rebalancing.py for why. ids: of topics, as far as they are known.

    Behind a session that ended, records may be on their way to sinks. Reading goes on behind them if the group is in
    the same generation, as it is for a member with an instanceId that comes back in time: nobody else had the
    partition. Else somebody may have begun to repeat these records, and may be gone again without a commit: the last
    value of a key would stay an old one if the rest was not repeated, too. So the group's offset counts then.
    """

    def __init__(
        self,
        name: str,
        options: KafkaSourceOptions,
        reached: Offsets,
        left_in: int | None,
        committing: Committing,
        there: Collection[str],
        admin: AdminClient,
        ids: TopicIds,
    ) -> None:
        self._name = name
        self._left_in = left_in
        self._committing = committing
        self._options = options
        self._reached = dict(reached)
        self._there = there
        self._admin = admin
        self._ids = ids

    def begin(self, consumer: Consumer) -> Sequence[TopicPartition]:
        """Where startAt wants the partitions of all topics when the group reads the first time, to be committed.

        Those of other members as well: a partition, or a topic, that has no offset later is new, and read from its
        beginning. So are topics that were made since the source first looked, and those that a startAt of offsets does
        not name. None for "earliest", which is the same for both, and where a position was stored.
        """
        options = self._options
        if options.start_at == "earliest" or self._reached:
            return ()
        found = self._admin.list_topics(timeout=options.timeout).topics
        every = list_wanted_partitions(options.topics, found)
        committed = consumer.committed([TopicPartition(*one) for one in every], timeout=options.timeout)
        if any(one.offset >= 0 for one in committed):
            return ()
        if isinstance(options.start_at, Mapping):
            begun = self._resolve_start_offsets(options.start_at, every)
        else:
            begun = self._find_start_offsets(consumer, options.start_at, every)
        return self._select_not_begun(consumer, begun)

    def _select_not_begun(self, consumer: Consumer, begun: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """Those that have no offset yet: another member may have begun meanwhile, and have got on."""
        asked = [TopicPartition(one.topic, one.partition) for one in begun]
        there = consumer.committed(asked, timeout=self._options.timeout)
        got_on = {(one.topic, one.partition) for one in there if one.offset >= 0}
        return [one for one in begun if (one.topic, one.partition) not in got_on]

    def _resolve_start_offsets(self, start_at: Offsets, every: Collection[Partition]) -> Sequence[TopicPartition]:
        """The offsets that startAt names. PositionRefused for one that cannot be read from."""
        ends = find_ends(self._admin, start_at.keys() & set(every), self._options.timeout)
        for partition, offset in start_at.items():
            if problem := find_start_problem(partition, offset, ends.get(partition)):
                raise PositionRefused(problem, CORRECT_START)
        return [self._mark_offset(partition, offset) for partition, offset in start_at.items()]

    def _find_start_offsets(
        self, consumer: Consumer, start_at: str | datetime, every: Collection[Partition]
    ) -> Sequence[TopicPartition]:
        """The end of each partition, or its first record that is not older than a time."""
        ends = find_ends(self._admin, every, self._options.timeout, self._options.isolation_level)
        begun = {one: high if one.topic in self._there else low for one, (low, high) in ends.items()}
        if isinstance(start_at, datetime):
            moment = int(start_at.timestamp() * 1000)
            sought = [TopicPartition(*one, moment) for one in every if one.topic in self._there]
            found = consumer.offsets_for_times(sought, timeout=self._options.timeout)
            begun |= {Partition(one.topic, one.partition): int(one.offset) for one in found if one.offset >= 0}
        return [self._mark_offset(partition, offset) for partition, offset in begun.items()]

    def _mark_offset(self, partition: Partition, offset: int) -> TopicPartition:
        """The offset as it is committed."""
        return TopicPartition(*partition, offset, add_topic_id(self._committing.mark, partition.topic, self._ids))

    def find_ends(self, partitions: Collection[Partition]) -> Ends:
        """Of all these at once, as `find` has them: one partition after another takes seconds for hundreds. Those whose
        leader does not answer are left out: it must not keep the others from being read.

        An operator's tools tell the end behind open transactions, so an offset of the group may be behind their first
        record. The client may not know partitions yet that were added (topic.metadata.refresh.interval.ms).
        """
        return find_known_ends(self._admin, partitions, self._options.timeout)

    def find(self, committed: TopicPartition, ends: tuple[int, int] | None, generation: int | None) -> Beginning:
        """Where reading begins. committed: the group's offset. ends: the first offset of the partition, which may go
        before the first fetch, and the one behind its last record; None: its leader does not answer. generation: of the
        group. PositionRefused: the offset is not there, or is one of a topic that was deleted.
        """
        partition = Partition(committed.topic, committed.partition)
        options = self._options
        _, topic_id = split_topic_id(committed.metadata)
        if committed.offset >= 0 and topic_id and topic_id != self._ids.get(partition.topic, topic_id):
            raise make_made_anew_error(partition.topic, options.group_id, self._name)
        reached = self._reached.get(partition, -1)
        is_first = self._left_in is None
        kept_place = bool(options.instance_id) and not is_first and generation == self._left_in
        on_its_way = -1 if is_first else reached
        older = self._committing.is_older(committed.metadata, kept_place)
        if committed.offset >= 0 and (not older or committed.offset >= reached):
            offset, why = committed.offset, "which is the group's"
        elif reached >= 0 and (is_first or kept_place or self._committing.writer):
            offset, why = reached, "where this source has got"
        else:
            low = 0 if ends is None else ends[0]
            why = "because the group has no offset of it"
            return Beginning(OFFSET_BEGINNING if low or ends is None else 0, low, why, on_its_way)
        if ends is not None:  # else the client finds a gap with its first fetch
            require_no_gap(partition, offset, ends, options.group_id)
        return Beginning(offset, offset, why, on_its_way)


CORRECT_START = "correct startAt"


def find_start_problem(partition: Partition, offset: int, ends: tuple[int, int] | None) -> str:
    """Why an offset that startAt names cannot be read from; empty if it can.

    ends: the first offset of the partition, and the one behind its last record; None: there is no such partition.
    """
    if ends is None:
        return f"startAt names {partition}, which does not exist"
    low, high = ends
    if low <= offset <= high:
        return ""
    records = f"whose records are {low} to {high - 1}" if low < high else f"which has none before {high}"
    return f"startAt names offset {offset} of {partition}, {records}"


def require_no_gap(partition: Partition, offset: int, ends: tuple[int, int], group: str) -> None:
    """Raise PositionRefused if nothing can be read from an offset on. ends: as find_start_problem has them."""
    low, high = ends
    if offset < low:
        what = f"{partition}: the records {offset} to {low - 1} are not on the brokers any more"
        raise PositionRefused(what, describe_gap_remedy(group))
    if offset > high:
        what = f"{partition} ends at {high}, before offset {offset}, which was read already"
        raise PositionRefused(what, "was the topic made anew? " + describe_gap_remedy(group))


def describe_gap_remedy(group: str) -> str:
    """What to do about records that are gone."""
    return (
        f"to go on without them, stop every instance and set the offsets of group {group} "
        "(kafka-consumer-groups.sh --reset-offsets)"
    )
