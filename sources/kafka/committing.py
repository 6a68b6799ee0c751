"""Who commits the offsets of a group, and what the commits are marked with."""

from __future__ import annotations

from dataclasses import dataclass

OUR_COMMIT = "psql-streamer"
"""What the metadata of our commits begin with. Where an operator has set a group's offset there is none."""


@dataclass(frozen=True, slots=True)
class Committing:
    """by_sink: with the sink's transactions, and never by the member itself. writer: the name of a sink that writes in
    transactions to another cluster; empty for any other sink.
    """

    by_sink: bool = False
    writer: str = ""

    @property
    def mark(self) -> str:
        """The metadata of commits."""
        return f"{OUR_COMMIT} {self.writer}" if self.writer else OUR_COMMIT

    def is_older(self, metadata: str | None, kept_place: bool) -> bool:
        """Whether an offset with these metadata only lags behind what this instance has read.

        kept_place: whether nobody else can have had the partition since it was read. Else the source's position counts
        for more than the group's offset where a transaction noted it, and nobody else has committed since.
        """
        if kept_place:
            return (metadata or "").split(" ")[0] == OUR_COMMIT
        return bool(self.writer) and metadata == self.mark
