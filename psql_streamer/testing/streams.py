"""What the tests of sources share: a start as the pipeline makes it, and what of batches is compared."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from functools import partial

from psql_streamer.errors import Outcome, SourceError, choose_outcome
from psql_streamer.interfaces import Source
from psql_streamer.model import Batch, Position, Relation
from psql_streamer.testing.identities import Identity, list_identities
from psql_streamer.testing.threads import PART_ANSWER_SECONDS, call_in_a_thread


def start_source(source: Source, position: Position | None) -> None:
    """The server may need a moment to see that the source before has left."""
    deadline = time.monotonic() + PART_ANSWER_SECONDS
    while True:
        try:
            source.read_stream_identity()
            call_in_a_thread(partial(source.start, position))
        except SourceError as error:
            if choose_outcome(error) is not Outcome.RETRY or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def copy_as_stored(position: Position) -> Position:
    """The position as the store gives it back."""
    return Position(json.loads(json.dumps(dict(position.data))), position.shown)


def list_all_identities(batches: Iterable[Batch]) -> list[Identity]:
    """Of all batches, in their order."""
    return [identity for batch in batches for identity in list_identities(batch)]


def list_announced(batches: Iterable[Batch]) -> list[Relation]:
    """The shapes that were announced, in their order."""
    return [change.relation for batch in batches for change in batch.schema_changes]


def list_last_shapes(batches: Iterable[Batch]) -> list[Relation]:
    """The shape that each table has behind these batches, as the store remembers it."""
    return list({relation.id: relation for relation in list_announced(batches)}.values())
