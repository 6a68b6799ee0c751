"""What /status says of a source beside the source's own words."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from psql_streamer import source_runner
from psql_streamer.interfaces import Status
from psql_streamer.metrics import Metrics
from psql_streamer.source_runner import SourceRunner
from psql_streamer.store import Store
from psql_streamer.supervisor import Supervisor
from tests.unit.test_source_pace import SMALL, Scripted


class StuckStore(Store):
    """Its disk answers when it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, 1 << 20)
        self.asked, self.answers = threading.Event(), threading.Event()

    def put(self, *_: object) -> None:  # type: ignore[override]  # whatever it is
        self.asked.set()
        self.answers.wait(10)


def test_a_disk_that_does_not_take_the_position_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_runner, "_STORE_STALLED_AFTER", 0.0)
    metrics, store = Metrics(), StuckStore(tmp_path / "positions.lmdb")
    store.open()
    runner = SourceRunner(Scripted(SMALL), [], store, metrics, Supervisor(metrics, start_timeout=1.0), lambda: None)
    runner._begin({})
    runner._read()
    keeping = threading.Thread(target=runner.keep)
    keeping.start()
    assert store.asked.wait(10)
    told = "its position has not been stored for 0 s: look at the disk that lmdb is on"
    assert runner.status() == Status(False, told)
    store.answers.set()
    keeping.join()
    assert runner.status() == Status(True, "scripted")
    store.close()
