"""`python -m benchmarks.latency [--rate N] [--tables N] [--seconds N]`: from COMMIT to the consumer, at a steady rate.

Single-row transactions over tables in turn, each with the wall clock at its COMMIT in the row, through passthrough into
a real Kafka; one machine, so one clock. Beside it how long they take to pg_recvlogical, which runs after the service.
CPU time is of all processes of the service. synchronous_commit is on: with it off PostgreSQL itself may hold WAL back
for 200 ms.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks.backlog import connected, make_slot, make_tables
from benchmarks.commits import ticks
from benchmarks.drain import ONE_TOPIC
from benchmarks.failures import BenchmarkFailed
from benchmarks.figures import Figures, cpu_figures, memory_figures, percentiles
from benchmarks.limit import streaming
from benchmarks.service import Service, Setup, Slot, Started
from benchmarks.stage import Stage, measure_alone
from psql_streamer.embedded.postgres import EmbeddedPostgres

_DATABASE = "steady"
_WARM_UP, _QUICK_WARM_UP = 8.0, 4.0
"""Seconds not measured: a fresh broker's Java compiles for that long, beside everything else."""

_STAGES = ("decode", "handle", "write")
Stages = dict[str, tuple[float, float]]
"""See Service.stages."""

_LIMIT_SECONDS = 3.0
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Steady:
    """rate: commits a second, over all tables."""

    tables: int
    rate: int
    seconds: float = 20.0
    quick_seconds: float = 4.0
    setup: Setup = Setup(ONE_TOPIC)  # noqa: RUF009 - frozen

    def measure(self, stage: Stage) -> Figures:
        """Of one service, then of one pg_recvlogical."""
        with EmbeddedPostgres(stage.binaries) as server:
            dsn = server.build_dsn(_DATABASE)
            make_tables(server, _DATABASE, ticks(self.tables))
            with connected(dsn) as cursor:
                make_slot(cursor, "service")
            figures, started = self._measure_service(stage, dsn)
            with connected(dsn) as cursor:
                cursor.execute(f"TRUNCATE {', '.join(table.name for table in ticks(self.tables))}")
                make_slot(cursor, "limit_slot")
            limit = self._measure_pg_recvlogical(stage, Slot(dsn, "limit_slot"), started)
        latencies = {name: figures.pop(name) for name in ("p50", "p99", "max")}
        return {"commits": figures.pop("commits"), **latencies, **limit, **figures}

    def _measure_service(self, stage: Stage, dsn: str) -> tuple[Figures, Started]:
        name = stage.new_name()
        warm_up, seconds = (_QUICK_WARM_UP, self.quick_seconds) if stage.quick else (_WARM_UP, self.seconds)
        unmeasured, count = int(self.rate * warm_up), int(self.rate * (warm_up + seconds))
        with (
            stage.topics((name,), partitions=1) as topics,
            Service(stage.folder, self.setup, (Slot(dsn, "service"),), stage.hosts, name) as service,
        ):
            started = service.wait_until_streaming()
            consumer = _consumer(stage.hosts, name)
            with Commits(dsn, self.tables, self.rate, count):
                _latencies(consumer, unmeasured)
                before, stages, began = service.used(), service.stages(), time.monotonic()
                latencies = _latencies(consumer, count - unmeasured)
            used, passed, ended = service.used(), service.stages(), time.monotonic()
            consumer.close()
            topics.require(count, committed=self.setup.is_transactional)
        cpu = used.cpu_since(before)
        seconds = ended - began
        shares = {**_stage_figures(stages, passed, seconds), "core": sum(cpu.values()) / seconds}
        rest = {
            "commits": len(latencies) / seconds,
            **shares,
            **cpu_figures(cpu, count - unmeasured),
            **memory_figures(used),
        }
        return {**percentiles(latencies, p50=0.5, p99=0.99, max=1.0), **rest}, started

    def _measure_pg_recvlogical(self, stage: Stage, slot: Slot, started: Started) -> Figures:
        count = int(self.rate * _LIMIT_SECONDS)
        commits = Commits(slot.dsn, self.tables, self.rate, count)
        with streaming(stage.binaries, slot, started.options) as process, commits:
            latencies = _latencies_of_output(process.stdout, count)
        return percentiles(latencies[count // 4 :], limit_p50=0.5, limit_p99=0.99)


def _stage_figures(before: Stages, after: Stages, seconds: float) -> Figures:
    """How many batches a second there were, and the milliseconds that one was in each stage."""
    spent = {stage: (after[stage][0] - count, after[stage][1] - busy) for stage, (count, busy) in before.items()}
    means = {stage: spent[stage][1] / spent[stage][0] * 1000 for stage in _STAGES if stage in spent}
    return {"batches": spent["write"][0] / seconds, **means}


def _consumer(hosts: str, topic: str) -> Consumer:
    consumer = Consumer({"bootstrap.servers": hosts, "group.id": topic, "fetch.wait.max.ms": 100, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


class Commits:
    """The writer at work while the block runs; BenchmarkFailed when it failed."""

    def __init__(self, dsn: str, tables: int, rate: int, count: int) -> None:
        command = [sys.executable, "-m", "benchmarks.commits", dsn, str(tables), str(rate), str(count)]
        self._command = command

    def __enter__(self) -> None:
        self._process = subprocess.Popen(self._command)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._process.terminate()
        if self._process.wait() and kind is None:
            raise BenchmarkFailed("the commits failed")


def _latencies(consumer: Consumer, count: int) -> list[float]:
    """Of the next records, in seconds."""
    found: list[float] = []
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while len(found) < count:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            now = time.time()
            found.append(now - _find_row(json.loads(message.value() or b""))["at"])
            deadline = time.monotonic() + _PATIENCE_SECONDS
        elif time.monotonic() > deadline:
            raise BenchmarkFailed(f"{len(found)} of {count} events arrived")
    return found


def _find_row(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The new row of an event, in the format event or debezium."""
    row: Mapping[str, Any] = event["Columns"] if "Columns" in event else event["after"]
    return row


def _latencies_of_output(stream: Any, count: int) -> list[float]:
    """As `_latencies`, of the rows that pg_recvlogical writes: a row ends with the text of `at`, and a newline."""
    found: list[float] = []
    held = b""
    while len(found) < count:
        if not (piece := stream.read(1 << 16)):
            raise BenchmarkFailed(f"pg_recvlogical ended after {len(found)} of {count} rows")
        held += piece
        now = time.time()
        whole, _, held = held.rpartition(b"\n")
        found += (now - float(text) for text in _AT.findall(whole + b"\n"))
    return found


_AT = re.compile(rb"(\d{10}(?:\.\d+)?)\n")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="commits a second")
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    return measure_alone(Steady(arguments.tables, arguments.rate, arguments.seconds))


if __name__ == "__main__":
    sys.exit(main())
