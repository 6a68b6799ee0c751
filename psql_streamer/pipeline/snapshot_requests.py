"""What is asked of one source's snapshots: kept on disk, passed on to the source, and held against what it says."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from psql_streamer.bounded import Call
from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredSnapshot
from psql_streamer.errors import NoSuchSnapshot, SnapshotConflict, SourceRefused, SourceUnavailable
from psql_streamer.interfaces import KnownSnapshot, Source
from psql_streamer.pipeline.snapshot_tables import find_overlap
from psql_streamer.snapshots import (
    KeyForm,
    KeysProgress,
    PostedKeys,
    SnapshotProgress,
    SnapshotRequest,
    SnapshotState,
    TableProgress,
    TableRequest,
    TableState,
    Wanted,
    describe_listing,
)

log = logging.getLogger("psql_streamer.pipeline")

MOST_ENDED = 20
"""How many snapshots of a source are remembered after their end."""

_MOST_ASKED_NAMED = 10
"""In a line of the log."""

_REVIEW_SECONDS = 20.0
"""The time that a source may take to say whether it can take a snapshot."""

_REQUEST_LOOK_SECONDS = 1.0
"""Between two looks for snapshots that have ended."""

_NOT_TAKEN_UP = {
    Wanted.RUN: (SnapshotState.WAITING, "the source has not taken it up yet"),
    Wanted.PAUSE: (SnapshotState.PAUSED, "the source has not taken it up yet"),
    Wanted.CANCEL: (SnapshotState.WAITING, "it ends as soon as the source takes notice"),
}
"""What is said of a snapshot that its source does not tell of."""


def takes_snapshots(source: type[Source]) -> bool:
    """Whether sources of this class take snapshots at all."""
    return source.review_snapshot is not Source.review_snapshot


def looks_up_keys(source: type[Source]) -> bool:
    """Whether sources of this class look up keys."""
    return source.take_keys is not Source.take_keys


def make_request(
    tables: Sequence[TableRequest] = (),
    taken: Iterable[str] = (),
    not_before: float = 0.0,
    keys: KeyForm | None = None,
) -> SnapshotRequest:
    """A request with an id that is none of those taken, as `20261122-203716-ab12`; asked now, or `not_before`."""
    used = set(taken)
    while (name := f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}") in used:
        pass
    return SnapshotRequest(name, tuple(tables), asked_at=max(time.time(), not_before), keys=keys)


class SnapshotRequests:
    """The snapshots of one source, those that it began by itself included. From any thread, but note_ended and settle.

    is_started: whether the source can be asked. stopping: ends what waits for the source.
    """

    def __init__(self, part: Source, store: Store, is_started: Callable[[], bool], stopping: threading.Event) -> None:
        self._part = part
        self._store = store
        self._is_started = is_started
        self._stopping = stopping
        self._changing = threading.Lock()
        self._stored: dict[str, StoredSnapshot] = {}  # never changed, but replaced
        self._loaded = False
        self._look_at = 0.0
        self._ended: dict[str, tuple[int, SnapshotState]] = {}

    @property
    def are_taken(self) -> bool:
        """Whether the source takes snapshots at all."""
        return takes_snapshots(type(self._part))

    @property
    def complete(self) -> bool:
        """Whether all are known: before its start a source does not tell of those that it began by itself."""
        return self._loaded and self._is_started()

    def load(self) -> None:
        """Read what was asked before this process; the store must be open."""
        with self._changing:
            self._stored = {stored.request.id: stored for stored in self._store.read_snapshots(self._part.name)}
            self._loaded = True

    def pass_on(self) -> None:
        """Tell the source what is asked of it; before every start of it."""
        with self._changing:
            self._tell_source()

    def list_known(self) -> list[KnownSnapshot]:
        """All of them, in the order in which they began or will."""
        stored = self._stored
        found = [self._merge_stored(progress, stored.get(progress.id)) for progress in self._part.list_snapshots()]
        told = {snapshot.progress.id for snapshot in found}
        return found + [self._make_not_taken_up(one) for one in stored.values() if one.request.id not in told]

    def find(self, name: str) -> KnownSnapshot:
        """The snapshot of this id; NoSuchSnapshot when there is none."""
        for snapshot in self.list_known():
            if snapshot.progress.id == name:
                return snapshot
        raise NoSuchSnapshot(f"source {self._part.name} has no snapshot {name}", describe_listing())

    def ask(self, tables: Sequence[TableRequest], keys: KeyForm | None = None) -> KnownSnapshot:
        """Ask for a snapshot; on return the request is on disk, and the source knows of it.

        tables: empty for all. keys: as SnapshotRequest has it. Raises what Source.review_snapshot does,
        SnapshotConflict, SourceUnavailable, StoreError.
        """
        self._require_started()
        if keys is not None and self.are_taken and not looks_up_keys(type(self._part)):
            raise SourceRefused(
                f"source {self._part.name} looks up no keys", self._part.no_keys or "use another source"
            )
        self._review(tables, keys)
        with self._changing:
            self._require_free(tables, keys is not None)
            last = max((stored.request.asked_at for stored in self._stored.values()), default=0.0)
            taken = [*self._stored, *(progress.id for progress in self._part.list_snapshots())]
            # Two of the same instant keep their order.
            request = make_request(tables, taken, not_before=last + 1e-6, keys=keys)
            self._remember(StoredSnapshot(request))
        names = _name_tables(tables) if keys is None else f"keys of {_name_tables(tables)}"
        log.info("source.%s: snapshot %s was asked for: %s", self._part.name, request.id, names)
        return self.find(request.id)

    def post_keys(self, name: str, posted: PostedKeys) -> KnownSnapshot:
        """See Source.take_keys. Nothing is stored: whoever posts keys goes on where the source says."""
        self._require_started()
        self.find(name)
        self._part.take_keys(name, posted)
        return self.find(name)

    def want(self, name: str, wanted: Wanted) -> KnownSnapshot:
        """Let a snapshot run, pause or end. What is so already stays so; SnapshotConflict when it cannot be done."""
        with self._changing:
            snapshot = self.find(name)
            if _is_so(snapshot, wanted):
                return snapshot
            _require_possible(snapshot)
            stored = self._stored.get(name) or StoredSnapshot(_make_request(snapshot.progress))
            self._remember(replace(stored, request=replace(stored.request, wanted=wanted)))
        log.info("source.%s: snapshot %s: %s was asked for", self._part.name, name, wanted.value)
        return self.find(name)

    def note_ended(self, batch_number: int) -> None:
        """Look which have ended. batch_number: of the last batch; the next one's position has what has ended by now.

        For the source's thread.
        """
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _REQUEST_LOOK_SECONDS
        if not any(self._is_open(one) for one in self._stored.values()):
            return
        for progress in self._part.list_snapshots():
            stored = self._stored.get(progress.id)
            if progress.state.ended and stored is not None and self._is_open(stored):
                self._ended = {**self._ended, progress.id: (batch_number + 1, progress.state)}

    def settle(self, batch_number: int) -> None:
        """The position of this batch is on disk: what has ended before it is never begun again, whatever is lost.

        For the thread that stores positions.
        """
        ended = {name: state for name, (number, state) in self._ended.items() if number <= batch_number}
        if not ended:
            return
        self._ended = {name: one for name, one in self._ended.items() if name not in ended}
        with self._changing:
            settled = [replace(one, ended=ended[name]) for name, one in self._stored.items() if name in ended]
            self._store.put_snapshots(self._part.name, settled)
            self._stored = {**self._stored, **{one.request.id: one for one in settled}}
        for one in settled:
            log.info("source.%s: snapshot %s has ended: %s", self._part.name, one.request.id, one.ended)

    def _is_open(self, stored: StoredSnapshot) -> bool:
        return stored.ended is None and stored.request.id not in self._ended

    def _remember(self, stored: StoredSnapshot) -> None:
        """On disk first: what is answered holds after a crash, too."""
        name = stored.request.id
        old = [one.request.id for one in self._stored.values() if one.ended is not None and one.request.id != name]
        removed = old[: max(0, len(old) - MOST_ENDED)]
        self._store.put_snapshots(self._part.name, [stored], removed)
        kept = {key: value for key, value in self._stored.items() if key not in removed} | {name: stored}
        self._stored = dict(sorted(kept.items(), key=lambda item: item[1].request.asked_at))
        self._tell_source()

    def _tell_source(self) -> None:
        self._part.set_snapshots([_as_told(stored) for stored in self._stored.values()])

    def _require_started(self) -> None:
        if self._stopping.is_set():
            raise SourceUnavailable(f"source {self._part.name} is stopping", "ask again when the service runs")
        if not self.complete:
            raise SourceUnavailable(f"source {self._part.name} has not started yet", "ask again when /status is well")

    def _review(self, tables: Sequence[TableRequest], keys: KeyForm | None) -> None:
        """Without the lock: a server that is slow to answer keeps nobody from cancelling."""
        request = make_request(tables, keys=keys)
        review = Call(lambda: self._part.review_snapshot(request), f"review a snapshot of {self._part.name}")
        review.wait(_REVIEW_SECONDS, self._stopping)
        if not review.ended:
            what = f"source {self._part.name} has not said within {_REVIEW_SECONDS:g} s whether it can be taken"
            raise SourceUnavailable(what, "look at the server, and ask again")
        review.require_result()

    def _require_free(self, tables: Sequence[TableRequest], of_keys: bool) -> None:
        """SnapshotConflict when an unfinished snapshot of the same kind has one of the tables."""
        for snapshot in self.list_known():
            progress = snapshot.progress
            if progress.state.ended or (progress.keys is not None) is not of_keys:
                continue
            found = find_overlap([table.table for table in tables], [table.table for table in progress.tables])
            if found is not None:
                what = f"table {found} is in snapshot {progress.id}"
                what = f"all tables are in snapshot {progress.id}" if found == "*" else what
                raise SnapshotConflict(f"{what}, which has not ended", "wait for it, or cancel it")

    def _merge_stored(self, progress: SnapshotProgress, stored: StoredSnapshot | None) -> KnownSnapshot:
        if stored is None:
            return KnownSnapshot(self._part.name, progress, (), Wanted.RUN)
        if stored.ended is not None and progress.state is not stored.ended:
            progress = replace(progress, state=stored.ended)
        return KnownSnapshot(self._part.name, progress, stored.request.tables, stored.request.wanted)

    def _make_not_taken_up(self, stored: StoredSnapshot) -> KnownSnapshot:
        request = stored.request
        state, reason = _NOT_TAKEN_UP[request.wanted]
        if stored.ended is not None:
            state, reason = stored.ended, "how far it was is not known any more"
        tables = [TableProgress(table.table, TableState.WAITING) for table in request.tables]
        keys = None if request.keys is None else KeysProgress()
        progress = SnapshotProgress(
            request.id, state, tables, on_demand=True, asked_at=request.asked_at, reason=reason, keys=keys
        )
        return KnownSnapshot(self._part.name, progress, request.tables, request.wanted)


def _name_tables(tables: Sequence[TableRequest]) -> str:
    """The first ones: there may be thousands."""
    left = len(tables) - _MOST_ASKED_NAMED
    more = f" and {left} more" if left > 0 else ""
    return ", ".join(one.table for one in tables[:_MOST_ASKED_NAMED]) + more or "all tables"


def _as_told(stored: StoredSnapshot) -> SnapshotRequest:
    """What has ended is over, also for a source whose positions lost it: those of an older version, or an override."""
    return stored.request if stored.ended is None else replace(stored.request, wanted=Wanted.CANCEL)


def _make_request(progress: SnapshotProgress) -> SnapshotRequest:
    """Of a snapshot that the source began by itself."""
    tables = tuple(TableRequest(table.table) for table in progress.tables)
    return SnapshotRequest(progress.id, tables, asked_at=progress.asked_at)


def _is_so(snapshot: KnownSnapshot, wanted: Wanted) -> bool:
    """Whether it is, or will be, as somebody wants it: whoever asks twice gets the same answer."""
    if snapshot.progress.state.ended:
        return wanted is Wanted.CANCEL and snapshot.progress.state is SnapshotState.CANCELLED
    return snapshot.wanted is wanted


def _require_possible(snapshot: KnownSnapshot) -> None:
    progress = snapshot.progress
    if progress.state.ended:
        reason = f" ({progress.reason})" if progress.reason else ""
        raise SnapshotConflict(f"snapshot {progress.id} has ended: it is {progress.state}{reason}", "ask for a new one")
    if snapshot.wanted is Wanted.CANCEL:
        raise SnapshotConflict(f"snapshot {progress.id} is being cancelled", "ask for a new one when it has ended")
