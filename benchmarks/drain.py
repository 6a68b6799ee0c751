"""One run of psql-streamer over the backlog, in a process of its own: `python -m benchmarks.drain CONFIG END_LSN`.

Prints one JSON object: seconds from the start of the source to the moment at which everything is durable and its
position stored, CPU seconds by process, peak resident memory by process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from psql_streamer import logs
from psql_streamer.config import load
from psql_streamer.errors import StreamerError
from psql_streamer.lsn import Lsn
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.pipeline.pipeline import Pipeline


class _Watch(Metrics):
    """ended: set when the position that is stored has reached the end, or with `failure` when a part failed."""

    def __init__(self, end: Lsn) -> None:
        super().__init__()
        self.ended = threading.Event()
        self.failure: StreamerError | None = None
        self.pipeline: Pipeline | None = None
        self._end = end

    def stored_up_to(self, source: str, ticket: int) -> None:
        super().stored_up_to(source, ticket)
        assert self.pipeline is not None
        if self.pipeline.stats()[f"source.{source}"]["stored_lsn"] >= self._end:
            self.ended.set()


def main(config_file: str, end_lsn: str) -> None:
    """Drain, and print what it took."""
    config = load(Path(config_file), os.environ)
    logs.configure(config.log, verbosity=-1)
    watch = _Watch(Lsn.parse(end_lsn))
    pipeline = watch.pipeline = Pipeline(config, watch)
    try:
        pipeline.start_sinks()
        before = processes()
        began = time.monotonic()
        pipeline.start_sources()
        threading.Thread(target=_watch_for_failure, args=(pipeline, watch), daemon=True).start()
        if not watch.ended.wait(600):
            raise SystemExit("the backlog was not drained in ten minutes")
        if watch.failure is not None:
            raise SystemExit(str(watch.failure))
        seconds = time.monotonic() - began
        after = processes()
    finally:
        pipeline.close()
    cpu = {name: round(used - before.get(name, (0.0, 0))[0], 3) for name, (used, _) in after.items()}
    memory = {name: peak for name, (_, peak) in after.items()}
    print(json.dumps({"seconds": round(seconds, 3), "cpu": cpu, "peak_rss": memory}))


def _watch_for_failure(pipeline: Pipeline, watch: _Watch) -> None:
    try:
        pipeline.wait()
    except StreamerError as error:
        watch.failure = error
        watch.ended.set()


def processes() -> dict[str, tuple[float, int]]:
    """CPU seconds and peak resident bytes of this process and its descendants: main, reader, jvm."""
    found: dict[str, tuple[float, int]] = {}
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            name = "main" if process == this else "reader" if "sources.postgres.reader" in process.cmdline() else "jvm"
            times = process.cpu_times()
            used, peak = found.get(name, (0.0, 0))
            found[name] = (used + times.user + times.system, max(peak, _peak_resident(process.pid)))
    return found


def _peak_resident(pid: int) -> int:
    """VmHWM of proc(5), which psutil does not have on Linux."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
