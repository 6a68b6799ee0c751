"""What the transactions of a source's sink note of it, beside the position store."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence

from psql_streamer.checkpoint.notes import Note, decode_note, encode_note
from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.errors import StoreError
from psql_streamer.interfaces import Sink
from psql_streamer.model import Position, Relation

log = logging.getLogger("psql_streamer.pipeline")


class SourceNotes:
    """source: its name. sinks: those that take from it; a transactional one has no other one beside it."""

    def __init__(self, source: str, store: Store, sinks: Sequence[Sink]) -> None:
        self._source = source
        self._store = store
        self._sink = next((sink for sink in sinks if sink.is_transactional), None)
        self._lineage = ""

    @property
    def are_made(self) -> bool:
        """Whether the source's sink writes transactions: what it took since a position was stored is not sent again."""
        return self._sink is not None

    def settle(self, has_reached: Callable[[Position, Position], bool], place_in_transactions: bool) -> None:
        """Store the position that was noted last, if the store has not come so far. Called before the first session.

        has_reached, place_in_transactions: Source.has_reached, Source.keeps_place_in_transactions.
        Without a transactional sink, notes that were made once mean nothing from now on.
        """
        self._lineage = self._store.read_lineage(self._source)
        if self._sink is None:
            if self._lineage:
                self._store.put_lineage(self._source, "")
            return
        self._take_over(self._sink, has_reached, place_in_transactions)
        if not self._lineage:
            self.begin_lineage()

    def begin_lineage(self) -> None:
        """Notes that were made up to now mean nothing."""
        if self._sink is not None:
            self._lineage = secrets.token_hex(8)
            self._store.put_lineage(self._source, self._lineage)

    def make(self, stored: StoredPosition, shapes: Sequence[Relation]) -> bytes:
        """What a transaction notes. shapes: of tables, that are new since the last position that was stored."""
        return encode_note(Note(self._lineage, stored, shapes))

    def _take_over(
        self, sink: Sink, has_reached: Callable[[Position, Position], bool], place_in_transactions: bool
    ) -> None:
        note = self._find(sink)
        if note is None:
            return
        stored = self._store.get(self._source)
        place, name = note.stored.position, f"source.{self._source}"
        if note.counts_for(self._lineage, stored):
            self._store.put(self._source, note.stored, note.shapes)
            log.info("%s: goes on at %s, as the last transaction of sink.%s says", name, place, sink.name)
        elif note.lineage != self._lineage and place_in_transactions:
            log.info(
                "%s: sink.%s has written its events up to %s, of which the position file knows nothing: the offsets "
                "that its transactions committed say where the source goes on",
                name,
                sink.name,
                place,
            )
        elif note.lineage != self._lineage and not _is_behind(note, stored, has_reached):
            log.warning(
                "%s: sink.%s has written its events up to %s, of which the position file knows nothing: events up to "
                "there may be repeated",
                name,
                sink.name,
                place,
            )

    def _find(self, sink: Sink) -> Note | None:
        written = sink.find_note(self._source)
        if written is None:
            return None
        try:
            return decode_note(written)
        except (ValueError, KeyError, TypeError):
            raise StoreError(
                f"what the last transaction of sink.{sink.name} noted of source {self._source} cannot be read",
                "start the version that has written it, or set another positionTopic",
            ) from None


def _is_behind(note: Note, stored: StoredPosition | None, has_reached: Callable[[Position, Position], bool]) -> bool:
    """Whether the stored position is known to be as far as the note."""
    if stored is None or stored.stream != note.stored.stream:
        return False
    return has_reached(stored.position, note.stored.position)
