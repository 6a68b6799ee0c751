"""Members of the group that are no instances of psql-streamer: what their partitions have does not come out here."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription  # type: ignore[attr-defined]  # exported

from sources.kafka.coordinator import begin_describing, describe_group, keep_client
from sources.kafka.offsets import Partition, list_partitions, to_partitions
from sources.kafka.options import KafkaSourceOptions

FOREIGN_REMEDY = "stop that consumer, give the source a groupID of its own, or all instances one client.id"


class ForeignMembers:
    """Looks at the group now and then, and waits for no answer. admin: asks the brokers."""

    def __init__(self, options: KafkaSourceOptions, admin: AdminClient) -> None:
        self._options = options
        self._admin = admin
        self._asked: Future[ConsumerGroupDescription] | None = None
        self._found = ""

    def ask(self) -> None:
        """Ask for the group's members, unless an answer is still to come."""
        if self._asked is None:
            self._asked = begin_describing(self._admin, self._options.group_id)

    def describe(self) -> str:
        """What is to be said of them, by the last answer; empty: nothing."""
        asked = self._asked
        if asked is not None and asked.done():
            self._asked = None
            if asked.exception() is None:  # else the group's own trouble is told of where it is joined
                found = _describe(self._options, asked.result())
                self._found = f"{found}: {FOREIGN_REMEDY}" if found else ""
        return self._found

    def close(self) -> None:
        """Ask nothing any more."""
        if self._asked is not None and not self._asked.done():
            keep_client(self._admin)


def find_foreign_members(options: KafkaSourceOptions, admin: AdminClient) -> str:
    """The same of now, without the remedy; empty where there are none, or brokers do not say it."""
    try:
        found = describe_group(admin, options.group_id, options.timeout)
    except KafkaException:
        return ""
    return _describe(options, found)


def _describe(options: KafkaSourceOptions, group: ConsumerGroupDescription) -> str:
    """Instances have one client.id: psql-streamer's, or that of the source's table kafka."""
    ours = options.make_client_properties()["client.id"]
    have = {
        one.client_id: to_partitions(one.assignment.topic_partitions)
        for one in group.members
        if one.client_id != ours and one.assignment.topic_partitions
    }
    return f"group {options.group_id} gives records to others: {_list_members(have)}" if have else ""


def _list_members(have: Mapping[str, set[Partition]]) -> str:
    return ", ".join(f'client "{name}" has {list_partitions(partitions)}' for name, partitions in sorted(have.items()))
