"""Signals that come while a command starts: each does what it does a moment later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SLOW = """
import pathlib, time
from sinks.stub import StubDiscardSink

here = pathlib.Path(__file__).parent
(here / "begun").touch()
while not (here / "go").exists():
    time.sleep(0.01)
raise RuntimeError("went on")
"""
"""A part whose module takes its time, as libraries on a slow disk do."""

CONFIG = """
http = "127.0.0.1:0"
lmdb = "positions"
[source.db1]
type = "postgres"
dsn = "host=nowhere.invalid"
publication = "p"
replicationSlot = "s"
[sink.k]
type = "slow_part:Slow"
sources = ["db1"]
"""


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def heard_sighup() -> Iterator[None]:
    """A process that nohup has started ignores SIGHUP, and so does what it starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def start(tmp_path: Path, heard_sighup: None) -> Iterator[Start]:
    """Starts a command that reads the configuration, and waits until it imports."""
    (tmp_path / "slow_part.py").write_text(SLOW)
    (tmp_path / "shop.toml").write_text(CONFIG)
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "psql_streamer", *arguments, "-config", "shop.toml"]
        environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"}
        process = subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True)
        started.append(process)
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.01)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_starts_is_stopped_with_a_line_and_without_a_failure(
    start: Start, number: signal.Signals
) -> None:
    service = start("run", "--log-format", "json")
    service.send_signal(number)
    _, said = service.communicate(timeout=10)
    assert [json.loads(line)["message"] for line in said.splitlines()] == [f"stopping: {number.name}"]
    assert service.returncode == 0


def test_a_service_that_starts_does_not_end_by_sighup(start: Start, tmp_path: Path) -> None:
    service = start("run")
    service.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()
    _, said = service.communicate(timeout=10)
    assert "RuntimeError: went on" in said
    assert service.returncode == 2


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)]
)
def test_another_command_ends_by_signals_without_a_traceback(start: Start, number: signal.Signals, code: int) -> None:
    command = start("validate")
    command.send_signal(number)
    _, said = command.communicate(timeout=10)
    assert (command.returncode, said) == (code, "")


HELD = """
import os, signal, sys
from psql_streamer import starting_signals
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
starting_signals.hold_signals()
for number in sys.argv[1:]:
    os.kill(os.getpid(), int(number))
print("held", flush=True)
try:
    starting_signals.release_signals()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    ("signals", "code", "said"),
    [
        ([], 0, ["held"]),
        ([signal.SIGINT], 0, ["held", "interrupted"]),
        ([signal.SIGTERM], -signal.SIGTERM, ["held"]),
        ([signal.SIGHUP], 0, ["held"]),
        ([signal.SIGINT, signal.SIGTERM], 128 + signal.SIGTERM, []),
    ],
)
def test_signals_wait_until_the_command_is_known(signals: list[signal.Signals], code: int, said: list[str]) -> None:
    numbers = [str(int(number)) for number in signals]
    done = subprocess.run([sys.executable, "-c", HELD, *numbers], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split(), done.stderr) == (code, said, "")
