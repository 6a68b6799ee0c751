"""A part has failed, and the others are stopped: a source is not stopped under the thread that reads it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from psql_streamer.config.loading import load
from psql_streamer.errors import SinkRefused
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Batch
from psql_streamer.options import SourceOptions
from psql_streamer.pipeline.pipeline import Pipeline
from tests.unit.test_source_pace import SMALL, Scripted

CONFIG = """
http = "127.0.0.1:0"
lmdb = "{folder}/positions"
[source.db1]
type = "tests.unit.test_failing_stop:{source}"
[sink.s]
type = "stub_discard"
sources = ["db1"]
"""


class ReadingSource(Scripted):
    """Gives a batch, and then finds nothing, which takes some time. It reads from what `stop` takes away."""

    Options = SourceOptions
    seconds = 0.5
    was_stopped_under_its_thread = False

    def __init__(self, name: str, options: SourceOptions) -> None:  # noqa: ARG002 - what Scripted has does
        super().__init__(SMALL)
        self.is_stopped = threading.Event()
        self.is_reading = threading.Event()

    def read(self, timeout: float) -> Batch | None:
        if not self.given:
            return super().read(timeout)
        self.is_reading.set()
        if self.is_stopped.wait(self.seconds):
            self.was_stopped_under_its_thread = True
            raise AttributeError("it has nothing to read from any more")
        return None

    def stop(self) -> None:
        self.is_stopped.set()


class HangingSource(ReadingSource):
    """Its reads do not end before it is stopped."""

    seconds = 60.0


@pytest.mark.parametrize(("source", "hangs"), [("ReadingSource", False), ("HangingSource", True)])
def test_a_source_that_is_being_read_while_another_part_fails_does_not_fail_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str, hangs: bool
) -> None:
    config = tmp_path / "psql-streamer.toml"
    config.write_text(CONFIG.format(folder=tmp_path, source=source))
    pipeline = Pipeline(load(config, {}), Metrics())
    pipeline.start()
    reading = pipeline._sources["db1"].part
    assert isinstance(reading, ReadingSource)
    assert reading.is_reading.wait(10)
    pipeline._lifecycle.fail("sink.s", SinkRefused("it takes nothing"))
    with pytest.raises(SinkRefused, match=r"sink\.s: it takes nothing"):
        pipeline.wait()
    pipeline.close()
    pipeline._sources["db1"].join(time.monotonic() + 10)
    assert reading.is_stopped.is_set()
    assert reading.was_stopped_under_its_thread is hangs, "what hangs is not waited for"
    assert "stopping: sink.s: it takes nothing" in caplog.text
    assert "AttributeError" not in caplog.text
