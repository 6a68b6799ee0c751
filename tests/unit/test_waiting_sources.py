"""Several sources start one after the other: one that waits for its server holds back no other's position."""

from __future__ import annotations

import threading
from pathlib import Path

from psql_streamer.config.loading import load
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Position
from psql_streamer.options import SourceOptions
from psql_streamer.pipeline.pipeline import Pipeline
from tests.source_at_work import wait_for
from tests.unit.test_source_pace import SMALL, Scripted

CONFIG = """
http = "127.0.0.1:0"
lmdb = "{folder}/positions"
[source.first]
type = "tests.unit.test_waiting_sources:GivingSource"
[source.second]
type = "tests.unit.test_waiting_sources:WaitingSource"
[sink.s]
type = "stub_discard"
sources = ["first", "second"]
"""


class GivingSource(Scripted):
    """Gives batches for ever."""

    Options = SourceOptions

    def __init__(self, name: str, options: SourceOptions) -> None:
        super().__init__(SMALL)
        self.name, self.options = name, options


class WaitingSource(GivingSource):
    """Its start does not end before the server is there."""

    server_is_there = threading.Event()

    def start(self, position: Position | None) -> None:
        assert self.server_is_there.wait(60)
        super().start(position)


def test_what_a_source_has_delivered_is_stored_while_another_one_cannot_start(tmp_path: Path) -> None:
    config = tmp_path / "psql-streamer.toml"
    config.write_text(CONFIG.format(folder=tmp_path))
    pipeline = Pipeline(load(config, {}), Metrics())
    starting = threading.Thread(target=pipeline.start)
    starting.start()
    try:
        wait_for(lambda: bool(pipeline.stats()["source.first"].get("stored_position")), "a stored position")
        assert pipeline.status()["source.second"].reason == "has not started yet"
    finally:
        WaitingSource.server_is_there.set()
        starting.join(10)
        pipeline.close()
