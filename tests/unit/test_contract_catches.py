"""The contract's tests fail for a part that breaks its promise."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer import model
from psql_streamer.errors import SourceUnavailable
from psql_streamer.interfaces import Finding, Severity, Source
from psql_streamer.options import SourceOptions
from psql_streamer.testing import SourceContract
from tests.sqlite_source import SqliteSource


class LosesOne(SqliteSource):
    def start(self, position: model.Position | None) -> None:
        super().start(position)
        self._rowid += 1 if position else 0


class RepeatsOne(SqliteSource):
    def start(self, position: model.Position | None) -> None:
        super().start(position)
        self._rowid -= 1 if position else 0


class Altered(SqliteSource):
    """Gives batches that a function has changed."""

    alter: Callable[[model.Batch], model.Batch]

    def read(self, timeout: float) -> model.Batch | None:
        batch = super().read(timeout)
        return None if batch is None else type(self).alter(batch)


class AnnouncesNothing(Altered):
    alter = staticmethod(lambda batch: replace(batch, schema_changes=()))


class HasNoOrder(Altered):
    alter = staticmethod(
        lambda batch: replace(
            batch, transactions=replace(batch.transactions, commit=np.ones(len(batch.transactions), np.uint64))
        )
    )


class SaysAnotherType(Altered):
    @staticmethod
    def alter(batch: model.Batch) -> model.Batch:  # type: ignore[override]
        (changes,) = batch.changes
        columns = tuple(replace(column, type=model.PostgresType(25)) for column in changes.columns)
        return replace(batch, changes=(replace(changes, columns=columns),))


class ReachesEverything(SqliteSource):
    def has_reached(self, position: model.Position, mark: model.Position) -> bool:  # noqa: ARG002
        return True


class WaitsOnTheNetwork(SqliteSource):
    def confirm(self, position: model.Position) -> None:  # noqa: ARG002
        time.sleep(5)


class IsTiedToItsThread(SqliteSource):
    def start(self, position: model.Position | None) -> None:
        super().start(position)
        self._thread = threading.get_ident()

    def read(self, timeout: float) -> model.Batch | None:
        assert self._thread == threading.get_ident()
        return super().read(timeout)


class FollowsItsFirstStart(SqliteSource):
    _started = False

    def start(self, position: model.Position | None) -> None:
        super().start(None if self._started else position)
        self._started = True


class FindsWhatIsNoFinding(SqliteSource):
    def check(self) -> Iterable[Finding]:
        return ("the file is away",)  # type: ignore[return-value]


class FindsSomethingWrong(SqliteSource):
    def check(self) -> Iterable[Finding]:
        return (Finding(Severity.ERROR, "the file is away", "bring it back"),)


class WarnsOfErrors(SqliteSource):
    def check(self) -> Iterable[Finding]:
        return (Finding(Severity.WARNING, "the file had errors", "copy it"),)


class DropsEveryFifthRow(Altered):
    @staticmethod
    def alter(batch: model.Batch) -> model.Batch:  # type: ignore[override]
        (changes,) = batch.changes
        kept = np.flatnonzero(batch.transactions.commit[changes.tx] % 5 != 0)
        return replace(batch, changes=(changes.take(kept),))


def with_names(batch: model.Batch, names: pa.Array) -> model.Batch:
    """The same rows with other names."""
    (changes,) = batch.changes
    key, _ = changes.after.columns
    return replace(batch, changes=(replace(changes, after=model.Image((key, names), changes.after.rows)),))


class GivesNulls(Altered):
    @staticmethod
    def alter(batch: model.Batch) -> model.Batch:  # type: ignore[override]
        (changes,) = batch.changes
        nulls = tuple(pa.nulls(len(array), array.type) for array in changes.after.columns)
        return replace(batch, changes=(replace(changes, after=model.Image(nulls, changes.after.rows)),))


class GivesOtherNames(Altered):
    alter = staticmethod(lambda batch: with_names(batch, pa.array(["nobody"] * len(batch))))


class GivesOtherNamesAgain(SqliteSource):
    """Where it starts at a position."""

    _is_again = False

    def start(self, position: model.Position | None) -> None:
        super().start(position)
        self._is_again = position is not None

    def read(self, timeout: float) -> model.Batch | None:
        batch = super().read(timeout)
        return with_names(batch, pa.array(["nobody"] * len(batch))) if batch and self._is_again else batch


class GoesBackToWhatIsConfirmed(SqliteSource):
    def confirm(self, position: model.Position) -> None:
        self._rowid = position.data["rowid"]


class SkipsARowWithEachConfirm(SqliteSource):
    def confirm(self, position: model.Position) -> None:  # noqa: ARG002
        self._rowid += 1


class FailsToConfirm(SqliteSource):
    def confirm(self, position: model.Position) -> None:
        raise RuntimeError(f"{position} is not known")


class FailsToBeInterrupted(SqliteSource):
    def interrupt(self) -> None:
        if self._file is not None:
            raise RuntimeError("it reads")


class IsInterruptedOnlyWhenStarted(SqliteSource):
    def interrupt(self) -> None:
        if self._file is None:
            raise RuntimeError("it is not started")


class IsAnotherStreamOnceStarted(SqliteSource):
    def read_stream_identity(self) -> Mapping[str, str]:
        return {**super().read_stream_identity(), "started": str(self._file is not None)}


class CountsNoObjects(Altered):
    alter = staticmethod(lambda batch: replace(batch, nbytes=100))


class GivesPieces(Altered):
    alter = staticmethod(lambda batch: replace(batch, continues=True))


class ReadsTheWallClock(Altered):
    alter = staticmethod(lambda batch: replace(batch, received_at=time.time()))


class CountsSeconds(Altered):
    @staticmethod
    def alter(batch: model.Batch) -> model.Batch:  # type: ignore[override]
        seconds = batch.transactions.commit_ts // 1_000_000
        return replace(batch, transactions=replace(batch.transactions, commit_ts=seconds))


class CountsNoValues(Altered):
    @staticmethod
    def alter(batch: model.Batch) -> model.Batch:  # type: ignore[override]
        large = with_names(batch, pa.array(["x" * 10_000] * len(batch)))
        return replace(large, nbytes=batch.overhead)


class SaysPlacesOfAnotherType(Altered):
    @staticmethod
    def alter(batch: model.Batch) -> model.Batch:  # type: ignore[override]
        (changes,) = batch.changes
        return replace(batch, changes=(replace(changes, place=changes.batch_order),))


class HasIdsOfNoType(Altered):
    @staticmethod
    def alter(batch: model.Batch) -> model.Batch:  # type: ignore[override]
        return replace(batch, transactions=replace(batch.transactions, ids=pa.nulls(len(batch.transactions))))


class SaysThatRowsWereThere(Altered):
    @staticmethod
    def alter(batch: model.Batch) -> model.Batch:  # type: ignore[override]
        (changes,) = batch.changes
        return replace(batch, changes=(replace(changes, op=np.full(len(changes), model.RowOp.READ, np.uint8)),))


class ReadsLongerThanItMay(SqliteSource):
    def read(self, timeout: float) -> model.Batch | None:
        batch = super().read(timeout)
        if batch is None:
            time.sleep(1.2)
        return batch


class ReturnsAtOnce(SqliteSource):
    """Every other time."""

    _reads = 0

    def read(self, timeout: float) -> model.Batch | None:
        self._reads += 1
        return None if self._reads % 2 else super().read(timeout)


class GivesARowAtATime(SqliteSource):
    def read(self, timeout: float) -> model.Batch | None:
        batch = super().read(timeout)
        if batch is None:
            return None
        first = batch.changes[0].slice(0, 1)  # a row at a time
        self._rowid = int(batch.transactions.commit[0])
        of = replace(
            batch.transactions, commit=batch.transactions.commit[:1], commit_ts=batch.transactions.commit_ts[:1]
        )
        return replace(
            batch, changes=(first,), transactions=of, position=model.Position({"rowid": self._rowid}, "a row")
        )


class ComparesPositionsAsText(GivesARowAtATime):
    def has_reached(self, position: model.Position, mark: model.Position) -> bool:
        return str(position.data["rowid"]) >= str(mark.data["rowid"])


class RaisesWhatIsNoErrorOfTheService(SqliteSource):
    def read(self, timeout: float) -> model.Batch | None:
        try:
            return super().read(timeout)
        except SourceUnavailable as error:
            raise AssertionError("the table is away") from error


class ChecksByReading(SqliteSource):
    """And takes away what it has read."""

    def check(self) -> Iterable[Finding]:
        yield from super().check()
        with closing(sqlite3.connect(self.options.path)) as file, file:
            file.execute(f"DELETE FROM {self.options.table} WHERE id = (SELECT max(id) FROM {self.options.table})")


class KeepsItsPlace(SqliteSource):
    """Its server remembers how far it is."""

    @property
    def _memory(self) -> Path:
        return Path(self.options.path).with_suffix(".place")

    def _remember_place(self, rowid: int) -> None:
        self._memory.write_text(str(rowid))

    def confirm(self, position: model.Position) -> None:
        self._remember_place(position.data["rowid"])

    def start(self, position: model.Position | None) -> None:
        super().start(position)
        place = int(self._memory.read_text()) if self._memory.exists() else 0
        self._rowid = max(place, self._rowid)


class ConfirmsWhatItHasRead(KeepsItsPlace):
    def confirm(self, position: model.Position) -> None:  # noqa: ARG002
        self._remember_place(self._rowid)


class ConfirmsEverythingWithItsStop(KeepsItsPlace):
    def stop(self) -> None:
        if self._file is not None:
            self._remember_place(self._rowid)
        super().stop()


class KeepsWhatItReadAhead(GivesARowAtATime):
    """Over a start that goes elsewhere."""

    _ahead: model.Batch | None = None

    def read(self, timeout: float) -> model.Batch | None:
        batch, self._ahead = self._ahead, None
        batch = batch or super().read(timeout)
        if batch is not None:
            self._ahead = super().read(0)
        return batch


class CannotRemember(SqliteSource):
    def remember(self, relations: Iterable[model.Relation]) -> None:
        raise AssertionError(f"{len(list(relations))} shapes come before the start")


class NumbersShapesAnew(SqliteSource):
    """Behind a position, without a word."""

    def start(self, position: model.Position | None) -> None:
        super().start(position)
        self._told = position is not None
        self._table = replace(self._table, version=2 if position else 1)


class MiscountsTransactions(SqliteSource):
    _counts = False

    def provide_transaction_metadata(self) -> None:
        self._counts = True

    def read(self, timeout: float) -> model.Batch | None:
        batch = super().read(timeout)
        if batch is None or not self._counts:
            return batch
        tx = np.arange(len(batch.transactions), dtype=np.int32)
        marks = model.TransactionMarks(tx, tx.astype(np.int64))
        counts = model.TransactionCounts(tx, np.zeros(len(tx), np.int64), np.full(len(tx), 2), (self._table,))
        return replace(batch, transaction_metadata=model.TransactionMetadata(marks, marks, counts))


class OpensAFileWhenItIsMade(SqliteSource):
    def __init__(self, name: str, options: SourceOptions) -> None:
        super().__init__(name, options)
        self._held = os.open(__file__, os.O_RDONLY)


class CountsInWords(SqliteSource):
    def stats(self) -> model.Stats:
        return {"rows": "many"}


class StopsOnlyWhatItStarted(SqliteSource):
    def stop(self) -> None:
        assert self._file is not None, "it is not started"
        super().stop()


class StartsWithoutItsFile(SqliteSource):
    def start(self, position: model.Position | None) -> None:
        with suppress(SourceUnavailable):
            super().start(position)


CONFIRMED_BEHIND = SourceContract.test_confirming_what_lies_behind_changes_nothing_of_what_follows
COMPARES = SourceContract.test_a_position_is_json_and_its_source_compares_it
READ_AHEAD = SourceContract.test_it_starts_over_behind_the_batch_that_was_taken_though_it_had_read_on
AS_THE_MODEL_SAYS = SourceContract.test_batches_are_what_the_model_says
BREACHES: dict[type[SqliteSource], Callable[[Any], None]] = {
    LosesOne: SourceContract.test_a_start_at_a_position_goes_on_behind_it,
    RepeatsOne: SourceContract.test_a_start_at_a_position_goes_on_behind_it,
    AnnouncesNothing: SourceContract.test_a_shape_is_announced_before_it_is_used,
    HasNoOrder: SourceContract.test_batches_are_what_the_model_says,
    SaysAnotherType: SourceContract.test_batches_are_what_the_model_says,
    ReachesEverything: SourceContract.test_a_position_is_json_and_its_source_compares_it,
    IsTiedToItsThread: SourceContract.test_batches_are_what_the_model_says,
    FollowsItsFirstStart: SourceContract.test_it_starts_over_where_it_is_told_without_a_stop,
    FindsWhatIsNoFinding: SourceContract.test_a_check_finds_nothing_where_start_works,
    FindsSomethingWrong: SourceContract.test_a_check_finds_nothing_where_start_works,
    WaitsOnTheNetwork: SourceContract.test_confirming_does_not_wait_and_comes_from_another_thread,
    DropsEveryFifthRow: SourceContract.test_changes_come_in_the_order_of_their_commits_and_once,
    GivesNulls: SourceContract.test_rows_have_their_values,
    GivesOtherNames: SourceContract.test_rows_have_their_values,
    GivesOtherNamesAgain: SourceContract.test_a_start_at_a_position_goes_on_behind_it,
    CannotRemember: SourceContract.test_a_start_at_a_position_goes_on_behind_it,
    NumbersShapesAnew: SourceContract.test_a_start_at_a_position_goes_on_behind_it,
    GoesBackToWhatIsConfirmed: CONFIRMED_BEHIND,
    SkipsARowWithEachConfirm: CONFIRMED_BEHIND,
    FailsToConfirm: SourceContract.test_confirming_does_not_wait_and_comes_from_another_thread,
    FailsToBeInterrupted: SourceContract.test_an_interrupt_ends_what_waits,
    IsInterruptedOnlyWhenStarted: SourceContract.test_an_interrupt_may_come_before_a_start_and_behind_a_stop,
    IsAnotherStreamOnceStarted: SourceContract.test_a_stream_has_an_identity_that_stays,
    GivesPieces: AS_THE_MODEL_SAYS,
    ReadsTheWallClock: AS_THE_MODEL_SAYS,
    CountsSeconds: AS_THE_MODEL_SAYS,
    CountsNoValues: AS_THE_MODEL_SAYS,
    SaysPlacesOfAnotherType: AS_THE_MODEL_SAYS,
    HasIdsOfNoType: AS_THE_MODEL_SAYS,
    SaysThatRowsWereThere: SourceContract.test_rows_have_their_values,
    ReadsLongerThanItMay: SourceContract.test_reading_ends_when_there_is_nothing,
    ReturnsAtOnce: SourceContract.test_reading_ends_when_there_is_nothing,
    ComparesPositionsAsText: COMPARES,
    KeepsWhatItReadAhead: READ_AHEAD,
    ChecksByReading: SourceContract.test_a_check_changes_nothing_of_what_comes,
    RaisesWhatIsNoErrorOfTheService: SourceContract.test_behind_an_outage_it_goes_on_where_it_is_told,
    ConfirmsWhatItHasRead: CONFIRMED_BEHIND,
    ConfirmsEverythingWithItsStop: SourceContract.test_what_was_read_and_not_confirmed_comes_again,
    CountsNoObjects: SourceContract.test_batches_are_what_the_model_says,
    MiscountsTransactions: SourceContract.test_what_is_said_of_transactions_is_what_was_read,
    OpensAFileWhenItIsMade: SourceContract.test_making_one_does_no_io,
    CountsInWords: SourceContract.test_it_says_at_any_time_how_it_is,
    StopsOnlyWhatItStarted: SourceContract.test_a_stop_may_come_behind_a_start_that_failed,
    StartsWithoutItsFile: SourceContract.test_a_stop_may_come_behind_a_start_that_failed,
}


@pytest.mark.parametrize("source", BREACHES, ids=lambda source: source.__name__)
def test_a_source_that_breaks_its_promise_is_caught(source: type[SqliteSource], tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        BREACHES[source](contract_of(source, tmp_path))


@pytest.mark.parametrize(
    "promise",
    [CONFIRMED_BEHIND, SourceContract.test_what_was_read_and_not_confirmed_comes_again],
    ids=lambda one: one.__name__,
)
def test_a_source_whose_server_remembers_its_place_passes(promise: Callable[[Any], None], tmp_path: Path) -> None:
    promise(contract_of(KeepsItsPlace, tmp_path))


@pytest.mark.parametrize("promise", [COMPARES, READ_AHEAD], ids=lambda one: one.__name__)
def test_a_source_of_small_batches_passes(promise: Callable[[Any], None], tmp_path: Path) -> None:
    promise(contract_of(GivesARowAtATime, tmp_path))


def test_a_source_that_loses_its_file_and_says_so_passes(tmp_path: Path) -> None:
    contract_of(SqliteSource, tmp_path).test_behind_an_outage_it_goes_on_where_it_is_told()


def test_a_warning_of_a_check_is_no_breach(tmp_path: Path) -> None:
    contract_of(WarnsOfErrors, tmp_path).test_a_check_finds_nothing_where_start_works()


def contract_of(source: type[SqliteSource], tmp_path: Path) -> SourceContract:
    path = tmp_path / "shop.sqlite"

    class Contract(SourceContract):
        def make_source(self) -> Source:
            return source("shop", source.Options(type="sqlite", path=str(path), table="orders"))

        def make_unreachable_source(self) -> Source:
            away = str(tmp_path / "away" / "shop.sqlite")
            return source("shop", source.Options(type="sqlite", path=away, table="orders"))

        def make_changes(self) -> int:
            execute("INSERT INTO orders (customer) VALUES ('ann'), ('bob'), ('eve'), (NULL)")
            return 4

        def list_expected_actions(self) -> list[str]:
            return ["insert"] * 4

        @contextmanager
        def cause_outage(self) -> Iterator[None]:  # type: ignore[override]
            execute("ALTER TABLE orders RENAME TO away")
            yield
            execute("ALTER TABLE away RENAME TO orders")

        def list_expected(self) -> list[dict[str, str | None]]:
            return [{"customer": name} for name in ("ann", "bob", "eve", None)]

    def execute(sql: str) -> None:
        with closing(sqlite3.connect(path)) as file, file:
            file.execute(sql)

    execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT)")
    return Contract()
