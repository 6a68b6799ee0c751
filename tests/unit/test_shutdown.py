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

from psql_streamer.shutdown import FORCED

_PROGRAM = """
import ctypes, logging, sys
from psql_streamer.shutdown import Shutdown
logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
shutdown = Shutdown(lambda: shutdown.begin({seconds}))
shutdown.listen()
print("listening", flush=True)
semaphore = ctypes.create_string_buffer(64)  # that nobody raises
while True:
    ctypes.CDLL(None).sem_wait(semaphore)
"""


@contextmanager
def _process(seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A process whose main thread hangs in a library and which is to end so many seconds after a first signal."""
    program = [sys.executable, "-c", _PROGRAM.format(seconds=seconds)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_deadline_ends_the_process_though_its_main_thread_hangs_in_a_library(number: signal.Signals) -> None:
    with _process(seconds=0.2) as process:
        os.kill(process.pid, number)
        said, _ = process.communicate(timeout=10)
    assert process.returncode == FORCED
    assert f"stopping: {number.name}" in said
    assert "not stopped within 0.2 s, ending all the same: MainThread in <module>" in said


def test_the_second_signal_ends_the_process_at_once() -> None:
    with _process(seconds=60) as process:
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "stopping: SIGTERM\n"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(10) == 128 + signal.SIGINT


def test_a_hangup_is_ignored() -> None:
    with _process(seconds=60) as process:
        os.kill(process.pid, signal.SIGHUP)
        time.sleep(0.1)
        assert process.poll() is None
