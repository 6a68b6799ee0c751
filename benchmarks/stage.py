"""What all benchmarks of a session have: a broker, the PostgreSQL to start servers of, a folder, how much to do."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import psutil

from benchmarks.failures import FAILURES
from benchmarks.figures import Figures, shown
from benchmarks.topics import Topics
from benchmarks.warm_up import warm_up
from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.postgres import find_server_binaries

_LARGEST_REQUEST = "16777216"
_LOOK_SECONDS, _QUIET_CORE = 0.3, 0.2
_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class Stage:
    """binaries: of PostgreSQL. hosts, broker: Kafka's address and process. quick: smaller numbers. runs: of a backlog,
    each with the limit beside it. rows: in place of the benchmark's own number, or 0. go_service: program of the Go
    psql-streamer, or None."""

    binaries: Path
    folder: Path
    hosts: str
    broker: psutil.Process
    quick: bool = False
    runs: int = 1
    rows: int = 0
    go_service: Path | None = None

    def new_name(self) -> str:
        """For a topic or a prefix of topics; no two are equal."""
        return f"bench{next(_NUMBERS)}"

    @contextmanager
    def topics(self, names: tuple[str, ...], partitions: int) -> Iterator[Topics]:
        """Topics that are there while the block runs."""
        topics = Topics(self.hosts, names, partitions)
        topics.make()
        self._wait_for_the_broker()
        try:
            yield topics
        finally:
            topics.remove()
            self._wait_for_the_broker()

    def _wait_for_the_broker(self) -> None:
        """It goes on with a thousand topics when it has said that they are there, or gone; that is nobody's figure."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            before = self.broker.cpu_times()
            time.sleep(_LOOK_SECONDS)
            after = self.broker.cpu_times()
            if after.user + after.system - before.user - before.system <= _QUIET_CORE * _LOOK_SECONDS:
                return


class Benchmark(Protocol):
    """Something that gives figures."""

    def measure(self, stage: Stage) -> Figures:
        """BenchmarkFailed where there are none."""


@contextmanager
def a_stage(postgres: int = 0, **amounts: Any) -> Iterator[Stage]:
    """A stage with a broker of its own. postgres: major version, the newest there is by default. amounts: Stage's."""
    found = find_server_binaries()
    properties = {"socket.request.max.bytes": _LARGEST_REQUEST, "auto.create.topics.enable": "false"}
    with (
        TemporaryDirectory(prefix="psql-streamer-bench-") as folder,
        EmbeddedKafka(num_partitions=1, heap="512m", properties=properties) as kafka,
    ):
        warm_up(kafka.bootstrap)
        yield Stage(found[postgres or max(found)], Path(folder), kafka.bootstrap, psutil.Process(kafka.pid), **amounts)


def measure_alone(benchmark: Benchmark, **amounts: Any) -> int:
    """Measure one that is in no list, and print it; the exit status."""
    with a_stage(**amounts) as stage:
        try:
            print(shown(benchmark.measure(stage)))
        except FAILURES as failure:
            print(f"FAILED: {failure}", file=sys.stderr)
            return 1
    return 0


_NUMBERS = count(1)
