"""What `try` asks of parts it asks of every part, also of somebody's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from psql_streamer.config.loading import load
from psql_streamer.errors import HandlerRefused, HandlerUnavailable
from psql_streamer.interfaces import Finding, Handler
from psql_streamer.model import Batch, Rejection
from psql_streamer.options import HandlerOptions, SinkOptions
from psql_streamer.testing import make_batch, try_rule
from psql_streamer.trial.trying import Trial
from sinks.stub import StubDiscardSink


class OwnSinkOptions(SinkOptions):
    aside: str

    @property
    def topic_of_rejected_rows(self) -> str:
        return self.aside


class OwnSink(StubDiscardSink):
    Options = OwnSinkOptions


class OwnHandlerOptions(HandlerOptions):
    def list_followed_tables(self) -> Iterable[tuple[str, str]]:
        return (("customers", "public.customers"),)


class PutsAside(Handler):
    """Puts every row aside."""

    Options = OwnHandlerOptions

    def check(self) -> Iterable[Finding]:
        return ()

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def handle(self, batch: Batch) -> Batch:
        return replace(batch, changes=(), rejections=tuple(Rejection(one, "why", None, "r") for one in batch.changes))


class Forgetful(PutsAside):
    """Gives batches as they are."""

    def handle(self, batch: Batch) -> Batch:
        return batch


class Remembers(PutsAside):
    """Drops rows that it has seen since it was started."""

    def start(self) -> None:
        self._seen: set[int] = set()

    def handle(self, batch: Batch) -> Batch:
        new = [one for one in batch.changes if not self._seen & set(one.after.columns[0].to_pylist())]
        self._seen |= {key for one in batch.changes for key in one.after.columns[0].to_pylist()}
        return replace(batch, changes=tuple(new))


class NeedsAnotherStart(PutsAside):
    """Its engine ends with the first batch."""

    _starts = 0

    def start(self) -> None:
        self._starts += 1

    def handle(self, batch: Batch) -> Batch:
        if self._starts < 2:
            raise HandlerUnavailable("the engine is gone")
        return batch


class TakesOneRow(PutsAside):
    most_rows = 1  # type: ignore[assignment]

    def handle(self, batch: Batch) -> Batch:
        if batch.rows.rows > 1:
            raise HandlerRefused("more rows than it takes")
        return super().handle(batch) if batch.changes[0].batch_order[0] == 1 else batch


@pytest.mark.parametrize("handler", ["Forgetful", "Remembers", "NeedsAnotherStart"])
def test_a_handler_is_started_for_each_try_and_again_when_its_engine_is_gone(tmp_path: Path, handler: str) -> None:
    config = write_config(tmp_path, handler)
    for _ in range(2):
        found = try_rule(config, "public.orders", rows=[{"id": 1}, {"id": 2}])
        assert found.outcomes == ["sent", "sent"]


def test_a_handler_of_another_class_with_the_same_options_is_another(tmp_path: Path) -> None:
    assert try_rule(write_config(tmp_path, "Forgetful"), "public.orders", rows=[{"id": 1}]).outcomes == ["sent"]
    assert try_rule(write_config(tmp_path, "PutsAside"), "public.orders", rows=[{"id": 1}]).outcomes == ["dead-letter"]


def test_a_handler_gets_as_many_rows_as_it_takes(tmp_path: Path) -> None:
    trial = trial_of(tmp_path, "TakesOneRow")
    tried = trial.run([make_batch([{"id": 1}, {"id": 2}, {"id": 3}], "id")], lambda *_: True)
    assert [one.outcome for one in tried] == ["sent", "dead-letter", "sent"]


def test_rows_that_a_handler_puts_aside_are_shown_where_the_sink_puts_them(tmp_path: Path) -> None:
    trial = trial_of(tmp_path)
    [tried] = trial.run([make_batch([{"id": 1}], "id")], lambda *_: True)
    [letter] = tried.dead_letters
    assert (letter.topic, letter.rule) == ("aside-topic", "r")


def test_a_table_that_a_handler_follows_is_told(tmp_path: Path) -> None:
    assert list(trial_of(tmp_path).list_changelogs()) == [("customers", "public.customers")]


def trial_of(tmp_path: Path, handler: str = "PutsAside") -> Trial:
    return Trial(load(write_config(tmp_path, handler), {}), "k")


def write_config(tmp_path: Path, handler: str) -> Path:
    config = tmp_path / "c.toml"
    config.write_text(
        f"""
        http = ":0"
        lmdb = "{tmp_path}/positions"
        [source.a]
        type = "tests.sqlite_source:SqliteSource"
        path = "x"
        table = "orders"
        [sink.k]
        type = "{__name__}:OwnSink"
        sources = ["a"]
        aside = "aside-topic"
        handlers = ["{__name__}:{handler}"]
        """
    )
    return config
