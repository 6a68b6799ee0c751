"""Parts that cannot take it that a position is durable: what becomes of it, and who is said to have failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from psql_streamer.checkpoint.checkpointer import Checkpointer
from psql_streamer.checkpoint.store import Store
from psql_streamer.errors import HandlerUnavailable, SourceRefused, SourceUnavailable
from psql_streamer.interfaces import Finding, Handler
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Batch, Position
from psql_streamer.options import HandlerOptions
from psql_streamer.pipeline.item import Item
from psql_streamer.pipeline.lifecycle import Lifecycle
from psql_streamer.pipeline.sink_runner import SinkRunner
from psql_streamer.pipeline.source_runner import SourceRunner
from tests.source_at_work import wait_for
from tests.unit.test_source_pace import SMALL, Gate, Scripted


class Confirming(Scripted):
    """Raises these errors, one with each position that is confirmed."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(SMALL)
        self.errors = list(errors)
        self.confirmed: list[int] = []

    def confirm(self, position: Position) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.confirmed.append(position.data["given"])


class Noting(Handler):
    """The same with each that is durable."""

    Options = HandlerOptions

    def __init__(self, *errors: Exception) -> None:
        super().__init__("own", HandlerOptions())
        self.errors = list(errors)

    def check(self) -> Iterable[Finding]:
        return ()

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def handle(self, batch: Batch) -> Batch:
        return batch

    def note_durable(self, source: str, position: Position) -> None:  # noqa: ARG002
        if self.errors:
            raise self.errors[0]


@contextmanager
def stored(folder: Path, source: Scripted, handler: Handler, batches: int) -> Iterator[tuple[SourceRunner, Lifecycle]]:
    """Source, sink and store at work, as the pipeline runs them; the sink writes so many batches."""
    metrics, store = Metrics(), Store(folder / "lmdb", 1 << 20)
    lifecycle, gate = Lifecycle(metrics, start_timeout=1.0), Gate("own")
    checkpointer = Checkpointer(lambda error: lifecycle.fail("store", error))

    def call(name: str) -> Callable[..., None]:
        return lambda *arguments: getattr(runner, name)(*arguments)

    done: Callable[[Item, str], None] = call("acknowledge")
    sink = SinkRunner(gate, [handler], metrics, lifecycle, call("wake"), done, lambda _: 0.01, lambda _: (b"{}", None))
    runner = SourceRunner(source, [sink], store, metrics, lifecycle, checkpointer.wake)
    store.open()
    sink.start()
    runner.start()
    checkpointer.start([runner.checkpoint])
    gate.let_through.release(batches)
    try:
        yield runner, lifecycle
    finally:
        lifecycle.stopping.set()
        gate.interrupt()
        runner.join(time.monotonic() + 10)
        sink.drain(time.monotonic() + 10)
        sink.interrupt()
        sink.stop()
        checkpointer.close(10)
        store.close()


def test_a_server_that_is_away_when_a_position_is_confirmed_is_an_outage_of_the_source(tmp_path: Path) -> None:
    source = Confirming(SourceUnavailable("the server is away"))
    with stored(tmp_path, source, Noting(), batches=1) as (_, lifecycle):
        wait_for(lambda: source.starts == 2, "another start")
        wait_for(lambda: source.confirmed[:1] == [1], "what was stored is confirmed behind the start")
        assert lifecycle.failure is None
    assert source.confirmed == sorted(source.confirmed), "positions that are confirmed go back"


def test_a_server_that_refuses_a_position_stops_the_service_as_the_source(tmp_path: Path) -> None:
    with stored(tmp_path, Confirming(SourceRefused("no such slot")), Noting(), batches=1) as (_, lifecycle):
        wait_for(lambda: lifecycle.failure is not None, "the failure")
    assert str(lifecycle.failure) == "source.db1: no such slot"


def test_a_position_is_stored_when_handlers_take_it_that_it_is_durable(tmp_path: Path) -> None:
    source, handler = Confirming(), Noting(HandlerUnavailable("no disk for what it keeps"))
    with stored(tmp_path, source, handler, batches=1) as (runner, lifecycle):
        wait_for(lambda: not runner.status().ok, "a status that says so")
        assert runner.status().reason == "its position is not stored: handler.own: no disk for what it keeps"
        assert source.confirmed == []
        handler.errors.clear()
        wait_for(lambda: source.confirmed == [1], "the position, without another batch")
        assert (runner.status().ok, lifecycle.failure) == (True, None)


def test_a_handler_that_fails_where_a_position_is_durable_stops_the_service_as_the_handler(tmp_path: Path) -> None:
    source = Confirming()
    with stored(tmp_path, source, Noting(RuntimeError("boo")), batches=1) as (_, lifecycle):
        wait_for(lambda: lifecycle.failure is not None, "the failure")
    assert str(lifecycle.failure) == "handler.own: unexpected RuntimeError: please report it with the log"
    assert source.confirmed == []
