"""What a member with an instanceId does when it is back in its group.

Brokers give it the partitions that it had, at once and without a rebalance (KIP-345), whatever has changed while it was
away: `topics` in its configuration, partitions that were added, topics that a pattern matches. So it compares these,
and if they are others, it asks the group to share the partitions anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription  # type: ignore[attr-defined]  # exported

from sources.kafka.coordinator import describe_group
from sources.kafka.offsets import Partition, list_partitions, to_partitions
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.subscribed import list_wanted_partitions

log = logging.getLogger(__name__)


class Takeover:
    """name: of the source. admin: asks the brokers; see rebalancing.py for why. is_due: whether the group is about to
    share the partitions anew. For the member's thread.
    """

    def __init__(self, name: str, options: KafkaSourceOptions, admin: AdminClient) -> None:
        self._name = name
        self._options = options
        self._admin = admin
        self._is_done = not options.instance_id
        self.is_due = False

    def find_unwanted(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those of the first partitions that a member is given which are not in `topics`: they are not to be read.
        Notes whether the group has to share all anew. The client may keep the partitions that it has meanwhile, and is
        not given them again. Raises KafkaException.
        """
        if self._is_done:
            return []
        group = self._describe()
        wanted = set(
            list_wanted_partitions(self._options.topics, self._admin.list_topics(timeout=self._options.timeout).topics)
        )
        unwanted = to_partitions(partitions) - wanted
        is_stable = group.state == ConsumerGroupState.STABLE
        if not is_stable and not unwanted:
            return []  # it is sharing anew, and gives partitions again
        # While it is sharing anew, a member keeps what it says that it has, also of topics that nobody asks for.
        self._is_done = True
        unread = wanted - _collect_assigned(group) if is_stable else set[Partition]()
        self.is_due = bool(unread or unwanted)
        if self.is_due:
            found = [f"{list_partitions(unread)} have no reader"] if unread else []
            found += [f"{list_partitions(unwanted)} are not in topics"] if unwanted else []
            log.info("source.%s: asks its group to share the partitions anew: %s", self._name, ", ".join(found))
        return [one for one in partitions if Partition(one.topic, one.partition) in unwanted]

    def look(self, consumer: Consumer, subscribe: Callable[[Consumer], None]) -> None:
        """Between two polls: have the group share the partitions anew, if that is due. What the client says when it
        joins again is not what it has said before, and so brokers do not take it for the same again.

        The client knows the topics of minutes ago (topic.metadata.refresh.interval.ms), so it asks for them first.
        """
        if self.is_due:
            self.is_due = False
            consumer.list_topics(timeout=self._options.timeout)
            consumer.unsubscribe()
            subscribe(consumer)

    def _describe(self) -> ConsumerGroupDescription:
        return describe_group(self._admin, self._options.group_id, self._options.timeout)


def _collect_assigned(group: ConsumerGroupDescription) -> set[Partition]:
    """What the group's members have."""
    return to_partitions(one for member in group.members for one in member.assignment.topic_partitions)
