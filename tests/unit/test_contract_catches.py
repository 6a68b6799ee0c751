"""The contract's tests fail for a part that breaks its promise."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psql_streamer import model
from psql_streamer.interfaces import Source
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


BREACHES: dict[type[SqliteSource], Callable[[Any], None]] = {
    LosesOne: SourceContract.test_a_start_at_a_position_goes_on_behind_it,
    RepeatsOne: SourceContract.test_a_start_at_a_position_goes_on_behind_it,
    AnnouncesNothing: SourceContract.test_a_shape_is_announced_before_it_is_used,
    HasNoOrder: SourceContract.test_batches_are_what_the_model_says,
    SaysAnotherType: SourceContract.test_batches_are_what_the_model_says,
    ReachesEverything: SourceContract.test_a_position_is_json_and_its_source_compares_it,
    WaitsOnTheNetwork: SourceContract.test_confirming_does_not_wait_and_comes_from_another_thread,
}


@pytest.mark.parametrize("source", BREACHES, ids=lambda source: source.__name__)
def test_a_source_that_breaks_its_promise_is_caught(source: type[SqliteSource], tmp_path: Path) -> None:
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
    with pytest.raises(AssertionError):
        BREACHES[source](Contract())
