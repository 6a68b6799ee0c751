"""What reads the frames of a schema registry, for sources that have one: others do not load its modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sources.kafka.options import KafkaSourceOptions

if TYPE_CHECKING:
    from sources.kafka.framed import FramedRecords


def make_framed_records(name: str, options: KafkaSourceOptions) -> FramedRecords | None:
    """None without the block `registry`. name: of the source."""
    if options.registry is None:
        return None
    from sources.kafka.framed import FramedRecords

    return FramedRecords(name, options.registry)
