"""The contract's tests fail for a part that breaks its promise."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psql_streamer import model
from psql_streamer.interfaces import Finding, Severity, Source
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
}


@pytest.mark.parametrize("source", BREACHES, ids=lambda source: source.__name__)
def test_a_source_that_breaks_its_promise_is_caught(source: type[SqliteSource], tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        BREACHES[source](contract_of(source, tmp_path))


def test_a_warning_of_a_check_is_no_breach(tmp_path: Path) -> None:
    contract_of(WarnsOfErrors, tmp_path).test_a_check_finds_nothing_where_start_works()


def contract_of(source: type[SqliteSource], tmp_path: Path) -> SourceContract:
    path = tmp_path / "shop.sqlite"

    class Contract(SourceContract):
        def make_source(self) -> Source:
            return source("shop", source.Options(type="sqlite", path=str(path), table="orders"))

        def make_changes(self) -> None:
            execute("INSERT INTO orders (customer) VALUES ('ann'), ('bob'), ('eve'), (NULL)")

    def execute(sql: str) -> None:
        with closing(sqlite3.connect(path)) as file, file:
            file.execute(sql)

    execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT)")
    return Contract()
