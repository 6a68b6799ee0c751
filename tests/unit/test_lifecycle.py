"""What becomes of errors: tried again with growing pauses, or the end of the service."""

from __future__ import annotations

import threading

import pytest

from psql_streamer.errors import (
    ConfigError,
    HandlerRefused,
    Outcome,
    PositionRefused,
    ProtocolError,
    SinkRefused,
    SinkUnavailable,
    SourceRefused,
    SourceUnavailable,
    StoreError,
    StreamerError,
    choose_outcome,
)
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.pipeline.lifecycle import Lifecycle, log
from tests.source_at_work import wait_for


@pytest.mark.behaviour("D12")
@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (SourceUnavailable("gone"), Outcome.RETRY),
        (SinkUnavailable("gone"), Outcome.RETRY),
        (SourceRefused("no"), Outcome.STOP),
        (PositionRefused("gap"), Outcome.STOP),
        (ProtocolError("unknown pgoutput message '?'"), Outcome.STOP),
        (HandlerRefused("rule"), Outcome.STOP),
        (StoreError("full"), Outcome.STOP),
        (ValueError("a bug"), Outcome.STOP),
    ],
)
def test_every_error_has_one_outcome(error: Exception, becomes: Outcome) -> None:
    assert choose_outcome(error) is becomes


def test_a_part_that_comes_up_in_time_is_waited_for() -> None:
    attempts = []

    def start() -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise SourceUnavailable("not yet")

    Lifecycle(Metrics(), start_timeout=10.0).start("source.db1", start, interval=0.001)
    assert len(attempts) == 3


def test_why_a_part_does_not_start_is_told_while_it_is_tried_again() -> None:
    told: list[str] = []
    lifecycle = Lifecycle(Metrics(), start_timeout=10.0)

    def start() -> None:
        told.append(lifecycle.start_problem("source.db1"))
        if len(told) < 3:
            raise SourceUnavailable("no server answers")

    lifecycle.start("source.db1", start, interval=0.001)
    assert told == ["", *(f"attempt {number} failed: no server answers" for number in (1, 2))]
    assert lifecycle.start_problem("source.db1") == "", "it has started"


def test_a_part_that_does_not_come_up_in_time_ends_with_its_name_and_its_class() -> None:
    def start() -> None:
        raise SinkUnavailable("no broker answers", "check hosts")

    with pytest.raises(SinkUnavailable, match=r"^sink\.k: no broker answers: check hosts$"):
        Lifecycle(Metrics(), start_timeout=0.05).start("sink.k", start, interval=0.001)


def test_a_refusal_at_the_start_is_not_tried_again() -> None:
    attempts = []

    def start() -> None:
        attempts.append(1)
        raise SourceRefused("wrong password")

    with pytest.raises(SourceRefused):
        Lifecycle(Metrics(), start_timeout=60.0).start("source.db1", start, interval=0.001)
    assert len(attempts) == 1


def test_the_first_failure_is_the_one_that_is_told() -> None:
    lifecycle = Lifecycle(Metrics(), start_timeout=1.0)
    lifecycle.fail("sink.k", SinkUnavailable("first"))
    lifecycle.fail("source.db1", SourceUnavailable("second"))
    assert lifecycle.stopping.is_set()
    assert str(lifecycle.failure) == "sink.k: first"


def test_an_unexpected_error_is_told_without_its_text_which_may_hold_values() -> None:
    lifecycle = Lifecycle(Metrics(), start_timeout=1.0)
    lifecycle.fail("sink.k", KeyError("secret row value"))
    assert isinstance(lifecycle.failure, StreamerError)
    assert "secret" not in str(lifecycle.failure)
    assert "KeyError" in str(lifecycle.failure)


def test_a_failure_stops_the_service_though_its_message_waits_for_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle, read = Lifecycle(Metrics(), start_timeout=1.0), threading.Event()
    monkeypatch.setattr(log, "error", lambda *_: read.wait(10))
    failing = threading.Thread(target=lifecycle.fail, args=("sink.k", KeyError()))
    failing.start()
    assert lifecycle.stopping.wait(5)
    read.set()
    failing.join()


def test_a_start_that_does_not_end_when_it_is_interrupted_is_named_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("psql_streamer.pipeline.lifecycle._INTERRUPTED_SECONDS", 0.1)
    lifecycle, ends = Lifecycle(Metrics(), start_timeout=60.0), threading.Event()

    def start() -> None:
        lifecycle.stopping.set()
        ends.wait(10)

    lifecycle.start("source.db1", start, interval=1.0, interrupt=lambda: None)
    assert lifecycle.hanging == ["start source.db1"]
    ends.set()
    wait_for(lambda: not lifecycle.hanging, "the start to end")


@pytest.mark.parametrize(
    ("attempts", "told"),
    [
        (1, r"^source\.k did not start within 0\.1 s: look whether the server that it waits for answers, or raise "),
        (2, r"^source\.k: no broker answers: check hosts$"),
    ],
)
def test_a_start_that_hangs_until_the_time_is_over_ends_with_what_the_attempts_before_said(
    monkeypatch: pytest.MonkeyPatch, attempts: int, told: str
) -> None:
    for name in ("_LEAST_START_SECONDS", "_INTERRUPTED_SECONDS"):
        monkeypatch.setattr(f"psql_streamer.pipeline.lifecycle.{name}", 0.05)
    begun, ends = [], threading.Event()

    def start() -> None:
        begun.append(1)
        if len(begun) == attempts:
            ends.wait(10)
        raise SourceUnavailable("no broker answers", "check hosts")

    with pytest.raises(StreamerError, match=told):
        Lifecycle(Metrics(), start_timeout=0.1).start("source.k", start, interval=0.001, interrupt=lambda: None)
    ends.set()


class Gone(SinkRefused):
    """An error of a part of one's own, made in another way."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is gone", "start it")
        self.host = host


class Wordless(SinkRefused):
    """One whose author forgot the text."""

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Gone("db"), "sink.s: db is gone: start it"),
        (Wordless(), "sink.s: "),
        (ConfigError(["one", "two"]), "sink.s: one\ntwo"),
    ],
)
def test_an_error_that_is_made_in_another_way_stops_the_service_like_any_other(error: StreamerError, told: str) -> None:
    lifecycle = Lifecycle(Metrics(), start_timeout=1.0)
    lifecycle.fail("sink.s", error)
    assert lifecycle.stopping.is_set()
    assert (type(lifecycle.failure), str(lifecycle.failure)) == (type(error), told)


def test_an_error_that_is_made_in_another_way_ends_a_start_like_any_other() -> None:
    def start() -> None:
        raise Gone("db")

    with pytest.raises(Gone, match=r"sink\.s: db is gone: start it"):
        Lifecycle(Metrics(), start_timeout=1.0).start("sink.s", start, interval=0.001)
