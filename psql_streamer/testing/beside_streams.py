"""What `Source` promises of everything but its stream: tables, positions, captures, snapshots, lookups."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial

import numpy as np

from psql_streamer.errors import SnapshotError, SourceError, SourceRefused
from psql_streamer.interfaces import CaptureRequest, Severity, Source
from psql_streamer.model import Batch, Position, Relation
from psql_streamer.snapshots import PostedKeys, SnapshotRequest, TableRequest
from psql_streamer.testing.checking import check_batch
from psql_streamer.testing.contents import collect_new_rows
from psql_streamer.testing.parts import PartContract, require_error
from psql_streamer.testing.threads import call_in_a_thread, end_soon

_NO_SCHEMA, _NO_TABLE = "no_schema", "no_table"
_MOST_BYTES = 1 << 30

_SNAPSHOT_SECONDS = 10.0
"""The time that a snapshot of a few rows may take."""


class BesideStreamContract(PartContract[Source]):
    """A part of SourceContract, which says how a source is made, started and read."""

    @abstractmethod
    def make_source(self) -> Source:
        """See SourceContract."""

    @abstractmethod
    def make_changes(self) -> int | None:
        """See SourceContract."""

    @abstractmethod
    def _make_started(
        self, position: Position | None = None, shapes: Iterable[Relation] = ()
    ) -> AbstractContextManager[Source]:
        """See PartContract."""

    @abstractmethod
    def _start_when_free(self, source: Source) -> None:
        """Start it without a position."""

    @abstractmethod
    def _read_changes(self, source: Source) -> list[Batch]:
        """Make changes, and read them."""

    @abstractmethod
    def _read(self, source: Source, awaited: int = 0) -> list[Batch]:
        """All that comes; a batch with changes at least. awaited: how many changes there are, 0 where nobody knows."""

    def test_tables_whose_rows_are_read_are_published(self) -> None:
        """Where a source can say before its start which tables it would stream."""
        with self._make_started() as source:
            batches = self._read_changes(source)
        published = self.make_source().list_published()
        if published is not None:
            names = {(relation.schema, relation.table) for relation in published}
            assert _collect_tables(batches) <= names, "list_published: all tables that would be streamed"

    def test_a_stream_has_no_end_and_has_not_failed_while_it_works(self) -> None:
        with self._make_started() as source:
            assert self._read_changes(source)
            assert not source.is_exhausted, "is_exhausted: a stream has no end"
            assert source.failure is None, "failure: what has ended the session"

    def test_a_start_may_go_on_at_positions_that_it_gave(self) -> None:
        with self._make_started() as source:
            position = self._read_changes(source)[-1].position
            moved = source.move_position(position, position)
            assert source.has_reached(moved, position), "move_position: an override to where it is leads there"
            assert source.has_reached(position, moved), "move_position: an override to where it is leads there"
            if not source.keeps_place_in_transactions:
                assert source.find_consumed_offsets(position) is None, (
                    "find_consumed_offsets: it keeps its place itself"
                )
        fresh = self.make_source()
        fresh.read_stream_identity()
        wrong = [finding for finding in fresh.check_position(position) if finding.severity is Severity.ERROR]
        call_in_a_thread(fresh.stop)
        assert wrong == [], "check_position: what would keep a start from going on there"

    def test_a_capture_gives_the_same_changes_and_leaves_the_stream_alone(self) -> None:
        """Where a source can be captured."""
        request = CaptureRequest(lambda _schema, _table: True, rows=1000, existing=False, on_wait=lambda _: None)
        with self._make_started() as source:
            try:
                capture = source.make_capture(request)
            except SourceRefused:
                return
            try:
                self._start_when_free(capture)
                made = self.make_changes() or 0
                captured = self._read(capture, made)
                capture.confirm(captured[-1].position)
            finally:
                call_in_a_thread(capture.stop)
            read = self._read(source, made)
            assert _count_new_rows(captured) == _count_new_rows(read), (
                "make_capture: the same changes, and none is taken away"
            )
            assert source.status().ok

    def test_a_snapshot_of_a_table_that_is_not_there_is_refused(self) -> None:
        with self._make_started() as source:
            request = SnapshotRequest("contract-1", (TableRequest(f"{_NO_SCHEMA}.{_NO_TABLE}"),))
            require_error(
                partial(source.review_snapshot, request),
                SourceRefused,
                "review_snapshot: no such table, and it is not refused",
            )
            require_error(
                partial(source.take_keys, "contract-2", PostedKeys(0, (b"{}",), complete=True)),
                (SnapshotError, SourceRefused),
                "take_keys: there is no such snapshot, and its keys are taken",
            )
            source.set_snapshots(())
            assert self._read_changes(source)

    def test_a_snapshot_that_is_taken_gives_the_rows_that_are_there(self) -> None:
        """Where a source takes some: it says how far it is until it has ended."""
        with self._make_started() as source:
            relation = _collect_relations(self._read_changes(source))[0]
            request = SnapshotRequest("contract-3", (TableRequest(str(relation)),), asked_at=time.time())
            try:
                source.review_snapshot(request)
            except SourceRefused:
                return
            source.set_snapshots([request])
            batches, deadline = list[Batch](), time.monotonic() + _SNAPSHOT_SECONDS
            while not _has_ended(source, request.id):
                assert time.monotonic() < deadline, "list_snapshots: a snapshot that was taken has not ended"
                if (batch := source.read(0.1)) is not None:
                    check_batch(batch)
                    batches.append(batch)
                    source.confirm(batch.position)
        found = sum(_count_rows_of_snapshot(batch, request.id) for batch in batches)
        assert found, "a snapshot has ended, and no row that is there came (Transactions.snapshots)"

    def test_tables_are_read_beside_the_stream(self) -> None:
        """Where a source reads them: without a start, with the columns that the stream has."""
        with self._make_started() as source:
            batches = self._read_changes(source)
        reader = self.make_source().make_table_reader()
        if reader is None:
            return
        for relation in _collect_relations(batches):
            found = reader.read_table(relation.schema, relation.table, _MOST_BYTES)
            assert [one.name for one in found.columns] == [one.name for one in relation.columns]
            assert [len(array) for array in found.arrays] == [found.rows] * len(found.columns)
        require_error(
            partial(reader.read_table, _NO_SCHEMA, _NO_TABLE, _MOST_BYTES),
            SourceError,
            "read_table: a table that is not streamed is read",
        )
        end_soon(reader.interrupt, "interrupt of a table reader")

    def test_debug_messages_are_switched_at_any_time(self) -> None:
        end_soon(partial(self.make_source().set_debug, True), "set_debug before a start")
        with self._make_started() as source:
            for on in (True, False):
                end_soon(partial(source.set_debug, on), "set_debug")
            assert self._read_changes(source)


def _count_rows_of_snapshot(batch: Batch, name: str) -> int:
    wanted = [tx for tx, of in batch.transactions.snapshots.items() if of.id == name]
    return sum(int(np.isin(changes.tx, wanted).sum()) for changes in batch.changes)


def _has_ended(source: Source, name: str) -> bool:
    return any(one.id == name and one.state.ended for one in source.list_snapshots())


def _collect_relations(batches: Iterable[Batch]) -> Sequence[Relation]:
    """Of the rows that were read, each in its last shape."""
    found = {changes.relation.id: changes.relation for batch in batches for changes in batch.changes}
    return list(found.values())


def _collect_tables(batches: Iterable[Batch]) -> set[tuple[str, str]]:
    return {(relation.schema, relation.table) for relation in _collect_relations(batches)}


def _count_new_rows(batches: Iterable[Batch]) -> Counter[str]:
    """The new rows, in whatever order."""
    return Counter(str(sorted(row.items())) for row in collect_new_rows(batches))
