"""What is said of records that are no events."""

from __future__ import annotations

from psql_streamer.errors import SourceRefused
from psql_streamer.event_reader.reader import Refused
from psql_streamer.registry.frames import find_frame
from sources.kafka.decoded import Decoded


def as_it_came(refused: Refused, source: str, has_registry: bool) -> Refused:
    """With the record as the brokers gave it, and the reason of whoever could not decode it. source: its name."""
    message = refused.message
    if isinstance(message, Decoded):
        return Refused(message.original, message.reason or refused.reason)
    frame = None if has_registry else find_frame(message.value())
    if frame is None:
        return refused
    why = f"it begins as a record of a schema registry does (schema {frame.schema}): set [source.{source}.registry]"
    return Refused(message, why)


def make_refusal(refused: Refused, group: str) -> SourceRefused:
    """The error that stops a source without deadLetterTopic."""
    message = refused.message
    return SourceRefused(
        f"the record {message.topic()}[{message.partition()}]@{message.offset()} is no event: {refused.reason}",
        f"set deadLetterTopic, or set the offset of group {group} behind it",
    )
