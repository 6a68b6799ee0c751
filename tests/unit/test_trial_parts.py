"""What `try` asks of parts it asks of every part, also of somebody's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from psql_streamer.config.loading import load
from psql_streamer.interfaces import Finding, Handler
from psql_streamer.model import Batch, Rejection
from psql_streamer.options import HandlerOptions, SinkOptions
from psql_streamer.testing import make_batch
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


def test_rows_that_a_handler_puts_aside_are_shown_where_the_sink_puts_them(tmp_path: Path) -> None:
    trial = trial_of(tmp_path)
    [tried] = trial.run([make_batch([{"id": 1}], "id")], lambda *_: True)
    [letter] = tried.dead_letters
    assert (letter.topic, letter.rule) == ("aside-topic", "r")


def test_a_table_that_a_handler_follows_is_told(tmp_path: Path) -> None:
    assert list(trial_of(tmp_path).list_changelogs()) == [("customers", "public.customers")]


def trial_of(tmp_path: Path) -> Trial:
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
        handlers = ["{__name__}:PutsAside"]
        """
    )
    return Trial(load(config, {}), "k")
