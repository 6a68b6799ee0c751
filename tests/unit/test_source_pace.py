"""When a source is read: in a slow stream not before some sink has nothing left to do, in a fast one at once."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from psql_streamer.checkpoint.store import Store
from psql_streamer.errors import SourceUnavailable
from psql_streamer.interfaces import Finding, Source, Status
from psql_streamer.interfaces import Sink as SinkPart
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import NO_TRANSACTIONS, POSTGRESQL, Batch, LogicalMessage, Position, SourceInfo, Stats
from psql_streamer.options import SinkOptions, SourceOptions
from psql_streamer.pipeline.item import Item
from psql_streamer.pipeline.lifecycle import Lifecycle
from psql_streamer.pipeline.sink_runner import SinkRunner
from psql_streamer.pipeline.source_runner import SourceRunner

SMALL, LARGE = 1000, 1 << 20


class Scripted(Source):
    """Gives batches of one size for ever, and counts how often it was read."""

    def __init__(self, nbytes: int, least_interval: float = 0.0) -> None:
        super().__init__("db1", SourceOptions.model_validate({"type": "scripted", "startRetryInterval": "10ms"}))
        self._nbytes = nbytes
        self.least_interval = least_interval
        self.given = self.starts = 0
        self.ended: SourceUnavailable | None = None

    def check(self) -> Iterable[Finding]:
        return ()

    def read_stream_identity(self) -> Mapping[str, str]:
        return {}

    def has_reached(self, position: Position, mark: Position) -> bool:
        return bool(position.data["given"] >= mark.data["given"])

    def start(self, position: Position | None) -> None:  # noqa: ARG002 - wherever it is
        self.starts += 1
        self.ended = None

    @property
    def failure(self) -> SourceUnavailable | None:
        return self.ended

    def read(self, timeout: float) -> Batch | None:  # noqa: ARG002 - there is always something
        self.given += 1
        transactions = NO_TRANSACTIONS
        message = LogicalMessage("p", b"", 0, 0, self.given, -1)
        position = Position({"given": self.given}, str(self.given))
        origin = SourceInfo(POSTGRESQL, self.name, "h", "d")
        batch = Batch(origin, position, transactions, messages=(message,))
        return dataclasses.replace(batch, nbytes=batch.overhead + self._nbytes)

    def confirm(self, position: Position) -> None:
        pass

    def stop(self) -> None:
        pass

    def status(self) -> Status:
        return Status(True, "scripted")

    def stats(self) -> Stats:
        return {}


class Gate(SinkPart):
    """A write ends when it is let through. took: changes of the batches whose write has begun."""

    def __init__(self, name: str, **options: object) -> None:
        super().__init__(name, SinkOptions.model_validate({"type": "gate", "sources": ["db1"]} | options))
        self.took: list[int] = []
        self.begun = threading.Semaphore(0)
        self.let_through = threading.Semaphore(0)

    def check(self) -> Iterable[Finding]:
        return ()

    def start(self) -> None:
        pass

    def write(self, batch: Batch) -> None:
        self.took.append(len(batch))
        self.begun.release()
        self.let_through.acquire()

    def interrupt(self) -> None:
        self.let_through.release(1000)

    def stop(self) -> None:
        pass

    def status(self) -> Status:
        return Status(True, "a gate")

    def stats(self) -> Stats:
        return {}


@contextmanager
def at_work(folder: Path, source: Source, *gates: Gate) -> Iterator[SourceRunner]:
    """The source's thread and the sinks', as the pipeline runs them."""
    metrics, store = Metrics(), Store(folder / "lmdb", 1 << 20)
    lifecycle = Lifecycle(metrics, start_timeout=1.0)

    def done(item: Item, sink: str) -> None:
        runner.acknowledge(item, sink)

    def taken() -> None:
        runner.wake()

    sinks = [
        SinkRunner(gate, [], metrics, lifecycle, taken, done, lambda _: 1.0, lambda _: (b"{}", None)) for gate in gates
    ]
    runner = SourceRunner(source, sinks, store, metrics, lifecycle, lambda: None)
    store.open()
    for sink in sinks:
        sink.start()
    runner.start()
    try:
        yield runner
    finally:
        lifecycle.stopping.set()
        for gate in gates:
            gate.interrupt()
        runner.join(time.monotonic() + 10)
        for sink in sinks:
            sink.drain(deadline=0.0)
            sink.interrupt()
            sink.leave(time.monotonic() + 10)
            sink.stop()
        store.close()


def settled(source: Scripted) -> int:
    """How often it was read, once that no longer grows. A read that is due comes within microseconds."""
    before = -1
    while before != source.given:
        before = source.given
        threading.Event().wait(0.3)
    return before


def test_behind_a_small_batch_nothing_is_read_until_the_sink_has_it(tmp_path: Path) -> None:
    source, gate = Scripted(SMALL), Gate("a")
    with at_work(tmp_path, source, gate):
        for count in (1, 2, 3):
            assert gate.begun.acquire(timeout=10)
            assert settled(source) == count
            gate.let_through.release()


def test_a_source_that_keeps_a_pace_is_asked_while_a_sink_has_one_batch_if_that_took_the_last_one_faster(
    tmp_path: Path,
) -> None:
    source, gate = Scripted(SMALL, least_interval=60.0), Gate("a")
    with at_work(tmp_path, source, gate):
        assert gate.begun.acquire(timeout=10)
        assert settled(source) == 1, "nobody knows yet how fast the sink is"
        gate.let_through.release()
        assert gate.begun.acquire(timeout=10)
        assert settled(source) == 3, "one batch at most waits behind the one in the sink"
        gate.let_through.release()
        assert gate.begun.acquire(timeout=10)
        assert settled(source) == 4


def test_a_source_that_keeps_a_pace_is_not_asked_before_a_sink_that_is_slower_has_all(tmp_path: Path) -> None:
    source, gate = Scripted(SMALL, least_interval=0.01), Gate("a")
    with at_work(tmp_path, source, gate):
        for count in (1, 2, 3):
            assert gate.begun.acquire(timeout=10)
            assert settled(source) == count  # which takes longer than the source's interval
            gate.let_through.release()


def test_behind_a_large_batch_the_next_are_read_while_the_sink_is_at_work(tmp_path: Path) -> None:
    source, gate = Scripted(LARGE), Gate("a")
    with at_work(tmp_path, source, gate):
        assert gate.begun.acquire(timeout=10)
        assert settled(source) == 2  # one in the sink, and the next one in its queue


def test_a_session_that_ends_while_a_sink_keeps_the_source_from_being_read_is_noticed(tmp_path: Path) -> None:
    source, gate = Scripted(SMALL), Gate("a")
    with at_work(tmp_path, source, gate) as runner:
        assert gate.begun.acquire(timeout=10)
        assert settled(source) == 1
        source.ended = SourceUnavailable("the session has ended")
        deadline = time.monotonic() + 10
        while source.starts < 2:
            assert time.monotonic() < deadline, runner.status().reason
            threading.Event().wait(0.01)
        assert settled(source) == 1


@pytest.mark.behaviour("K7")
def test_a_sink_that_is_done_is_not_kept_waiting_by_one_that_is_not(tmp_path: Path) -> None:
    source, fast, slow = Scripted(SMALL), Gate("fast"), Gate("slow")
    with at_work(tmp_path, source, fast, slow):
        assert slow.begun.acquire(timeout=10)
        assert settled(source) == 1
        fast.let_through.release()
        assert fast.begun.acquire(timeout=10)
        assert fast.begun.acquire(timeout=10)
        assert settled(source) == 2


@pytest.mark.behaviour("K7")
def test_a_sink_that_is_away_does_not_stop_its_neighbour_until_its_queue_is_full_in_bytes(tmp_path: Path) -> None:
    source, fast, away = Scripted(SMALL), Gate("fast"), Gate("away", queueBytes="4MB")
    with at_work(tmp_path, source, fast, away):
        assert away.begun.acquire(timeout=10)
        for _ in range(500):
            fast.let_through.release()
            assert fast.begun.acquire(timeout=10), f"the neighbour stands still after {source.given} batches"
        away.let_through.release()
        assert away.begun.acquire(timeout=10)
        assert away.took[1] > 100, "what waited was put together"


@pytest.mark.behaviour("O3")
def test_a_queue_that_is_full_in_bytes_stops_the_reading(tmp_path: Path) -> None:
    source, fast, away = Scripted(LARGE), Gate("fast"), Gate("away", queueBytes="4MB")
    fast.let_through.release(1000)
    with at_work(tmp_path, source, fast, away):
        assert away.begun.acquire(timeout=10)
        assert settled(source) == 5  # one in the sink, three in its queue of 4 MB, one that finds no room
