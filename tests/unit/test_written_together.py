"""Which of the batches that wait a sink gets at once."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pytest

from psql_streamer.batching import TOGETHER_BATCHES
from psql_streamer.errors import SinkUnavailable
from psql_streamer.interfaces import Finding, Handler, Sink
from psql_streamer.lsn import Lsn
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import NO_TRANSACTIONS, OUTSIDE, POSTGRESQL, Batch, LogicalMessage, SourceInfo
from psql_streamer.options import HandlerOptions
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.pipeline import sink_runner, waiting
from psql_streamer.pipeline.bounded_queue import BoundedQueue
from psql_streamer.pipeline.item import Item
from psql_streamer.pipeline.lifecycle import Lifecycle
from psql_streamer.pipeline.sink_runner import SinkRunner
from psql_streamer.pipeline.waiting import Waiting
from psql_streamer.testing import make_batch
from tests.config_files import MemoryOptions, MemorySink
from tests.kafka_sinks import wait_until

ROWS = 10
"""Of each of BATCHES. A message counts as a row."""

BATCHES = [
    Batch(
        SourceInfo(POSTGRESQL, "db1", "h", "d"),
        WalPosition(Lsn(8 * at)).position,
        NO_TRANSACTIONS,
        messages=(LogicalMessage("p", b"", 0, OUTSIDE, 8, -1),) * ROWS,
        nbytes=1000,
    )
    for at in range(1, 7)
]


class Several(MemorySink):
    """Takes some batches at once, each time when it may. gets: what it was given, by index in BATCHES."""

    def __init__(self, at_once: int, failures: int = 0) -> None:
        super().__init__(
            "k", MemoryOptions.model_validate({"type": "several", "sources": ["db1"], "greeting": "hello"})
        )
        self.at_once = at_once
        self.failures = failures
        self.gets: list[list[int]] = []
        self.calls = threading.Semaphore(0)
        self.may_go_on = threading.Semaphore(0)

    @property
    def rows_at_once(self) -> int:
        return self.at_once * ROWS

    def begin_write(self, batches: Iterator[Batch]) -> Callable[[], None]:
        given: list[Batch] = []

        def write() -> None:
            given.extend(batches)
            self._write_all(given)

        return write

    def _write_all(self, batches: Sequence[Batch]) -> None:
        self.gets.append([next(at for at, one in enumerate(BATCHES) if one is batch) for batch in batches])
        self.calls.release()
        assert self.may_go_on.acquire(timeout=10)
        if len(self.gets) > 1 and self.failures:
            self.failures -= 1
            raise SinkUnavailable("brokers are away")


class AtWork:
    """A runner of it, which has begun the first batch, and has the others waiting."""

    def __init__(self, sink: Several) -> None:
        self.done: list[int] = []
        self.sink = sink
        self.runner = make_runner(sink, self._note)
        self.runner.start()
        self.runner.take(Item(BATCHES[0], (0,)))
        assert sink.calls.acquire(timeout=10)
        for number, batch in enumerate(BATCHES[1:], 1):
            self.runner.take(Item(batch, (number,)))

    def finish(self) -> None:
        for _ in range(10):
            self.sink.may_go_on.release()
        wait_until(lambda: len(self.done) == len(BATCHES), 10)
        self.runner.drain(time.monotonic() + 10)

    def _note(self, item: Item, _: str) -> None:
        self.done += item.batch_numbers


class Passing(Handler):
    """Gives the very rows that it gets."""

    def __init__(self) -> None:
        super().__init__("passing", HandlerOptions())

    def check(self) -> Iterable[Finding]:
        return ()

    def start(self) -> None:
        pass

    def handle(self, batch: Batch) -> Batch:
        return batch

    def stop(self) -> None:
        pass


def make_runner(
    sink: Sink,
    on_done: Callable[[Item, str], None],
    handlers: Sequence[Handler] = (),
    lifecycle: Lifecycle | None = None,
    on_taken: Callable[[], None] = lambda: None,
) -> SinkRunner:
    metrics = Metrics()
    return SinkRunner(
        sink,
        handlers,
        metrics,
        lifecycle or Lifecycle(metrics, start_timeout=10.0),
        on_taken,
        on_done,
        lambda _: 0.001,
        lambda _: (b"", lambda: None),
    )


def test_a_sink_gets_as_many_of_the_batches_that_wait_as_it_takes() -> None:
    work = AtWork(Several(3))
    work.finish()
    assert work.sink.gets == [[0], [1, 2, 3], [4, 5]]
    assert work.done == [0, 1, 2, 3, 4, 5]


def test_a_sink_that_takes_one_gets_one() -> None:
    work = AtWork(Several(1))
    work.finish()
    assert work.sink.gets == [[number] for number in range(6)]


def test_what_failed_comes_again_before_any_other_and_nothing_of_it_counts_before() -> None:
    work = AtWork(Several(3, failures=2))
    work.finish()
    assert work.sink.gets == [[0], [1, 2, 3], [1, 2, 3], [1, 2, 3], [4, 5]]
    assert work.done == [0, 1, 2, 3, 4, 5]


def test_no_further_batch_is_taken_behind_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    size = Item(BATCHES[0], (0,)).nbytes
    monkeypatch.setattr(waiting, "TOGETHER_BYTES", 2 * size)
    work = AtWork(Several(5))
    work.finish()
    assert work.sink.gets == [[0], [1, 2], [3, 4], [5]]


@pytest.mark.parametrize(("rows", "taken"), [(1, 1), (14, 1), (16, 2), (25, 2), (26, 3), (34, 3)])
def test_the_batches_that_are_taken_have_about_as_many_rows_as_the_sink_likes(rows: int, taken: int) -> None:
    items = iter([Item(batch, ()) for batch in BATCHES])
    batches = Waiting(next(items), lambda _: next(items, None), lambda: rows, lambda _: None)
    assert len([*batches]) == taken
    assert len(batches.taken) == taken


def test_batches_without_rows_are_taken_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a transaction that has only its end, and what filters have left nothing of."""
    monkeypatch.setattr(waiting, "TOGETHER_BATCHES", 4)
    items = iter([Item(replace(batch, messages=()), ()) for batch in BATCHES])
    assert len([*Waiting(next(items), lambda _: next(items, None), lambda: 1, lambda _: None)]) == 4


def test_a_sink_that_learns_from_what_it_takes_that_it_likes_more_is_offered_more() -> None:
    items, liked = iter([Item(batch, ()) for batch in BATCHES]), ROWS
    batches = Waiting(next(items), lambda _: next(items, None), lambda: liked, lambda _: None)
    next(batches)
    liked = 3 * ROWS
    assert len([*batches]) == 2


def test_a_sink_waits_for_no_further_batch_while_it_has_few_bytes() -> None:
    """In a slow stream, where none may come for hours."""
    waits: list[float] = []
    assert len([*Waiting(Item(BATCHES[0], ()), waits.append, lambda: 5 * ROWS, lambda _: None)]) == 1
    assert waits == [0.0]


def test_a_sink_that_has_many_bytes_waits_for_further_batches_which_the_source_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = BoundedQueue[Item](1 << 20)
    monkeypatch.setattr(waiting, "TOGETHER_SECONDS", 60.0)
    monkeypatch.setattr(waiting, "AHEAD_BYTES", Item(BATCHES[0], ()).nbytes)
    batches, given = Waiting(Item(BATCHES[0], ()), queue.get, lambda: 3 * ROWS, lambda _: None), list[Batch]()
    thread = threading.Thread(target=given.extend, args=(batches,))
    thread.start()
    for batch in BATCHES[1:3]:
        queue.put(Item(batch, ()), threading.Event())
    thread.join(30)
    assert given == BATCHES[:3]


def test_what_a_sink_waits_for_further_batches_is_bounded_for_all_of_them_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each comes just before the time is over."""
    now, waits, items = 100.0, list[float](), iter([Item(batch, ()) for batch in BATCHES])

    def take(seconds: float) -> Item | None:
        nonlocal now
        waits.append(seconds)
        now += seconds * 0.75
        return next(items, None) if seconds else None

    monkeypatch.setattr(waiting, "TOGETHER_SECONDS", 0.5)
    monkeypatch.setattr(waiting, "AHEAD_BYTES", 1)
    monkeypatch.setattr("psql_streamer.pipeline.waiting.time.monotonic", lambda: now)
    assert len([*Waiting(next(items), take, lambda: 4 * ROWS, lambda _: None)]) == 4
    assert waits == [0.5, 0.125, 0.03125]


def test_a_sink_waits_for_no_further_batch_when_the_service_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "TOGETHER_SECONDS", 60.0)
    monkeypatch.setattr(waiting, "AHEAD_BYTES", 1)
    sink, done = Several(2), list[int]()
    runner = make_runner(sink, lambda item, _: done.extend(item.batch_numbers))
    runner.take(Item(BATCHES[0], (0,)))
    runner.drain(time.monotonic())
    runner.start()
    sink.may_go_on.release()
    runner.drain(time.monotonic() + 10)
    assert done == [0]


def test_what_comes_while_a_sink_is_at_a_batch_is_taken_with_it() -> None:
    class OneByOne(Several):
        def begin_write(self, batches: Iterator[Batch]) -> Callable[[], None]:
            def write() -> None:
                for batch in batches:
                    self._write_all([batch])

            return write

    sink, done = OneByOne(2), list[tuple[int, ...]]()
    runner = make_runner(sink, lambda item, _: done.append(item.batch_numbers))
    runner.start()
    runner.take(Item(BATCHES[0], (0,)))
    assert sink.calls.acquire(timeout=10)
    runner.take(Item(BATCHES[1], (1,)))
    sink.may_go_on.release()
    assert sink.calls.acquire(timeout=10)
    assert not done
    sink.may_go_on.release()
    wait_until(lambda: done == [(0,), (1,)], 10)
    runner.drain(time.monotonic() + 10)


@pytest.mark.parametrize("at_once", [1, 3, 8])
def test_the_source_makes_one_batch_while_the_sink_writes(at_once: int) -> None:
    """What the sink likes to write together comes while it makes records of this one."""
    runner = make_runner(Several(at_once), lambda *_: None)
    ahead = 0
    while runner.wants_more:
        runner.take(Item(replace(BATCHES[0]), (ahead,)))
        ahead += 1
    assert ahead == 1


@pytest.mark.parametrize(("at_once", "most"), [(1, 1), (3, 3), (20, TOGETHER_BATCHES)])
def test_the_source_makes_as_many_small_batches_as_the_sink_likes(at_once: int, most: int) -> None:
    """Those that come while it makes the records of one are fewer, and their requests small."""
    assert count_ahead(Several(at_once)) == most


def test_the_source_makes_one_large_batch_though_the_sink_likes_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_runner, "AHEAD_BYTES", 1000)
    assert count_ahead(Several(3)) == 1


def count_ahead(sink: Several) -> int:
    """How many batches are made while the sink is at its first one."""
    runner = make_runner(sink, lambda *_: None)
    runner.start()
    runner.take(Item(BATCHES[0], (0,)))
    assert sink.calls.acquire(timeout=10)
    ahead = 0
    while runner.wants_more:
        ahead += 1
        runner.take(Item(BATCHES[ahead % len(BATCHES)], (ahead,)))
    sink.may_go_on.release(ahead + 1)
    runner.drain(time.monotonic() + 10)
    return ahead


class WorksAhead(Several):
    """Begins the next write while one waits, as soon as a batch is there. seen: what was begun and done, in order."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__(1)
        self.failures_left = failures
        self.seen: list[str] = []
        self.begin_next: Callable[[], bool] = lambda: False

    def attach_next(self, begin_next: Callable[[], bool]) -> None:
        self.begin_next = begin_next

    def begin_write(self, batches: Iterator[Batch]) -> Callable[[], None]:
        at = BATCHES.index(next(batches))
        self.seen.append(f"{at} begun")

        def write() -> None:
            self.calls.release()
            assert self.may_go_on.acquire(timeout=10)
            self.begin_next()
            assert self.begin_next() == (at < len(BATCHES) - 1)
            if self.failures_left:
                self.failures_left -= 1
                raise SinkUnavailable("brokers are away")
            self.seen.append(f"{at} done")

        return write


BEGUN_AHEAD = ["0 begun", *(f"{at} {what}" for pair in range(5) for at, what in ((pair + 1, "begun"), (pair, "done")))]


@pytest.mark.parametrize("failures", [0, 3])
def test_the_next_write_is_begun_once_while_one_waits_and_called_behind_it(failures: int) -> None:
    work = AtWork(sink := WorksAhead(failures))
    work.finish()
    assert sink.seen == [*BEGUN_AHEAD, "5 done"]
    assert work.done == [0, 1, 2, 3, 4, 5]


def test_a_write_that_is_begun_is_called_though_nothing_comes_behind_it() -> None:
    """Also when the service drains meanwhile."""
    work = AtWork(sink := WorksAhead())
    sink.may_go_on.release()
    assert sink.calls.acquire(timeout=10)
    assert sink.calls._value == 0
    work.runner.drain(time.monotonic())
    for _ in range(9):
        sink.may_go_on.release()
    wait_until(lambda: len(work.done) == len(BATCHES), 10)
    work.runner.drain(time.monotonic() + 10)
    assert work.done == [0, 1, 2, 3, 4, 5]
    assert not work.runner.hanging


def test_the_source_makes_a_batch_when_the_next_write_is_begun() -> None:
    sink, taken = WorksAhead(), list[int]()
    runner = make_runner(sink, lambda *_: None, on_taken=lambda: taken.append(len(sink.seen)))
    runner.start()
    runner.take(Item(BATCHES[0], (0,)))
    assert sink.calls.acquire(timeout=10)
    runner.take(Item(BATCHES[1], (1,)))
    assert not runner.wants_more
    assert sink.begin_next()
    assert runner.wants_more
    assert len(taken) == 2
    assert taken[1] == 1, "it is told before the sink makes the records, and so makes the batch beside that"
    sink.may_go_on.release(2)


def test_a_next_write_that_cannot_be_begun_stops_the_service_and_nothing_behind_it_is_written() -> None:
    """Its batch is in no write any more, so that one behind it would overtake it."""

    class BreaksOnce(WorksAhead):
        def begin_write(self, batches: Iterator[Batch]) -> Callable[[], None]:
            if self.seen == ["0 begun"]:
                next(batches)
                self.seen.append("1 broken")
                raise SinkUnavailable("a bug: it reaches a server")
            return super().begin_write(batches)

    done: list[int] = []
    lifecycle = Lifecycle(Metrics(), start_timeout=10.0)
    sink = BreaksOnce()
    runner = make_runner(sink, lambda item, _: done.extend(item.batch_numbers), lifecycle=lifecycle)
    runner.start()
    for number, batch in enumerate(BATCHES):
        runner.take(Item(batch, (number,)))
    sink.may_go_on.release(10)
    wait_until(lambda: lifecycle.failure is not None, 10)
    assert "it reaches a server" in str(lifecycle.failure)
    assert lifecycle.stopping.is_set()
    runner.drain(time.monotonic() + 10)
    assert not runner.hanging
    assert sink.seen == ["0 begun", "1 broken"]
    assert done == []


def test_a_sink_that_does_not_say_so_takes_no_several_batches() -> None:
    written: list[Batch] = []

    class Single(MemorySink):
        def write(self, batch: Batch) -> None:
            written.append(batch)

    options = MemoryOptions.model_validate({"type": "single", "sources": ["db1"], "greeting": "hello"})
    sink, batches = Single("k", options), iter(BATCHES)
    assert sink.rows_at_once == 1
    sink.begin_write(batches)()
    assert written == BATCHES[:1]
    assert [*batches] == BATCHES[1:]


def test_a_sink_that_takes_no_batch_stops_the_service() -> None:
    """It says that all is written, and a batch that nobody acknowledges would keep the source's log for ever."""

    class TakesNone(Several):
        def begin_write(self, batches: Iterator[Batch]) -> Callable[[], None]:  # noqa: ARG002 - none is taken
            return lambda: None

    done: list[Item] = []
    lifecycle = Lifecycle(Metrics(), start_timeout=10.0)
    runner = make_runner(TakesNone(2), lambda item, _: done.append(item), lifecycle=lifecycle)
    runner.start()
    runner.take(Item(BATCHES[0], (0,)))
    wait_until(lambda: lifecycle.failure is not None, 10)
    assert "it has taken no batch" in str(lifecycle.failure)
    assert not done


def test_rows_are_freed_when_the_sink_lets_go_of_their_batch() -> None:
    """Also where the rows went through a handler, which has nothing to do behind them."""

    class LetsGo(Several):
        def begin_write(self, batches: Iterator[Batch]) -> Callable[[], None]:
            def write() -> None:
                while next(batches, None) is not None:
                    pass
                self._write_all([])

            return write

    for handlers in ([], [Passing()]):
        done: list[int] = []
        sink = LetsGo(2)
        runner = make_runner(sink, lambda item, _, done=done: done.extend(item.batch_numbers), handlers)
        batch = make_batch([{"id": 1}], "id")
        rows = weakref.ref(batch.changes)
        runner.start()
        runner.take(Item(batch, (7,)))
        del batch
        assert sink.calls.acquire(timeout=10)
        wait_until(lambda rows=rows: rows() is None, 10)
        assert not done
        sink.may_go_on.release()
        wait_until(lambda done=done: done == [7], 10)
        runner.drain(time.monotonic() + 10)
