"""The contract's tests fail for a source that breaks a promise about something else than its stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from psql_streamer import model
from psql_streamer.errors import SourceError, SourceUnavailable
from psql_streamer.interfaces import CaptureRequest, ConsumedOffsets, Finding, Severity, Source
from psql_streamer.snapshots import PostedKeys, SnapshotRequest
from psql_streamer.table_rows import TableReader, TableRows
from psql_streamer.testing import SourceContract
from tests.sqlite_source import SqliteSource
from tests.unit.test_contract_catches import GivesOtherNames, contract_of


class PublishesNothing(SqliteSource):
    def list_published(self) -> Sequence[model.Relation]:
        return ()


class Ends(SqliteSource):
    @property
    def is_exhausted(self) -> bool:
        return True


class HasFailed(SqliteSource):
    @property
    def failure(self) -> SourceError:
        return SourceUnavailable("the file is away")


class MovesToTheBeginning(SqliteSource):
    def move_position(self, stored: model.Position, override: model.Position) -> model.Position:  # noqa: ARG002
        return model.Position({"rowid": 0}, "0")


class RefusesItsPositions(SqliteSource):
    def check_position(self, position: model.Position | None) -> Iterable[Finding]:
        return (Finding(Severity.ERROR, f"{position} is gone", "begin anew"),)


class CommitsOffsetsUnasked(SqliteSource):
    def find_consumed_offsets(self, position: model.Position) -> ConsumedOffsets:  # noqa: ARG002
        return ConsumedOffsets(b"", ())


class IsCaptured(SqliteSource):
    captured: type[SqliteSource] = SqliteSource

    def make_capture(self, request: CaptureRequest) -> Source:  # noqa: ARG002
        return self.captured(self.name, self.options)


class CapturesOtherRows(IsCaptured):
    captured = GivesOtherNames


class TakesAnySnapshot(SqliteSource):
    def review_snapshot(self, request: SnapshotRequest) -> None:
        pass


class TakesAnyKeys(SqliteSource):
    def take_keys(self, name: str, posted: PostedKeys) -> None:
        pass


class ReadsAnything(TableReader):
    names = ("id", "customer")

    def read_table(self, schema: str, table: str, most_bytes: int) -> TableRows:  # noqa: ARG002
        columns = [model.Column(name, model.ArrowType(pa.string(), "TEXT"), False) for name in self.names]
        return TableRows(tuple(columns), [pa.nulls(0, pa.string())] * len(columns), 0)

    def read_query(self, query: str, most_bytes: int) -> TableRows:
        raise NotImplementedError

    def interrupt(self) -> None:
        pass


class ReadsOtherColumns(ReadsAnything):
    names = ("id",)


class ReadsTablesThatAreNotStreamed(SqliteSource):
    def make_table_reader(self) -> TableReader:
        return ReadsAnything()


class ReadsTablesWithOtherColumns(SqliteSource):
    def make_table_reader(self) -> TableReader:
        return ReadsOtherColumns()


class SwitchesOnlyWhatItStarted(SqliteSource):
    def set_debug(self, on: bool) -> None:
        if self._file is None:
            raise RuntimeError(f"debug {on}: it is not started")


GOES_ON = SourceContract.test_a_start_may_go_on_at_positions_that_it_gave
HAS_NO_END = SourceContract.test_a_stream_has_no_end_and_has_not_failed_while_it_works
IS_CAPTURED = SourceContract.test_a_capture_gives_the_same_changes_and_leaves_the_stream_alone
NO_SUCH_TABLE = SourceContract.test_a_snapshot_of_a_table_that_is_not_there_is_refused
READS_TABLES = SourceContract.test_tables_are_read_beside_the_stream
BREACHES: dict[type[SqliteSource], Callable[[Any], None]] = {
    PublishesNothing: SourceContract.test_tables_whose_rows_are_read_are_published,
    Ends: HAS_NO_END,
    HasFailed: HAS_NO_END,
    MovesToTheBeginning: GOES_ON,
    RefusesItsPositions: GOES_ON,
    CommitsOffsetsUnasked: GOES_ON,
    CapturesOtherRows: IS_CAPTURED,
    TakesAnySnapshot: NO_SUCH_TABLE,
    TakesAnyKeys: NO_SUCH_TABLE,
    ReadsTablesThatAreNotStreamed: READS_TABLES,
    ReadsTablesWithOtherColumns: READS_TABLES,
    SwitchesOnlyWhatItStarted: SourceContract.test_debug_messages_are_switched_at_any_time,
}


@pytest.mark.parametrize("source", BREACHES, ids=lambda source: source.__name__)
def test_a_source_that_breaks_its_promise_is_caught(source: type[SqliteSource], tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        BREACHES[source](contract_of(source, tmp_path))


def test_a_source_that_can_be_captured_passes(tmp_path: Path) -> None:
    IS_CAPTURED(contract_of(IsCaptured, tmp_path))
