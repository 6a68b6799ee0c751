"""The service as a user runs it: a configuration file, the ordinary command line, a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from psql_streamer import launcher
from psql_streamer.embedded.java import find_java
from psql_streamer.embedded.ports import LOOPBACK, free_ports
from psql_streamer.errors import StreamerError
from psql_streamer.model import Stats

_CONFIG = """\
# What `psql-streamer demo` runs.
http = {http}
lmdb = {lmdb}

[log]
level = "warning"

{source}

[sink.kafka]
type = "kafka"
sources = ["shop"]
hosts = {hosts}
handlers = {handlers}
topicPrefix = {prefix}
{more}"""

_SERVICE_START_SECONDS = 300.0
_SERVICE_STOP_SECONDS = 60.0
_LOG_LINES = 12


IsStreaming: TypeAlias = Callable[[Stats], bool]
"""Whether what is written from now on is seen, by the service's statistics."""


class ServiceProcess:
    """`python -m psql_streamer run --config FILE`, with its log beside the file.

    source: the section of its source, `shop`. is_streaming: asked when its status is good. rules: the section
    [spark]; none: there is no Spark. dead_letter_topic: for rows that rules put aside.
    """

    def __init__(
        self,
        folder: Path,
        source: str,
        brokers: str,
        topic_prefix: str,
        is_streaming: IsStreaming,
        rules: str = "",
        dead_letter_topic: str = "",
    ) -> None:
        self.config_file = folder / "psql-streamer.toml"
        self.log_file = folder / "service.log"
        self._is_streaming = is_streaming
        self._port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        values = {
            "http": f"{LOOPBACK}:{self._port}",
            "lmdb": str(folder / "positions"),
            "hosts": brokers.split(","),
            "handlers": ["spark" if rules else "passthrough"],
            "prefix": topic_prefix,
        }
        # JSON's strings and lists are TOML's as well.
        written = {key: json.dumps(value) for key, value in values.items()}
        more = f"deadLetterTopic = {json.dumps(dead_letter_topic)}\n" if dead_letter_topic else ""
        self.config_file.write_text(_CONFIG.format(source=source, more=more, **written) + rules)

    @property
    def url(self) -> str:
        """Where its HTTP API is."""
        return f"http://{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """Return when it streams: /status is good, and so is the source's side."""
        # What is set for another service must not reach into this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PSQL_STREAMER__")}
        environment["JAVA_HOME"] = str(find_java().resolve().parent.parent)
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                launcher.make_command("psql_streamer.cli", "run", "--config", str(self.config_file)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.config_file.parent,
                env=environment,
                # Ctrl-C reaches the demo alone, which stops the service after the shop.
                start_new_session=True,
            )
        deadline = time.monotonic() + _SERVICE_START_SECONDS
        while not (self._status_is_good() and self._is_streaming(self._read_stats())):
            self.require_running()
            if time.monotonic() > deadline:
                raise StreamerError(f"the service did not come up in {_SERVICE_START_SECONDS:.0f} s", self._log_end())
            time.sleep(0.2)

    def describe_snapshot(self) -> str:
        """How many rows a snapshot of its source gave; empty for a source that takes none."""
        snapshots = self._read_stats().get("source.shop", {}).get("snapshots") or []
        return ", ".join(
            f"snapshot {one['id']}: {one['state']}, {one['rows']:,} rows of {one['tables']} tables" for one in snapshots
        )

    def count_lookup_rows(self, name: str) -> int | None:
        """How many rows a lookup of its rules has; None before it is read."""
        lookups = (part.get("lookups") or {} for part in self._read_stats().values() if isinstance(part, dict))
        return next((one[name].get("rows") for one in lookups if name in one), None)

    def require_running(self) -> None:
        """StreamerError with the end of its log when it has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise StreamerError(f"the service ended with exit code {self._process.returncode}", self._log_end())

    def stop(self) -> None:
        """SIGTERM: it drains, stores its position, and leaves. StreamerError unless it then exits with 0."""
        self.require_running()
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_SERVICE_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise StreamerError(f"the service did not stop in {_SERVICE_STOP_SECONDS:.0f} s", self._log_end()) from None
        self._process = None
        if code != 0:
            raise StreamerError(f"the service ended with exit code {code}", self._log_end())

    def kill(self) -> None:
        """End it and what it started (the JVM) at once. May be called after `stop`."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _status_is_good(self) -> bool:
        return self._get("/status") is not None

    def _read_stats(self) -> Stats:
        found: Stats = json.loads(self._get("/stats") or "{}")
        return found

    def _get(self, path: str) -> bytes | None:
        """What it answers, if all is well."""
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.read() if answer.status == http.client.OK else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def _log_end(self) -> str:
        lines = [line for line in self.log_file.read_text(errors="replace").splitlines() if line.strip()]
        return "its log ends with:\n" + "\n".join(f"  {line}" for line in lines[-_LOG_LINES:])
