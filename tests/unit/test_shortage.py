"""What is said when the machine gives no more files, threads or memory."""

from __future__ import annotations

import argparse
import errno
import fcntl
import subprocess
from pathlib import Path

import pytest

from psql_streamer import cli
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.pipeline.lifecycle import Lifecycle
from psql_streamer.shortage import explain_shortage


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (RuntimeError("can't start new thread"), "TasksMax"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "ulimit -v"),
        (MemoryError(), "ulimit -v"),
        (OSError(errno.ENOSPC, "No space left on device"), "TMPDIR"),
    ],
)
def test_a_part_that_lacks_something_of_the_machine_ends_the_service_with_the_limit_to_raise(
    error: Exception, remedy: str
) -> None:
    lifecycle = Lifecycle(Metrics(), start_timeout=1.0)
    lifecycle.fail("source.db1", error)
    assert str(lifecycle.failure).startswith("source.db1: no ")
    assert remedy in str(lifecycle.failure)


def test_a_process_that_cannot_be_started_is_one_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def lack_processes(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "_USE_POSIX_SPAWN", False)
    monkeypatch.setattr(subprocess, "_USE_VFORK", False)
    monkeypatch.setattr(subprocess, "_fork_exec", lack_processes)
    with pytest.raises(BlockingIOError) as caught:
        subprocess.run(["true"])
    assert "TasksMax" in str(explain_shortage(caught.value))


def test_a_lock_that_somebody_else_has_is_none_of_the_machine(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as one, (tmp_path / "lock").open("w") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError) as caught:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert explain_shortage(caught.value) is None


@pytest.mark.parametrize(
    "error", [ValueError("x"), RuntimeError("dictionary changed"), PermissionError(errno.EACCES, "")]
)
def test_other_errors_are_none_of_the_machine(error: Exception) -> None:
    assert explain_shortage(error) is None


@pytest.mark.usefixtures("logging_as_it_was")
def test_a_command_that_gets_no_thread_ends_with_the_limit_to_raise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lack_threads(_arguments: argparse.Namespace, _verbosity: int) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setitem(cli._COMMANDS, "version", lack_threads)
    assert cli.main(["version"]) == cli.FAILED
    assert capsys.readouterr().err == (
        "psql-streamer: no more threads and processes can be started: "
        "raise the limit: ulimit -u, TasksMax of systemd, or pids of cgroups\n"
    )
