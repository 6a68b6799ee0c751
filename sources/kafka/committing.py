"""Who commits the offsets of a group, and what the commits are marked with."""

from __future__ import annotations

from dataclasses import dataclass

from sources.kafka.offsets import TopicIds

OUR_COMMIT = "psql-streamer"
"""What the metadata of our commits begin with. Where an operator has set a group's offset there is none."""

_TOPIC_ID = " topic="
"""Stands in front of the id that a topic got when it was made, at the end of the metadata."""


def add_topic_id(mark: str, topic: str, ids: TopicIds) -> str:
    """Metadata that also say of which topic an offset is: a topic of the same name that is made later has others.

    ids: of topics, as far as they are known.
    """
    return f"{mark}{_TOPIC_ID}{ids[topic]}" if ids.get(topic) else mark


def split_topic_id(metadata: str | None) -> tuple[str, str]:
    """The mark of metadata, and the id of the topic; empty: not known."""
    mark, found, topic_id = (metadata or "").rpartition(_TOPIC_ID)
    return (mark, topic_id) if found else (metadata or "", "")


@dataclass(frozen=True, slots=True)
class Committing:
    """by_sink: with the sink's transactions, and never by the member itself. writer: the name of a sink that writes in
    transactions to another cluster; empty for any other sink.
    """

    by_sink: bool = False
    writer: str = ""

    @property
    def mark(self) -> str:
        """What the metadata of commits begin with."""
        return f"{OUR_COMMIT} {self.writer}" if self.writer else OUR_COMMIT

    def is_older(self, metadata: str | None, kept_place: bool) -> bool:
        """Whether an offset with these metadata only lags behind what this instance has read.

        kept_place: whether nobody else can have had the partition since it was read. Else the source's position counts
        for more than the group's offset where a transaction noted it, and nobody else has committed since.
        """
        mark, _ = split_topic_id(metadata)
        if kept_place:
            return mark.split(" ")[0] == OUR_COMMIT
        return bool(self.writer) and mark == self.mark
