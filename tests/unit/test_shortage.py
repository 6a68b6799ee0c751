"""What is said when the machine gives no more files, threads or memory."""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
import pymysql
import pytest
from confluent_kafka import KafkaError, KafkaException
from pydantic import BaseModel

from psql_streamer import cli
from psql_streamer.checkpoint.store import Store
from psql_streamer.errors import StoreError, StreamerError
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.pipeline.lifecycle import Lifecycle
from psql_streamer.shortage import explain_shortage
from sinks.kafka import errors as sink_errors
from sinks.kafka.options import KafkaSinkOptions
from sources.kafka import errors as source_errors
from sources.kafka.options import KafkaSourceOptions
from sources.mysql.server_errors import from_pymysql
from tests.config_files import MINIMAL, written


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (RuntimeError("can't start new thread"), "TasksMax"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "ulimit -v"),
        (MemoryError(), "ulimit -v"),
        (OSError(errno.ENOSPC, "No space left on device"), "TMPDIR"),
        (ImportError("libarrow.so: failed to map segment from shared object"), "ulimit -v"),
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
    "error",
    [
        ValueError("x"),
        RuntimeError("dictionary changed"),
        PermissionError(errno.EACCES, ""),
        ImportError("libarrow.so: failed to map segment from shared object: Operation not permitted"),
    ],
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


_LIMITED = """
import resource, sys
from psql_streamer import launcher
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv.pop(1)) << 20,) * 2)
sys.exit(launcher.main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no such limit")
@pytest.mark.parametrize("megabytes", [130, 330], ids=["while libraries are loaded", "behind that"])
def test_a_start_without_address_space_is_explained(tmp_path: Path, megabytes: int) -> None:
    """Not at every limit: jemalloc, OpenBLAS and the C++ of Arrow end the process where they do without memory."""
    config = str(written(tmp_path, MINIMAL))
    command = [sys.executable, "-c", _LIMITED, str(megabytes), "validate", "-config", config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode == cli.FAILED
    assert "ulimit -v" in said
    assert "Traceback" not in said


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_numpy_starts_no_threads_whose_lack_would_stop_the_service_as_on_request() -> None:
    program = "import os; from psql_streamer.launcher import _prepare; _prepare(); import numpy"
    count = f"{program}; print(os.listdir('/proc/self/task'))"
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, env=environ, timeout=60)
    assert done.stdout.count(",") == 0, done


def test_threads_that_lack_address_space_have_its_limit_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (600 << 20, resource.RLIM_INFINITY))
    assert "ulimit -v, because each takes address space for its stack; or ulimit -u" in str(
        explain_shortage(RuntimeError("can't start new thread"))
    )


@pytest.mark.parametrize("find_remedy", [sink_errors.find_remedy, source_errors.find_remedy])
def test_brokers_that_cannot_be_reached_for_want_of_files_are_not_looked_for(
    find_remedy: Callable[[KafkaError], str],
) -> None:
    said = "127.0.0.1:9092/bootstrap: Failed to create socket: Too many open files (after 0ms in state CONNECT)"
    assert find_remedy(KafkaError(KafkaError._TRANSPORT, said)).startswith("raise the limit: ulimit -n")


@pytest.mark.parametrize(
    ("options", "client", "more"),
    [
        (KafkaSinkOptions, "sinks.kafka.options.Producer", {"sources": ["db1"], "topicPrefix": "shop"}),
        (KafkaSourceOptions, "sources.kafka.options.Consumer", {"topics": ["shop"], "groupID": "shop"}),
    ],
)
def test_a_client_that_gets_no_thread_is_no_wrong_configuration(
    monkeypatch: pytest.MonkeyPatch, options: type[BaseModel], client: str, more: dict[str, object]
) -> None:
    def lack_threads(*_: object) -> None:
        said = "Failed to create producer: Failed to create thread: Resource temporarily unavailable (11)"
        raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE, said))

    monkeypatch.setattr(client, lack_threads)
    with pytest.raises(StreamerError, match="TasksMax"):
        options.model_validate({"type": "kafka", "hosts": ["127.0.0.1:1"], **more})


def test_a_mysql_server_that_cannot_be_reached_for_want_of_files_is_not_looked_for() -> None:
    error = pymysql.OperationalError(2003, "Can't connect to MySQL server on 'db' ([Errno 24] Too many open files)")
    assert from_pymysql(error, "db:3306").remedy.startswith("raise the limit: ulimit -n")


@pytest.mark.parametrize(("number", "limit"), [(errno.EMFILE, "ulimit -n"), (errno.EFBIG, "ulimit -f")])
def test_positions_that_a_limit_keeps_from_being_opened_have_it_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, limit: str
) -> None:
    def lack(*_: object, **__: object) -> None:
        raise lmdb.DiskError(f"positions-new: {os.strerror(number)}")

    monkeypatch.setattr(lmdb, "open", lack)
    with pytest.raises(StoreError, match=rf"cannot be used .*: raise the limit: {limit}"):
        Store(tmp_path / "positions").open()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EMFILE, "raise the limit: ulimit -n"),
        (errno.ENOSPC, "make room on the disk"),
        (errno.EROFS, "name a path on another disk"),
    ],
)
def test_what_keeps_the_file_beside_the_positions_from_being_made_is_no_lack_of_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def lack(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", lack)
    with pytest.raises(StoreError, match=rf"cannot be opened .*: {remedy}"):
        Store(tmp_path / "positions").open()
