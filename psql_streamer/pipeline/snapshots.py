"""The snapshots of all sources: which source a request is for, and which snapshot an id means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psql_streamer.errors import NoSuchSnapshot, SnapshotConflict, SnapshotError, SnapshotUnclear, SourceUnavailable
from psql_streamer.interfaces import KnownSnapshot, Snapshots
from psql_streamer.nearest import suggest_nearest
from psql_streamer.pipeline.snapshot_requests import SnapshotRequests
from psql_streamer.snapshots import KeyForm, PostedKeys, TableRequest, Wanted, describe_listing


class SnapshotsOfSources(Snapshots):
    """by_source: of the sources that are started. left_alone: names of the others."""

    def __init__(self, by_source: Mapping[str, SnapshotRequests], left_alone: Sequence[str]) -> None:
        self._by_source = by_source
        self._left_alone = left_alone

    def list_known(self) -> Mapping[str, Sequence[KnownSnapshot]]:
        """See Snapshots.list_known."""
        return {name: requests.list_known() for name, requests in self._by_source.items() if requests.are_taken}

    def find(self, source: str | None, name: str) -> KnownSnapshot:
        """See Snapshots.find."""
        return self._look_up_by_snapshot(source, name).find(name)

    def ask(self, source: str | None, tables: Sequence[TableRequest], keys: KeyForm | None = None) -> KnownSnapshot:
        """See Snapshots.ask."""
        return self._to_ask(source).ask(tables, keys)

    def post_keys(self, source: str | None, name: str, posted: PostedKeys) -> KnownSnapshot:
        """See Snapshots.post_keys."""
        return self._look_up_by_snapshot(source, name).post_keys(name, posted)

    def want(self, source: str | None, name: str, wanted: Wanted) -> KnownSnapshot:
        """See Snapshots.want."""
        return self._look_up_by_snapshot(source, name).want(name, wanted)

    def _to_ask(self, source: str | None) -> SnapshotRequests:
        if source is not None:
            return self._look_up_by_name(source)
        able = [name for name, requests in self._by_source.items() if requests.are_taken]
        if len(able) > 1:
            raise SnapshotUnclear(
                f"sources {', '.join(able)} take snapshots", "say which one is meant with source (--source)"
            )
        if not able and len(self._by_source) == 1:
            able = list(self._by_source)  # it says itself why it takes none
        if not able:
            raise SnapshotError("no source takes snapshots", "take the rows that are there by other means")
        return self._by_source[able[0]]

    def _look_up_by_snapshot(self, source: str | None, name: str) -> SnapshotRequests:
        """The source whose snapshot it is."""
        if source is not None:
            return self._look_up_by_name(source)
        having = {
            name_of_source: requests
            for name_of_source, requests in self._by_source.items()
            if any(snapshot.progress.id == name for snapshot in requests.list_known())
        }
        if len(having) > 1:
            raise SnapshotUnclear(f"sources {', '.join(having)} have a snapshot {name}", "add ?source=NAME")
        if having:
            return next(iter(having.values()))
        for name_of_source, requests in self._by_source.items():
            if requests.are_taken and not requests.complete:
                what = f"source {name_of_source} has not started yet, and snapshot {name} may be one of its own"
                raise SourceUnavailable(what, "ask again when /status is well")
        raise NoSuchSnapshot(f"there is no snapshot {name}", describe_listing())

    def _look_up_by_name(self, source: str) -> SnapshotRequests:
        if source in self._by_source:
            return self._by_source[source]
        if source in self._left_alone:
            raise SnapshotConflict(f"source {source} is not started: no sink takes from it", "name it in a sink")
        raise NoSuchSnapshot(
            f'there is no source "{source}"{suggest_nearest(source, self._by_source)}', "/status lists them"
        )
