"""What a sink and its handlers say while they start, fail and work again."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from psql_streamer.batching import JOINED_BATCHES
from psql_streamer.errors import HandlerUnavailable, SinkUnavailable
from psql_streamer.interfaces import Finding, Handler, Sink, Status
from psql_streamer.lsn import Lsn
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import (
    NO_TRANSACTIONS,
    OUTSIDE,
    POSTGRESQL,
    Batch,
    LogicalMessage,
    Rejection,
    SourceInfo,
    Stats,
)
from psql_streamer.options import HandlerOptions, SinkOptions
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.pipeline.item import Item
from psql_streamer.pipeline.lifecycle import Lifecycle
from psql_streamer.pipeline.sink_runner import SinkRunner
from tests.spark_changes import shop

_BATCH = Batch(
    SourceInfo(POSTGRESQL, "db1", "h", "d"),
    WalPosition(Lsn(8)).position,
    NO_TRANSACTIONS,
    messages=(LogicalMessage("p", b"", 0, OUTSIDE, 8, -1),),
)


class Failing(Sink):
    """Fails as often as it was told to, then works."""

    def __init__(self, failures: int) -> None:
        super().__init__("k", SinkOptions.model_validate({"type": "failing", "sources": ["db1"]}))
        self.failures = failures
        self.wrote = threading.Event()

    def check(self) -> Iterable[Finding]:
        return ()

    def start(self) -> None:
        pass

    def write(self, batch: Batch) -> None:  # noqa: ARG002 - whatever it is
        if self.failures:
            self.failures -= 1
            raise SinkUnavailable("brokers are away")
        self.wrote.set()

    def interrupt(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def status(self) -> Status:
        return Status(True, "well")

    def stats(self) -> Stats:
        return {}


class Recording(Failing):
    """Keeps the messages that it wrote."""

    def __init__(self) -> None:
        super().__init__(0)
        self.written: list[bytes] = []

    def write(self, batch: Batch) -> None:
        self.written += [message.content for message in batch.messages]


class Engine(Handler):
    """Starts when it is let; fails as often as it was told to."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__("engine", HandlerOptions())
        self.failures = failures
        self.may_start = threading.Event()

    def check(self) -> Iterable[Finding]:
        return ()

    def start(self) -> None:
        self.may_start.wait(10)

    def handle(self, batch: Batch) -> Batch:
        if self.failures:
            self.failures -= 1
            raise HandlerUnavailable("the engine stumbled")
        return batch

    def stop(self) -> None:
        pass

    def status(self) -> Status:
        return Status(True, "the engine runs")


class Exiting(Engine):
    """Calls sys.exit() for a batch, as code of somebody else may."""

    def handle(self, batch: Batch) -> Batch:  # noqa: ARG002 - whatever it is
        sys.exit(3)


def _runner(sink: Sink, *handlers: Handler, pause: float = 0.001, lifecycle: Lifecycle | None = None) -> SinkRunner:
    metrics = Metrics()
    lifecycle = lifecycle or Lifecycle(metrics, start_timeout=10.0)
    return SinkRunner(sink, handlers, metrics, lifecycle, lambda: None, lambda *_: None, lambda _: pause, _describe)


def _describe(_: Item) -> tuple[bytes, None]:
    return b"{}", None


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _end(runner: SinkRunner) -> None:
    runner.drain(0.0)
    runner.interrupt()
    runner.leave(time.monotonic() + 10)


def test_handlers_and_sinks_say_that_they_start_until_they_have_started() -> None:
    engine = Engine()
    runner = _runner(Failing(0), engine)
    starter = threading.Thread(target=runner.start)
    starter.start()
    assert runner.collect_handler_status() == {"handler.engine": Status(False, "starting")}
    assert runner.status() == Status(False, "starting")
    engine.may_start.set()
    starter.join()
    assert runner.collect_handler_status() == {"handler.engine": Status(True, "the engine runs")}
    assert runner.status() == Status(True, "well")
    _end(runner)


def test_a_sink_that_works_again_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sink = Failing(2)
    runner = _runner(sink)
    runner.start()
    runner.take(Item(_BATCH, (1,)))
    assert sink.wrote.wait(10)
    _until(lambda: "sink.k: works again, after 3 attempts in " in caplog.text)
    assert runner.status().ok
    _end(runner)


def test_a_handler_that_is_tried_again_is_not_its_sinks_problem(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    engine = Engine(failures=2)
    engine.may_start.set()
    runner = _runner(Failing(0), engine, pause=0.1)
    runner.start()
    runner.take(Item(_BATCH, (1,)))
    _until(lambda: not runner.collect_handler_status()["handler.engine"].ok)
    assert "attempt 1 failed: the engine stumbled" in runner.collect_handler_status()["handler.engine"].reason
    assert runner.status().ok
    _until(lambda: runner.collect_handler_status()["handler.engine"].ok)
    _until(lambda: "handler.engine: works again, after 3 attempts in " in caplog.text)
    _end(runner)


def test_rows_that_were_put_aside_do_not_vanish_in_a_sink_that_does_not_take_them() -> None:
    """Also where no option of the handler has said that there would be some."""
    sink, lifecycle = Failing(0), Lifecycle(Metrics(), start_timeout=10.0)
    runner = _runner(sink, lifecycle=lifecycle)
    runner.start()
    rejection = Rejection(shop(), "a reason", None, "a rule")
    runner.take(Item(replace(_BATCH, rejections=(rejection,)), (1,)))
    assert lifecycle.stopping.wait(10)
    assert "sink.k: rule 'a rule' puts rows aside, and sinks of this type lose such rows" in str(lifecycle.failure)
    assert not sink.wrote.is_set()
    _end(runner)


def test_a_handler_that_calls_exit_stops_the_service_and_does_not_leave_it_without_a_thread() -> None:
    engine, lifecycle = Exiting(), Lifecycle(Metrics(), start_timeout=10.0)
    engine.may_start.set()
    runner = _runner(Failing(0), engine, lifecycle=lifecycle)
    runner.start()
    runner.take(Item(_BATCH, (1,)))
    assert lifecycle.stopping.wait(10)
    assert "handler.engine: unexpected SystemExit" in str(lifecycle.failure)
    _end(runner)


def test_nothing_is_said_of_draining_where_nothing_was_to_drain(caplog: pytest.LogCaptureFixture) -> None:
    runner = _runner(Failing(0))
    runner.start()
    _end(runner)
    assert "not drained" not in caplog.text


def test_what_a_deadline_cuts_off_is_told(caplog: pytest.LogCaptureFixture) -> None:
    sink = Failing(1_000_000)
    runner = _runner(sink, pause=0.001)
    runner.start()
    runner.take(Item(_BATCH, (1,)))
    _until(lambda: not runner.status().ok)
    _end(runner)
    assert "sink.k: not drained in time: the rest will be read again after the restart" in caplog.text


def test_behind_a_failure_nobody_says_that_there_was_a_time_to_drain_in(caplog: pytest.LogCaptureFixture) -> None:
    lifecycle = Lifecycle(Metrics(), start_timeout=10.0)
    runner = _runner(Failing(0), lifecycle=lifecycle)
    runner.start()
    runner.take(Item(replace(_BATCH, rejections=(Rejection(shop(), "a reason", None, "a rule"),)), (1,)))
    assert lifecycle.stopping.wait(10)
    _end(runner)
    assert "sink.k: not drained because of the failure: the rest will be read again" in caplog.text
    assert "in time" not in caplog.text


def test_attempts_are_counted_one_by_one_also_while_the_service_stops(caplog: pytest.LogCaptureFixture) -> None:
    sink = Failing(2)
    lifecycle = Lifecycle(Metrics(), start_timeout=10.0)
    runner = _runner(sink, lifecycle=lifecycle)
    runner.start()
    lifecycle.stopping.set()
    runner.take(Item(_BATCH, (1,)))
    assert sink.wrote.wait(10)
    told = [record.getMessage().split(",")[0] for record in caplog.records if "brokers are away" in record.getMessage()]
    assert told == [f"sink.k: brokers are away (attempt {number}" for number in (1, 2)]
    _end(runner)


def test_a_pause_ends_when_the_sink_is_interrupted() -> None:
    runner = _runner(Failing(1), pause=1000.0)
    runner.start()
    runner.take(Item(_BATCH, (1,)))
    _until(lambda: not runner.status().ok)
    _end(runner)
    assert runner.hanging == []


class Narrow(Engine):
    """Wants two changes at once, after them one; fails in the second batch."""

    def __init__(self) -> None:
        super().__init__()
        self.may_start.set()
        self.handled: list[list[int]] = []

    @property
    def most_rows(self) -> int:
        return 1 if self.handled else 2

    def handle(self, batch: Batch) -> Batch:
        if len(self.handled) == 1 and not self.failures:
            self.failures = 1
            raise HandlerUnavailable("the engine stumbled")
        self.handled.append([message.batch_order for message in batch.messages])
        return batch


class Waits(Failing):
    """Writes when it is let."""

    def __init__(self) -> None:
        super().__init__(0)
        self.may_write = threading.Semaphore(0)

    def write(self, batch: Batch) -> None:
        assert self.may_write.acquire(timeout=30)
        super().write(batch)


class Counting(Engine):
    """Counts the batches that it got."""

    handled = 0

    def handle(self, batch: Batch) -> Batch:
        self.handled += 1
        return super().handle(batch)


def test_a_handler_begins_no_batch_before_its_last_result_was_taken() -> None:
    """A batch in work at the sink, one that waits for it: a third one would only be in memory."""
    sink, engine = Waits(), Counting()
    engine.may_start.set()
    runner = _runner(sink, engine)
    runner.start()
    for number in range(4):
        runner.take(Item(_BATCH, (number,)))
    _until(lambda: engine.handled == 2)
    time.sleep(0.1)  # it would go on within microseconds
    assert engine.handled == 2
    sink.may_write.release()
    _until(lambda: engine.handled == 3)
    for _ in range(3):
        sink.may_write.release()
    _until(lambda: engine.handled == 4)
    _end(runner)


def test_a_handler_gets_as_many_rows_as_it_wants_and_none_twice_that_were_passed_on() -> None:
    told = tuple(LogicalMessage("p", b"", at, OUTSIDE, 8 + at, -1) for at in range(5))
    engine, done = Narrow(), list[Item]()
    sink, metrics = Failing(0), Metrics()
    lifecycle = Lifecycle(metrics, start_timeout=10.0)
    runner = SinkRunner(
        sink, [engine], metrics, lifecycle, lambda: None, lambda item, _: done.append(item), lambda _: 0.001, _describe
    )
    runner.start()
    runner.take(Item(replace(_BATCH, messages=told), (1,)))
    _until(lambda: bool(done) and bool(done[-1].batch_numbers))
    assert engine.handled == [[0, 1], [2], [3], [4]]
    assert [[message.batch_order for message in item.batch.messages] for item in done] == engine.handled
    assert [item.batch_numbers for item in done] == [(), (), (), (1,)]
    _end(runner)


@pytest.mark.parametrize("places", [[10], [0, 31], [1, 2, 20], list(range(0, 32, 2))])
def test_batches_that_wait_are_written_in_their_order_also_where_their_origins_differ(places: list[int]) -> None:
    """As of a source that reads what several servers wrote."""
    sink = Recording()
    runner = _runner(sink)
    one, other = SourceInfo(POSTGRESQL, "db1", "h", "d"), SourceInfo(POSTGRESQL, "db1", "h", "d", "another server")
    for number in range(JOINED_BATCHES):
        message = replace(_BATCH.messages[0], content=b"%d" % number)
        source = other if number in places else one
        runner.take(Item(replace(_BATCH, source=source, messages=(message,)), (number,)))
    runner.start()
    _until(lambda: len(sink.written) == JOINED_BATCHES)
    _end(runner)
    assert sink.written == [b"%d" % number for number in range(JOINED_BATCHES)]


class Unsteady(Failing):
    """Fails where the pipeline asks how many rows it likes, behind its start."""

    def __init__(self) -> None:
        super().__init__(0)
        self.fails = False

    @property
    def rows_at_once(self) -> int:
        if self.fails:
            raise ZeroDivisionError
        return 2


def test_an_error_in_front_of_a_write_stops_the_service_like_one_in_it() -> None:
    sink, lifecycle = Unsteady(), Lifecycle(Metrics(), start_timeout=10.0)
    runner = _runner(sink, lifecycle=lifecycle)
    runner.start()
    sink.fails = True
    runner.take(Item(_BATCH, (1,)))
    assert lifecycle.stopping.wait(10)
    assert "sink.k: unexpected ZeroDivisionError" in str(lifecycle.failure)
    _end(runner)


_VALUE = "hunter2"


class Broken(Failing):
    """Raises wherever it is asked."""

    def interrupt(self) -> None:
        raise ZeroDivisionError(_VALUE)

    def stop(self) -> None:
        raise ZeroDivisionError(_VALUE)

    def status(self) -> Status:
        raise ZeroDivisionError(_VALUE)

    def stats(self) -> Stats:
        raise ZeroDivisionError(_VALUE)


class Stopped(Engine):
    """Remembers its stop."""

    def __init__(self) -> None:
        super().__init__()
        self.may_start.set()
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


def test_a_part_that_raises_where_it_is_asked_keeps_no_other_from_its_stop_and_from_being_seen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Stopped()
    runner = _runner(Broken(0), engine)
    runner.start()
    assert runner.status() == Status(False, "its status raises ZeroDivisionError: see the log")
    assert runner.stats()["queue_bytes"] == 0
    _end(runner)
    runner.stop()
    assert engine.stopped
    for method in ("interrupt", "stop", "status", "stats"):
        assert f"sink.k: unexpected ZeroDivisionError in {method}\n" in caplog.text
    assert _VALUE not in caplog.text
