"""What is tried again: the pauses, what is said meanwhile, and when it ends."""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from psql_streamer.errors import SinkRefused, SinkUnavailable
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.pipeline.retries import Retries
from psql_streamer.retry_limits import FIRST_LOOKUP_PAUSE_SECONDS, FIRST_START_PAUSE_SECONDS, LIMITS, Backoff, Tried
from tests.source_at_work import wait_for

ROOT = Path(__file__).parents[2]
AT_ONCE = 0.0001
NEVER = 1000.0


class Work:
    """Fails as often as it was told to, then works. after: called behind each attempt."""

    def __init__(self, failures: int, after: Callable[[], None] = lambda: None) -> None:
        self.attempts = 0
        self._failures = failures
        self._after = after

    def __call__(self) -> None:
        self.attempts += 1
        self._after()
        if self.attempts <= self._failures:
            raise SinkUnavailable("brokers are away", "start them")


def _retries(tried: Tried = Tried.BATCH) -> tuple[Retries, threading.Event, Metrics]:
    stop, metrics = threading.Event(), Metrics()
    return Retries("sink.k", tried, metrics, stop), stop, metrics


class _Rows:
    """What an attempt has at hand."""


def test_what_an_attempt_that_failed_had_at_hand_is_let_go_of_when_the_next_one_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "psql_streamer.pipeline")  # pytest keeps lines of the log, which have the error
    retries, *_ = _retries()
    held: list[weakref.ref[_Rows]] = []

    def write() -> None:
        rows = _Rows()
        held.append(weakref.ref(rows))
        if len(held) == 1:
            raise SinkUnavailable("brokers are away", "start them")

    assert retries.run(write, AT_ONCE)
    assert [one() for one in held] == [None, None]


def test_pauses_double_up_to_the_limit_and_vary_by_a_quarter() -> None:
    backoff = Backoff(1.0, limit=8.0)
    pauses = [backoff.draw_pause() for _ in range(6)]
    for pause, expected in zip(pauses, [1, 2, 4, 8, 8, 8], strict=True):
        assert 0.75 * expected <= pause <= min(8.0, 1.25 * expected)


def test_a_first_pause_beyond_the_limit_is_what_the_user_wants() -> None:
    backoff = Backoff(60.0, limit=8.0)
    assert all(45 <= backoff.draw_pause() <= 60 for _ in range(4))


@pytest.mark.parametrize("tried", Tried)
def test_no_pause_is_longer_than_the_limit_of_what_is_tried(
    tried: Tried, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    retries, stop, _ = _retries(tried)
    monkeypatch.setattr(stop, "wait", lambda _: False)
    assert retries.run(Work(12), first_pause=0.1)
    pauses = [float(seconds) for seconds in re.findall(r"next in ([0-9.]+) s", caplog.text)]
    longest = LIMITS[tried].longest_pause
    assert len(pauses) == 12
    assert longest * 0.75 <= pauses[-1] <= max(pauses) <= longest


def test_what_fails_is_tried_until_it_works_and_each_failure_is_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    retries, _, metrics = _retries()
    work = Work(2)
    assert retries.run(work, AT_ONCE)
    assert work.attempts == 3
    told = [record.getMessage() for record in caplog.records]
    assert told[:2] == [f"sink.k: brokers are away: start them (attempt {number}, next in 0.0 s)" for number in (1, 2)]
    assert re.fullmatch(r"sink\.k: works again, after 3 attempts in \d+\.\d s", told[2])
    page = metrics.render().decode()
    assert 'psql_streamer_retries_total{part="sink.k"} 2.0' in page
    assert 'psql_streamer_errors_total{class="SinkUnavailable",part="sink.k"} 2.0' in page


def test_after_success_the_count_and_the_pauses_begin_anew(caplog: pytest.LogCaptureFixture) -> None:
    retries, _, _ = _retries()
    assert retries.run(Work(3), AT_ONCE)
    assert retries.run(Work(1), AT_ONCE)
    assert re.findall(r"attempt (\d)", caplog.text) == ["1", "2", "3", "1"]


def test_what_works_at_once_is_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    retries, _, _ = _retries()
    assert retries.run(Work(0), AT_ONCE)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("tried", "reasons"),
    [
        (Tried.BATCH, ["", "attempt 1 failed: ", "attempt 2 failed: "]),
        (Tried.STREAM, ["", "lost", "attempt 1 failed: "]),
    ],
)
def test_the_status_says_how_often_it_was_tried_until_it_works(tried: Tried, reasons: list[str]) -> None:
    retries, _, _ = _retries(tried)
    seen: list[str] = []
    assert retries.run(Work(2, after=lambda: seen.append(retries.problem)), AT_ONCE)
    error = "brokers are away: start them"
    assert seen == [reason.removesuffix("lost") + error if reason else "" for reason in reasons]
    assert retries.problem == ""


def test_a_stop_ends_a_pause_at_once_and_the_work_is_not_tried_again() -> None:
    retries, stop, _ = _retries()
    work, results = Work(1), list[bool]()
    trying = threading.Thread(target=lambda: results.append(retries.run(work, NEVER)))
    trying.start()
    wait_for(lambda: retries.problem != "", "the first failure")
    stop.set()
    trying.join(10)
    assert results == [False]
    assert work.attempts == 1


def test_a_failure_while_it_stops_is_logged_as_the_last(caplog: pytest.LogCaptureFixture) -> None:
    retries, stop, _ = _retries()
    assert not retries.run(Work(1, after=stop.set), NEVER)
    assert "sink.k: brokers are away: start them (attempt 1, the last: the service stops)" in caplog.text


def test_nothing_is_begun_once_it_stops() -> None:
    retries, stop, _ = _retries()
    stop.set()
    work = Work(0)
    assert not retries.run(work, AT_ONCE)
    assert work.attempts == 0


def test_what_does_not_pass_is_not_tried_again() -> None:
    retries, _, _ = _retries()
    attempts: list[int] = []

    def refused() -> None:
        attempts.append(1)
        raise SinkRefused("not authorised")

    with pytest.raises(SinkRefused):
        retries.run(refused, AT_ONCE)
    assert len(attempts) == 1


def test_behind_the_time_to_give_up_the_error_is_raised() -> None:
    retries, _, _ = _retries(Tried.START)
    with pytest.raises(SinkUnavailable):
        retries.run(Work(1), NEVER, give_up_at=time.monotonic() - 1)


def test_recovering_comes_before_every_attempt_but_the_first_and_may_fail_like_it() -> None:
    retries, _, _ = _retries()
    order: list[str] = []
    recover = Work(1, after=lambda: order.append("recover"))
    assert retries.run(Work(1, after=lambda: order.append("work")), AT_ONCE, recover=recover)
    assert order == ["work", "recover", "recover", "work"]


def test_the_documents_say_the_limits() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    for tried, limit in LIMITS.items():
        assert re.search(rf"^\| {re.escape(tried.value)} \|.*\| {limit.longest_pause:g} s, .*\|$", page, re.MULTILINE)
    assert f"for a source, {FIRST_START_PAUSE_SECONDS:g} s for a sink or handler |" in page
    assert f"| {Tried.LOOKUP.value} | {FIRST_LOOKUP_PAUSE_SECONDS:g} s |" in page
    settings = (ROOT / "psql-streamer.toml").read_text()
    stream, start, batch = (f"{LIMITS[of].longest_pause:g} s" for of in (Tried.STREAM, Tried.START, Tried.BATCH))
    assert f"up to {stream} (up to {start} while the service starts), with jitter.\n#startRetryInterval" in settings
    assert f"up to {batch}, with jitter.\n#sendRetryInterval" in settings
