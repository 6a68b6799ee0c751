"""What /status says of a source beside the source's own words."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from psql_streamer.checkpoint.store import Store
from psql_streamer.errors import QuietStreamEnded, SourceUnavailable
from psql_streamer.interfaces import Status
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Batch, Position
from psql_streamer.options import SourceOptions
from psql_streamer.pipeline import source_runner
from psql_streamer.pipeline.lifecycle import Lifecycle
from psql_streamer.pipeline.source_runner import SourceRunner
from tests.source_at_work import wait_for
from tests.unit.test_source_pace import LARGE, SMALL, Gate, Scripted, at_work, settled


class StuckStore(Store):
    """Its disk answers when it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, 1 << 20)
        self.asked, self.answers = threading.Event(), threading.Event()

    def put(self, *_: object) -> None:  # type: ignore[override]  # whatever it is
        self.asked.set()
        self.answers.wait(10)


class Losing(Scripted):
    """Loses its connection once, behind the fourth batch, and cannot connect until it is let."""

    def __init__(self) -> None:
        super().__init__(LARGE)
        self.options = SourceOptions.model_validate({"type": "scripted", "startRetryInterval": "10ms"})
        self.lost, self.may_connect = False, threading.Event()

    def start(self, position: Position | None) -> None:  # noqa: ARG002 - wherever it is
        if self.lost and not self.may_connect.is_set():
            raise SourceUnavailable("connection refused")

    def read(self, timeout: float) -> Batch | None:
        if self.given == 4 and not self.lost:
            self.lost = True
            raise SourceUnavailable("the server closed the connection")
        return super().read(timeout)


def test_a_source_says_how_often_it_tried_and_is_well_once_connected_though_no_sink_has_room(tmp_path: Path) -> None:
    source, fast, away = Losing(), Gate("fast"), Gate("away", queueBytes="4MB")
    fast.let_through.release(1000)
    with at_work(tmp_path, source, fast, away) as runner:
        wait_for(lambda: "failed: connection refused" in runner.status().reason, "an attempt that failed")
        assert re.fullmatch(r"attempt \d+ failed: connection refused", runner.status().reason)
        source.may_connect.set()
        wait_for(lambda: source.given == 5, "the batch that finds no room")
        assert settled(source) == 5
        assert runner.status() == Status(True, "scripted")


class Stuck(Scripted):
    """Can be started at any time, and fails behind the fourth batch, a moment after the start, until it is mended."""

    def __init__(self) -> None:
        super().__init__(LARGE)
        self.options = SourceOptions.model_validate({"type": "scripted", "startRetryInterval": "100ms"})
        self.mended, self.looks = threading.Event(), 0

    def start(self, position: Position | None) -> None:  # noqa: ARG002 - wherever it is
        self.looks = 0

    def read(self, timeout: float) -> Batch | None:
        if self.given == 4 and not self.mended.is_set():
            self.looks += 1
            if self.looks > 1:
                raise SourceUnavailable("the row is too large")
            self.mended.wait(0.05)
            return None
        return super().read(timeout)


def test_a_stream_that_fails_each_time_at_the_same_place_is_not_well_between_its_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, sink = Stuck(), Gate("sink")
    sink.let_through.release(1000)
    with at_work(tmp_path, source, sink) as runner:
        wait_for(lambda: "at the same place" in runner.status().reason, "a third failure", 10)

        def has_failed_again() -> bool:
            reason = runner.status().reason
            assert "at the same place" in reason
            assert reason.endswith(": the row is too large")
            return "failed 5 times" in reason

        wait_for(has_failed_again, "two failures more", 10)
        source.mended.set()
        wait_for(lambda: runner.status() == Status(True, "scripted"), "the stream to get on", 10)
    pauses = [float(found[1]) for found in re.finditer(r"next in ([\d.]+) s", caplog.text)]
    assert pauses[-1] > 2 * pauses[0], "the same WAL is not decoded again without a pause"


class Quiet(Stuck):
    """Behind the fourth batch nothing comes, and the connection is dropped again and again."""

    starts = 0

    def start(self, position: Position | None) -> None:
        super().start(position)
        self.starts += 1

    def read(self, timeout: float) -> Batch | None:
        try:
            return super().read(timeout)
        except SourceUnavailable:
            raise QuietStreamEnded("the server closed the connection") from None


def test_a_quiet_stream_whose_connection_is_dropped_again_and_again_does_not_count_as_one_that_fails_at_a_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, sink = Quiet(), Gate("sink")
    sink.let_through.release(1000)
    with at_work(tmp_path, source, sink) as runner:

        def is_begun_anew() -> bool:
            assert "at the same place" not in runner.status().reason
            return source.starts > 5

        wait_for(is_begun_anew, "five drops", 10)
        source.mended.set()
        wait_for(lambda: runner.status() == Status(True, "scripted"), "the stream to get on", 10)
    pauses = [float(found[1]) for found in re.finditer(r"next in ([\d.]+) s", caplog.text)]
    assert max(pauses) <= 0.2


def test_a_disk_that_does_not_take_the_position_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_runner, "_STORE_STALLED_AFTER_SECONDS", 0.0)
    metrics, store = Metrics(), StuckStore(tmp_path / "positions.lmdb")
    store.open()
    runner = SourceRunner(Scripted(SMALL), [], store, metrics, Lifecycle(metrics, start_timeout=1.0), lambda: None)
    monkeypatch.setattr(runner, "_is_started", lambda: True)
    runner._begin({})
    runner._read()
    keeping = threading.Thread(target=runner.checkpoint)
    keeping.start()
    assert store.asked.wait(10)
    told = "its position has not been stored for 0 s: look at the disk that lmdb is on"
    assert runner.status() == Status(False, told)
    store.answers.set()
    keeping.join()
    assert runner.status() == Status(True, "scripted")
    store.close()


def test_a_source_is_not_well_before_it_is_read_from(tmp_path: Path) -> None:
    metrics, store = Metrics(), Store(tmp_path / "positions.lmdb", 1 << 20)
    store.open()
    lifecycle = Lifecycle(metrics, start_timeout=1.0)
    runner = SourceRunner(Scripted(SMALL), [], store, metrics, lifecycle, lambda: None)
    runner.snapshots.load()
    assert Scripted(SMALL).status() == Status(True, "scripted")
    assert (runner.status(), runner.snapshots.complete) == (Status(False, "has not started yet"), False)
    runner.start()
    assert (runner.status(), runner.snapshots.complete) == (Status(True, "scripted"), True)
    lifecycle.stopping.set()
    runner.join(time.monotonic() + 10)
    store.close()
