"""Snapshots beside a stream: what they have in common, whatever log the stream is read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from psql_streamer.model import Position
from psql_streamer.snapshot.delivered import Given
from psql_streamer.snapshots import PostedKeys, SnapshotProgress, SnapshotRequest
from sources.snapshot.news import News
from sources.snapshot.options import SnapshotOptions
from sources.snapshot.own import OwnSnapshots
from sources.snapshot.schedule import Schedule
from sources.snapshot.threads import ReaderThreads
from sources.snapshot.waker import Waker

_STATE = "snapshots"
"""The name of the state in positions, beside those of the source's own."""

R = TypeVar("R", bound=ReaderThreads[Any, Any])
G = TypeVar("G", bound=Given)


class SnapshotsBesideStream(Generic[R, G]):
    """One thread, the source's, calls `stop` and whatever gives batches; the others may be called from any thread.

    A source makes `_readers` with the schedule. given: notes what the stream gives. look_last: see Schedule.
    """

    _readers: R

    def __init__(self, name: str, options: SnapshotOptions, given: G, *, look_last: bool = False) -> None:
        self._waker = Waker()
        self._news = News(name)
        self._schedule = Schedule(options.chunk_bytes, self._waker.wake, self._news, given, look_last=look_last)
        self._own = OwnSnapshots(options)
        self._stream_is_next = True
        self._given_behind: tuple[int, int] | None = None

    def fileno(self) -> int:
        """Readable when rows may be there to be given."""
        return self._waker.fileno()

    @property
    def stream_is_next(self) -> bool:
        """Whether the stream goes first: batches of both take turns while both have some."""
        return self._stream_is_next

    def prepare_stop(self) -> None:
        """Ask nothing more of the server, and wait for nothing."""
        self._readers.prepare_stop()

    def stop(self) -> None:
        """Leave the server."""
        self._readers.stop()
        self._news.tell()
        self._waker.close()

    def interrupt(self) -> None:
        """Give up what a reader waits for."""
        self._readers.interrupt()

    def note_stored(self, position: Position) -> None:
        """The position has been stored."""
        self._schedule.note_durable(read_state(position))

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """See Source.set_snapshots."""
        self._own.note_requests(requests)
        self._schedule.set_requests(requests)

    def take_keys(self, name: str, posted: PostedKeys) -> None:
        """See Source.take_keys."""
        self._schedule.take_keys(name, posted)

    def describe(self) -> str:
        """How far they are, as part of a status; empty for nothing."""
        return self._schedule.describe()

    def show(self) -> Sequence[SnapshotProgress]:
        """See Source.list_snapshots."""
        return self._schedule.show()

    def _take_turn(self) -> None:
        """The stream is next, whether there are rows to be given or not."""
        self._stream_is_next = True
        self._waker.rest()
        self._news.tell()

    def _number(self, place: int, rows: int, least: int = 0) -> int:
        """The seq of the first of so many rows. Those that are given at one place of the stream are numbered on."""
        behind = self._given_behind
        first = behind[1] if behind is not None and behind[0] == place else least
        self._given_behind = place, first + rows
        return first

    def _add_snapshot_state(self, position: Position) -> Position:
        """The same with how far the snapshots are."""
        return Position({**position.data, _STATE: self._schedule.state()}, position.shown)


def read_state(position: Position | None) -> Sequence[Mapping[str, Any]]:
    """How far snapshots were at a position."""
    found: Sequence[Mapping[str, Any]] = () if position is None else position.data.get(_STATE, ())
    return found
