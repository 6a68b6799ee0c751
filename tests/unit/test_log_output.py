"""Log lines on a pipe whose reader is slow, stands still, or has gone."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator

import pytest

from psql_streamer import log_output
from psql_streamer.log_output import LogOutput, wait_no_longer
from tests.log_pipe import LogPipe
from tests.source_at_work import wait_for


@pytest.fixture(autouse=True)
def _at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of its own, which does not stop yet."""
    monkeypatch.setattr(log_output, "_leaving", threading.Event())


@pytest.fixture
def pipe() -> Iterator[LogPipe]:
    with LogPipe() as pipe:
        yield pipe


@pytest.fixture
def log(pipe: LogPipe) -> Iterator[logging.Logger]:
    log = logging.Logger("psql_streamer.test")
    with os.fdopen(os.dup(pipe.writer), "w") as stream:
        log.addHandler(LogOutput(stream))
        yield log


def test_a_message_longer_than_the_pipe_arrives_whole(pipe: LogPipe, log: logging.Logger) -> None:
    text = "é" * 100_000
    log.warning(text)
    wait_for(lambda: pipe.text().endswith("\n"), "the message")
    assert pipe.text() == f"{text}\n"


def test_while_the_service_works_a_message_waits_for_its_reader(pipe: LogPipe, log: logging.Logger) -> None:
    pipe.fill()
    telling = threading.Thread(target=log.warning, args=("here",))
    telling.start()
    telling.join(0.2)
    assert telling.is_alive()
    pipe.read()
    telling.join(10)
    wait_for(lambda: pipe.text().endswith("here\n"), "the message")


def test_a_stop_frees_those_who_wait_for_the_log_and_lets_nobody_wait_again(pipe: LogPipe, log: logging.Logger) -> None:
    pipe.fill()
    telling = [threading.Thread(target=log.warning, args=("here",)) for _ in range(3)]
    for thread in telling:
        thread.start()
    began = time.monotonic()
    wait_no_longer()
    for thread in telling:
        thread.join(10)
    for _ in range(100):
        log.warning("here")
    assert time.monotonic() - began < 1.0
    pipe.read()
    wait_for(lambda: bool(pipe.text()), "room in the pipe")
    log.warning("the last")
    wait_for(lambda: pipe.text().endswith("the last\n"), "the message")
    assert pipe.text().strip() == "103 messages were left out: nobody read them\nthe last"


def test_a_line_for_a_reader_who_has_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        LogOutput(stream).say("psql-streamer: the reason")
