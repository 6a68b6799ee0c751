"""Signals, heard whatever the main thread is at, and a deadline that holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from psql_streamer.pipeline.shutdown import FORCED, LAST_MESSAGE_SECONDS
from tests.log_pipe import LogPipe
from tests.source_at_work import wait_for

_PROGRAM = """
import ctypes, logging, sys
from psql_streamer.pipeline.shutdown import Shutdown
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
shutdown = Shutdown(lambda: shutdown.begin({seconds}))
shutdown.listen()
print("listening", flush=True)
semaphore = ctypes.create_string_buffer(64)  # that nobody raises
while True:
    ctypes.CDLL(None).sem_wait(semaphore)
"""


@contextmanager
def _process(seconds: float, stdout: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """A process whose main thread hangs in a library and which is to end so many seconds after a first signal."""
    program = [sys.executable, "-c", _PROGRAM.format(seconds=seconds)]
    with subprocess.Popen(program, stdout=stdout, text=True) as process:
        try:
            assert process.stdout is None or process.stdout.readline() == "listening\n"
            yield process
        finally:
            process.kill()


@pytest.mark.behaviour("O2")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_deadline_ends_the_process_though_its_main_thread_hangs_in_a_library(number: signal.Signals) -> None:
    with _process(seconds=0.2) as process:
        os.kill(process.pid, number)
        said, _ = process.communicate(timeout=10)
    assert process.returncode == FORCED
    assert f"stopping: {number.name}" in said
    assert "not stopped within 0.2 s, ending all the same: MainThread in <module>" in said


@pytest.mark.behaviour("O2")
def test_the_second_signal_ends_the_process_at_once() -> None:
    with _process(seconds=60) as process:
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "stopping: SIGTERM\n"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(10) == 128 + signal.SIGINT


@pytest.mark.parametrize("signals", [1, 2])
def test_a_log_that_nobody_reads_delays_neither_the_deadline_nor_the_second_signal(signals: int) -> None:
    with LogPipe() as log, _process(seconds=0.5 if signals == 1 else 60, stdout=log.writer) as process:
        wait_for(lambda: "listening" in log.text(), "the process to listen")
        log.fill()
        began = time.monotonic()
        for _ in range(signals):
            os.kill(process.pid, signal.SIGTERM)
            time.sleep(0.1)  # the kernel makes one of two signals that wait
        assert process.wait(10) == (FORCED if signals == 1 else 128 + signal.SIGTERM)
        assert time.monotonic() - began < 0.5 + LAST_MESSAGE_SECONDS + 0.5


def test_the_deadline_holds_when_the_interpreter_itself_does_not_end() -> None:
    """Behind the main thread's end no other thread runs, and what is still let go may hang."""
    program = """
import os, sys, time
from psql_streamer.pipeline.shutdown import Shutdown
class Stuck:
    def __del__(self, write=os.write, sleep=time.sleep):
        write(1, b"letting go\\n")
        sleep(60)
sys.stuck = Stuck()
Shutdown(lambda: None).begin(0.5)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate(timeout=10)
        finally:
            process.kill()
    assert (said, process.returncode) == ("letting go\n", FORCED)


def test_a_hangup_is_ignored() -> None:
    with _process(seconds=60) as process:
        os.kill(process.pid, signal.SIGHUP)
        time.sleep(0.1)
        assert process.poll() is None
