"""When a source is asked for its next batch: while the sinks are at work, or when they have all that it gave."""

from __future__ import annotations

from math import inf

from psql_streamer.batching import WORK_AHEAD_BYTES
from psql_streamer.model import Batch


class ReadingAhead:
    """What the batches that a source gave say of the next one.

    While the stream is slow, its rows wait in the source, where they become one batch, and not as one behind another: a
    batch costs a sink the same few milliseconds whether it has one row or a hundred. While it is fast, the next batch
    is made when the sinks may soon have nothing to do.

    Rows of a snapshot come in turn with those of the stream, if there are any. They were there before, so they are
    made while the sinks write the stream's. The stream is read when they are written, with all that came meanwhile.
    """

    def __init__(self) -> None:
        self._was_snapshot = False
        self._is_snapshot = False
        self._bytes = 0
        self._stream_bytes = 0
        self._given_at = 0.0
        self._taken_seconds = inf

    def is_on_for(self, handles: bool) -> bool:
        """Whether the next batch is made while a sink is at work.

        handles: it has handlers. They work while it writes, so that in turn with a snapshot nothing waits for both.
        """
        if self._was_snapshot and not self._is_snapshot:
            return True
        in_turn = self._is_snapshot and not self._was_snapshot
        if in_turn and not handles:
            return self._stream_bytes >= WORK_AHEAD_BYTES
        return self._bytes >= WORK_AHEAD_BYTES

    def count_ahead(self, least_interval: float) -> int:
        """How many batches a sink may have when the next one of a slow stream is asked for.

        least_interval: of the source. Where a sink takes a batch in less time, it is idle again when the next one
        comes, and nobody has to wake the source up for it.
        """
        in_turn = self._is_snapshot or self._was_snapshot
        return int(self._taken_seconds < least_interval and not in_turn)

    def note_taken(self, now: float) -> None:
        """A sink has the last batch."""
        self._taken_seconds = now - self._given_at

    def note(self, batch: Batch, now: float) -> None:
        """A batch that the source gave. One without events goes to no sink, and says nothing."""
        if batch.idle:
            return
        self._given_at = now
        self._was_snapshot, self._is_snapshot = self._is_snapshot, bool(batch.transactions.snapshots)
        self._bytes = batch.nbytes - batch.overhead
        if not self._is_snapshot:
            self._stream_bytes = self._bytes
