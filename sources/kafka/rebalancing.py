"""What a member does when its group gives it partitions or takes them away. The client calls these functions from
within a poll, in the member's thread; the rebalance goes on when they return.

They must not call the consumer's `list_topics`: it forgets that a poll is under way, and the next callback of that poll
aborts the process (confluent-kafka 2.16).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from psql_streamer.errors import SourceError
from sources.kafka.beginnings import Beginnings
from sources.kafka.commits import Commits
from sources.kafka.committing import Committing
from sources.kafka.errors import make_source_error
from sources.kafka.member_state import MemberState
from sources.kafka.membership import find_member, find_membership
from sources.kafka.offsets import Partition, list_partitions, to_partitions, to_position
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.pausing import Pausing
from sources.kafka.same_topics import SameTopics
from sources.kafka.subscribed import select_subscribed
from sources.kafka.takeover import Takeover

_OPEN_TRANSACTION_SECONDS = 120.0
"""The time for which the group's offsets are waited for in a rebalance; less than max.poll.interval.ms."""

_PART_OF_SESSION = 1 / 3
"""Of session.timeout.ms, for which brokers wait for a member that does not send heartbeats: it sends none while it has
no generation.
"""

log = logging.getLogger(__name__)


class Rebalancing:
    """name: of the source. beginnings: where partitions are read from. generation: the last of the group that the
    member has seen; None: none.
    """

    def __init__(
        self,
        name: str,
        options: KafkaSourceOptions,
        state: MemberState,
        beginnings: Beginnings,
        committing: Committing,
        commits: Commits,
        topics: SameTopics,
        pausing: Pausing,
        takeover: Takeover,
    ) -> None:
        self._name = name
        self._options = options
        self._state = state
        self._beginnings = beginnings
        self._committing = committing
        self._commits = commits
        self._topics = topics
        self._pausing = pausing
        self._takeover = takeover
        self.generation: int | None = None
        self._member = ""  # its last id
        self._unread: set[Partition] = set()  # that the client has, and that are not to be read

    def assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The client's on_assign: read these partitions, too."""
        self._note_membership(consumer)
        try:
            unwanted = self._takeover.find_unwanted(partitions)
            wanted = [one for one in partitions if one not in unwanted] + self._take_up_kept(consumer)
            self._topics.require({one.topic for one in wanted})
            self._begin_group(consumer)
            placed, unread = self._place(consumer, wanted), self._place_unread(consumer, unwanted)
            consumer.incremental_assign(placed + unread)
            self._unread |= to_partitions(unread)
            if self._takeover.is_due:  # what came now would only be waited for, or be read again
                consumer.pause(placed + unread)
            else:
                self._pausing.apply(consumer, [TopicPartition(*one) for one in self._state.partitions])
            self._stop_if_others_have_what_is_left()
        except KafkaException as error:
            self._state.fail(make_source_error("partitions cannot be read", error.args[0]))
        except SourceError as error:
            self._state.fail(error)

    def revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The client's on_revoke. Others get these partitions: they must find committed what the sinks have by then."""
        given_up = to_partitions(partitions)
        self._note_membership(consumer)
        self._unread -= given_up
        self.let_go_of_deleted(given_up)
        self._state.forget(given_up)
        if not self._state.has_ended:
            self._state.drain(given_up)
        self._commits.finish(consumer)
        self._drop(given_up)

    def lose(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The client's on_lost. Others have these partitions already: what was taken of them and is not committed is
        read again there.

        Not so if topics were deleted, or if brokers have only refused the generation of a commit, which they answered
        late: nobody else gets a partition then before this member has joined again.
        """
        lost = to_partitions(partitions)
        self._unread -= lost
        self._state.forget(lost)
        most = self._options.session_timeout * _PART_OF_SESSION
        has_its_id = find_member(consumer) == self._member != ""
        deleted = self._find_deleted(lost, most) if has_its_id else set()
        self._let_go(deleted)
        if taken := lost - deleted:
            what = "source.%s: lost %s: the group went on without this instance"
            log.warning(what, self._name, list_partitions(taken))
            if has_its_id and not self._committing.by_sink:
                self._state.drain(taken, most)
        self._state.note_membership(None if taken else find_membership(consumer))
        self._drop(lost)

    def let_go_of_deleted(self, partitions: Iterable[Partition], timeout: float = math.inf) -> None:
        """Do not wait for what is on its way of topics that were deleted. timeout: what brokers get to answer."""
        if waiting := self._state.find_unconfirmed(partitions):
            self._let_go(self._find_deleted(waiting, timeout))

    def _find_deleted(self, partitions: Collection[Partition], timeout: float) -> set[Partition]:
        """Those whose topics do not exist."""
        existing = self._topics.find_existing({one.topic for one in partitions}, timeout)
        return {one for one in partitions if one.topic not in existing}

    def _let_go(self, deleted: set[Partition]) -> None:
        """Nobody else gets partitions of topics that were deleted, so what is on its way of them may be written at any
        time. Brokers take no offset of them, and refuse a transaction that has one.
        """
        if deleted:
            topics = ", ".join(sorted({one.topic for one in deleted}))
            log.warning("source.%s: topics that it was reading were deleted: %s", self._name, topics)
            self._state.let_go(deleted)

    def _place_unread(self, consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Where partitions are kept, paused, until the client gives them back: they are not to be read. Somewhere, as
        the client looks for an offset where none is given, and ends with an error if the group has none; at the group's
        offset, because an answer that is late may count for the next time that they are given, which must not begin
        behind it.
        """
        found = self._find_committed(consumer, partitions) if partitions else []
        return [TopicPartition(one.topic, one.partition, max(one.offset, OFFSET_BEGINNING)) for one in found]

    def _take_up_kept(self, consumer: Consumer) -> list[TopicPartition]:
        """Partitions that were not to be read, as brokers did not show them, and that the client has kept while its
        group shared anew: it is not given them again. They are to be placed now, as others that are given to it.
        """
        names = select_subscribed(self._options.topics, {one.topic for one in self._unread})
        kept = {one for one in self._unread if one.topic in names}
        self._unread -= kept
        found = [TopicPartition(*one) for one in sorted(kept)]
        if found:
            consumer.incremental_unassign(found)
        return found

    def _stop_if_others_have_what_is_left(self) -> None:
        """Whoever joins anew and is not given what it had, is behind others, who have read from the group's offsets.
        Nobody has partitions of topics that were deleted.
        """
        if left := self._state.find_left():
            existing = self._topics.find_existing({one.topic for one in left})
            if others := [one for one in left if one.topic in existing]:
                self._state.end_undelivered(others)

    def _note_membership(self, consumer: Consumer) -> None:
        found = find_membership(consumer)
        if found is not None:
            self.generation = found.generation
            self._member = found.member
        if self._committing.by_sink:
            self._state.note_membership(found)

    def _begin_group(self, consumer: Consumer) -> None:
        """Commit where startAt wants a group to begin that has no offsets. Raises KafkaException."""
        if begun := self._beginnings.begin(consumer):
            answered = consumer.commit(offsets=list(begun), asynchronous=False)
            if refused := [one.error for one in answered if one.error is not None]:
                raise KafkaException(refused[0])  # else it would be read from its oldest record
            shown = to_position({Partition(one.topic, one.partition): one.offset for one in begun})
            log.info("source.%s: the group has no offsets, startAt sets %s", self._name, shown)

    def _place(self, consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Where each partition is read from."""
        placed = []
        ends = self._beginnings.find_ends(to_partitions(partitions))
        for committed in self._find_committed(consumer, partitions):
            partition = Partition(committed.topic, committed.partition)
            found = self._beginnings.find(committed, ends.get(partition), self.generation)
            log.info("source.%s: reads %s from %s, %s", self._name, partition, _show(found.offset), found.why)
            self._state.begin(partition, committed.offset, found.offset, found.on_its_way, found.first)
            placed.append(TopicPartition(*partition, found.offset))
        self._state.count_rebalance()
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
                late = time.monotonic() > deadline or self._state.has_ended
                if error.args[0].code() != KafkaError._TIMED_OUT or late:
                    raise
                waits = self._note_wait(partitions)
            else:
                if self._state.problem == waits:
                    self._state.set_problem("")
                return found

    def _note_wait(self, partitions: list[TopicPartition]) -> str:
        """What /status says then."""
        problem = (
            f"waits for the group's offsets of {list_partitions(to_partitions(partitions))}: an instance that had them "
            "may have left a transaction open, which it ends when it is started again, and brokers after its "
            "transaction.timeout.ms"
        )
        if problem != self._state.problem:
            log.warning("source.%s: %s", self._name, problem)
        self._state.set_problem(problem)
        return problem

    def _drop(self, partitions: set[Partition]) -> None:
        self._state.drop(partitions)
        log.info("source.%s: gave up %s", self._name, list_partitions(partitions))


def _show(offset: int) -> str:
    return f"offset {offset}" if offset >= 0 else "its oldest record"
