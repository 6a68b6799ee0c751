"""The service as a user runs it: a process, a configuration file, its HTTP API."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from psql_streamer.embedded.ports import free_ports
from tests.database import Database


class ServiceProcess:
    """One `psql-streamer` process, which is not running yet.

    command: what starts it. port: where its HTTP API will be, on the loopback interface. log: where it writes.
    cwd, environ: its working folder and its environment, when they are not this process's.
    stderr: a descriptor in place of the log file.
    """

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        log: Path,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
        stderr: int | None = None,
    ) -> None:
        self.port, self.log = port, log
        self._command, self._cwd, self._environ, self._stderr = command, cwd, environ, stderr
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start it; with `wait`, return when /status says that all parts are well."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._whole_command(),
                stdout=log,
                stderr=log if self._stderr is None else self._stderr,
                cwd=self._cwd,
                env=self._environ,
            )
        if wait:
            self.until(lambda: self.status()[0] == 200, "the service to be well")

    def until(self, condition: Callable[[], bool], what: str, timeout: float = 90.0) -> None:
        """Wait for a condition while the process lives. It does not hold while an answer lacks what it asks for."""
        assert self._process is not None
        deadline = time.monotonic() + timeout
        while not _holds(condition):
            assert self._process.poll() is None, f"the service ended while waiting for {what}:\n{self.tail()}"
            assert time.monotonic() < deadline, f"waited {timeout} s for {what}:\n{self.tail()}"
            time.sleep(0.05)

    def until_durable(self, database: Database, source: str = "db1") -> None:
        """Wait until everything that is committed now has been stored as durable."""
        # A transaction's end is not known from outside; that of a later one lies behind this message's LSN.
        mark = database.value("SELECT pg_logical_emit_message(true, 'psql-streamer test', '') - '0/0'::pg_lsn")
        database.execute("SELECT pg_logical_emit_message(true, 'psql-streamer test', '')")
        self.until(lambda: self.stats().get(f"source.{source}", {}).get("stored_lsn", 0) > mark, f"LSN {mark}")

    def until_it_gets_on(self, source: str = "db1") -> None:
        """Wait until it stores a position that it had not stored when this was called; changes have to come in."""

        def stored() -> str | None:
            found: str | None = self.stats().get(f"source.{source}", {}).get("stored_position")
            return found

        self.until(lambda: stored() is not None, "a stored position")
        first = stored()
        self.until(lambda: stored() not in (first, None), f"a stored position behind {first}")

    def wait(self, timeout: float = 60.0) -> int:
        """The exit code, when it ends by itself."""
        assert self._process is not None
        return self._process.wait(timeout)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def status(self) -> tuple[int, dict[str, Any]]:
        """/status: the code and the JSON; code 0 when nobody answers."""
        return self._get("/status")

    def stats(self) -> dict[str, Any]:
        """/stats; empty when nobody answers."""
        return self._get("/stats")[1]

    def text(self, path: str) -> str:
        """Whatever a path answers, as text."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as response:
            return str(response.read().decode())

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-4000:] if self.log.exists() else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)

    def _whole_command(self) -> Sequence[str]:
        """What is run at the next start."""
        return self._command

    def _get(self, path: str) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except OSError:
            return 0, {}


AS_INSTALLED = (sys.executable, str(Path(__file__).parents[1] / "benchmarks" / "as_installed.py"))
"""Starts the service without what is there for tests alone, as it is where somebody installed it."""


class Service(ServiceProcess):
    """One with a configuration file, which a test may move. `config` is TOML without http and lmdb, which this adds.

    command: what starts it without that file. The others are as ServiceProcess has them.
    """

    def __init__(
        self,
        folder: Path,
        config: str,
        command: Sequence[str] = AS_INSTALLED,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
        stderr: int | None = None,
    ) -> None:
        [port] = free_ports(1)
        self.lmdb = folder / "positions.lmdb"
        self.config = folder / "psql-streamer.toml"
        self.config.write_text(f'http = "127.0.0.1:{port}"\nlmdb = "{self.lmdb}"\n{config}')
        super().__init__(command, port, folder / "service.log", cwd, environ, stderr)

    def _whole_command(self) -> Sequence[str]:
        return [*self._command, "-config", str(self.config)]


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except KeyError:  # of what /stats and /status give, which is nothing while nobody answers
        return False
