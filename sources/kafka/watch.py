"""What a member looks at now and then while it reads."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Set as AbstractSet

from confluent_kafka import Consumer, TopicPartition

from sources.kafka.ends import AskedEnds, FoundEnds
from sources.kafka.foreign_members import ForeignMembers
from sources.kafka.member_state import MemberState
from sources.kafka.membership import find_membership
from sources.kafka.offsets import Partition, list_partitions
from sources.kafka.open_transactions import OpenTransactions
from sources.kafka.same_topics import SameTopics
from sources.kafka.standstill import Standstill
from sources.kafka.troubles import Troubles

_LAG_LOOK_SECONDS = 1.0
"""Between two looks at how far the partitions' ends are away, and at the brokers after trouble."""

_ENDS_SECONDS = 5.0
"""Between two requests for the ends. The client knows only those that came with records: none of a partition that is
paused, or whose leader is away.
"""

_ENDS_ANSWER_SECONDS = 3.0
"""The time that brokers get to answer."""

_TOPICS_SECONDS = 5.0
"""Between two looks at whether a topic was made anew."""

_MEMBERS_SECONDS = 30.0
"""Between two looks at who is in the group."""

log = logging.getLogger(__name__)


class Watch:
    """name: of the source. For the member's thread."""

    def __init__(
        self,
        name: str,
        state: MemberState,
        topics: SameTopics,
        troubles: Troubles,
        ends: AskedEnds,
        standstill: Standstill,
        foreign: ForeignMembers,
    ) -> None:
        self._name = name
        self._state = state
        self._topics = topics
        self._troubles = troubles
        self._ends = ends
        self._standstill = standstill
        self._foreign = foreign
        self._transactions = OpenTransactions()
        self._look_at = self._ask_topics_at = self._ask_ends_at = self._ask_members_at = 0.0
        self._is_full = False
        self._unanswered: set[Partition] = set()
        self._unread: set[Partition] = set()
        self._said = ""

    def note_full(self) -> None:
        """The member does not poll for records, because it holds as many as it may."""
        self._is_full = True

    def look(self, consumer: Consumer) -> None:
        """Look at what is due. PositionRefused: a topic was made anew."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LAG_LOOK_SECONDS
        partitions = self._state.partitions
        self._topics.look()
        if now >= self._ask_topics_at:
            self._ask_topics_at = now + _TOPICS_SECONDS
            self._topics.ask({partition.topic for partition in partitions})
        if now >= self._ask_members_at:
            self._ask_members_at = now + _MEMBERS_SECONDS
            self._foreign.ask()
        is_outside = not partitions and self._state.expects_partitions and find_membership(consumer) is None
        self._look_at_ends(consumer, now, partitions, is_outside)
        self._tell(
            _describe_unanswered(self._unread),
            self._standstill.look_at_group(now, is_outside),
            self._standstill.describe_partitions(),
            self._transactions.describe(),
            self._foreign.describe(),
        )

    def close(self) -> None:
        """Ask nothing any more."""
        self._foreign.close()

    def _look_at_ends(
        self, consumer: Consumer, now: float, partitions: AbstractSet[Partition], is_outside: bool
    ) -> None:
        self._unread &= partitions
        if self._is_full:
            self._is_full = False
            self._standstill.forget()
        if (found := self._ends.collect()) is not None:
            self._note_answers(now, found)
        for partition in partitions - self._unread:
            _, end = consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
            self._state.note_end(partition, end)
        if not partitions:
            self._standstill.forget()
            self._transactions.note_ends(now, {}, {}, {})
            if not is_outside:  # else its coordinator may be away, though others answer
                self._troubles.look_whether_passed(consumer)
        elif not self._ends.is_waiting and (now >= self._ask_ends_at or self._state.problem):
            self._ask_ends_at = now + _ENDS_SECONDS
            self._troubles.note_asked()
            self._ends.ask(partitions, _ENDS_ANSWER_SECONDS)

    def _note_answers(self, now: float, found: FoundEnds) -> None:
        """Single answers are missing when partitions change their leaders, so two in a row count."""
        for partition, end in found.ends.items():
            self._state.note_end(partition, end)
        unanswered = set(found.unanswered)
        self._unread, self._unanswered = self._unanswered & unanswered, unanswered
        self._state.forget_ends(self._unread)
        reached = self._state.list_reached()
        self._standstill.note_ends(now, found.ends, reached)
        self._transactions.note_ends(now, found.ends, self._state.list_ends(), reached)
        if not unanswered:
            self._troubles.note_answer()

    def _tell(self, *problems: str) -> None:
        """Figures in what is said change while it stays the same."""
        said = "; ".join(one for one in problems if one)
        if _omit_figures(said) != _omit_figures(self._said):
            if said:
                log.warning("source.%s: %s", self._name, said)
            else:
                log.info("source.%s: reads again", self._name)
        self._said = said
        self._state.set_unread_problem(said)


def _describe_unanswered(partitions: set[Partition]) -> str:
    return f"the leader of {list_partitions(partitions)} does not answer: look at the brokers" if partitions else ""


def _omit_figures(text: str) -> str:
    return re.sub(r"\b\d+ (s|records)\b", "", text)
