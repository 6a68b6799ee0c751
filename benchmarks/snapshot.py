"""`python -m benchmarks.snapshot [--rows N] [--tables N] [--changes N]`: a first start with rows in the tables.

The rows come to a real Kafka as READ changes, while a writer changes them. Beside their rate stands that of COPY table
TO STDOUT, table after table, by psql into /dev/null, before the service starts. The clock runs from the broker's time
of the first READ to the moment at which the position says that the snapshot has ended, and is stored.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, TopicPartition

from benchmarks.backlog import SERVER_SETTINGS, connected, make_slot, make_tables
from benchmarks.commits import ticks
from benchmarks.drain import TOPIC_PER_TABLE
from benchmarks.failures import BenchmarkFailed
from benchmarks.figures import Figures, cpu_figures, memory_figures, percentiles
from benchmarks.service import Service, Setup, Slot
from benchmarks.stage import Stage, measure_alone
from benchmarks.tables import table
from psql_streamer.checkpoint.store import Store
from psql_streamer.embedded.postgres import EmbeddedPostgres
from sources.postgres.snapshot.copying import APPLICATION_NAME

_DATABASE = "existing"
_PREFIX = "existing_"
_SLOT = "service"
# synchronous_commit stays on: with it off PostgreSQL itself may hold WAL back for 200 ms.
_SETTINGS = SERVER_SETTINGS | {"synchronous_commit": "on"}
_PARTITIONS = 4
_PATIENCE_SECONDS = 1800.0
_LOOK_SECONDS = 0.1
_FIRST_RECORDS = 5000
"""Records of a topic among which its first READ is: changes may come before it."""


@dataclass(frozen=True)
class ExistingRows:
    """rows: over all tables. changes: a second, while they are read; 0 for none."""

    rows: int = 5_000_000
    quick_rows: int = 200_000
    tables: int = 20
    changes: int = 2000

    def measure(self, stage: Stage) -> Figures:
        """Of one service, behind one COPY."""
        each = (stage.rows or (self.quick_rows if stage.quick else self.rows)) // self.tables
        rows = each * self.tables
        with EmbeddedPostgres(stage.binaries, settings=_SETTINGS) as server:
            self._fill(server, each)
            dsn = server.build_dsn(_DATABASE)
            copied = rows / _copy(stage.binaries, dsn, self._names)
            figures = self._measure_service(stage, dsn, each)
        rate = figures.pop("rate")
        return {"rows": rows, "rate": rate, "copy": copied, "of_copy": rate / copied, **figures}

    @property
    def _names(self) -> Sequence[str]:
        return [f"{_PREFIX}{at}" for at in range(self.tables)]

    def _fill(self, server: EmbeddedPostgres, each: int) -> None:
        tables = [replace(_ROW, name=name) for name in self._names]
        make_tables(server, _DATABASE, [*tables, *ticks(1)])
        with connected(server.build_dsn(_DATABASE)) as cursor:
            for one in tables:
                cursor.execute(f"INSERT INTO {one.name} SELECT {one.values} FROM generate_series(1, {each}) i")
            cursor.execute("VACUUM ANALYZE")
            cursor.execute("CHECKPOINT")

    def _measure_service(self, stage: Stage, dsn: str, each: int) -> Figures:
        name = stage.new_name()
        topics = [f"{name}.public.{table}" for table in (*self._names, "ticks_0")]
        with connected(dsn) as cursor:
            make_slot(cursor, _SLOT)
        setup = Setup(TOPIC_PER_TABLE, snapshot="initial")
        with (
            stage.topics(tuple(topics), partitions=_PARTITIONS),
            _changes(dsn, self.tables, each, self.changes),
            _Latencies(stage.hosts, topics[-1]) as latencies,
            _Server(dsn) as server,
            Service(stage.folder, setup, (Slot(dsn, _SLOT),), stage.hosts, name) as service,
        ):
            started = service.wait_until_streaming()
            state, ended = _wait_for_the_end(stage.folder / f"{name}.lmdb", service)
            used = service.used()
            began = min(_first_read(stage.hosts, topic) for topic in topics[:-1])
        shown = {"rate": state.rows / (ended - began), "stale": state.stale, **server.figures(began, ended)}
        if self.changes:
            shown |= latencies.figures(began, ended)
        return {**shown, **cpu_figures(used.cpu_since(started.used), state.rows), **memory_figures(used)}


_ROW = table(
    "existing",
    ("customer bigint", "i * 1000000007::bigint"),
    ("name text", "'customer ' || i"),
    ("note text", "'what somebody wrote about row ' || i || ' of this table'"),
    ("amount numeric(12, 2)", "(i % 100000)::numeric / 100"),
    ("at timestamptz", "timestamptz '2024-01-01 10:00:00+00' + i * interval '1.000001 second'"),
)
_ROW = replace(_ROW, columns=_ROW.columns.replace("id bigint", "id int", 1))


def _copy(binaries: Path, dsn: str, tables: Sequence[str]) -> float:
    """Seconds that COPY of all tables takes, one after the other over one connection."""
    commands = [word for table in tables for word in ("--command", f"COPY {table} TO STDOUT")]
    began = time.monotonic()
    subprocess.run([binaries / "psql", "--quiet", "--no-psqlrc", dsn, *commands], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


@dataclass(frozen=True)
class _State:
    """Of a snapshot that has ended. rows: given. stale: left out, because the stream had newer ones."""

    rows: int
    stale: int


def _wait_for_the_end(path: Path, service: Service) -> tuple[_State, float]:
    """How the snapshot ended, and when (time.time) its end was found in the position store."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        service.require_running()
        runs = _stored_snapshots(path)
        if runs and runs[-1]["state"] == "done":
            return _State(sum(table["rows"] for table in runs[-1]["tables"]), runs[-1]["stale"]), time.time()
        if runs and runs[-1]["state"] == "failed":
            raise BenchmarkFailed(f"the snapshot failed: {runs[-1]['reason']}")
        time.sleep(_LOOK_SECONDS)
    raise BenchmarkFailed(f"the snapshot did not end within {_PATIENCE_SECONDS:.0f} s")


def _stored_snapshots(path: Path) -> Sequence[Mapping[str, Any]]:
    store = Store(path)
    store.open_to_read()
    try:
        record = store.get("bench0")
    finally:
        store.close()
    found: Sequence[Mapping[str, Any]] = () if record is None else record.position.data.get("snapshots", ())
    return found


def _first_read(hosts: str, topic: str) -> float:
    """The broker's time of the first READ of a topic, in seconds since 1970."""
    consumer = _consumer(hosts, topic)
    try:
        for _ in range(_FIRST_RECORDS):
            message = consumer.poll(10.0)
            if message is None:
                break
            if json.loads(message.value() or b"{}").get("Action") == "read":
                return float(message.timestamp()[1]) / 1000
    finally:
        consumer.close()
    raise BenchmarkFailed(f"{topic} has no READ among its first records")


def _consumer(hosts: str, topic: str) -> Consumer:
    consumer = Consumer({"bootstrap.servers": hosts, "group.id": topic, "fetch.wait.max.ms": 100, "log_level": 0})
    consumer.assign([TopicPartition(topic, at, 0) for at in range(_PARTITIONS)])
    return consumer


class _Watch:
    """Something that a thread of its own looks at, again and again, while a block runs."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(10)

    def _run(self) -> None:
        raise NotImplementedError


class _Latencies(_Watch):
    """How long the ticks take from just before their COMMIT to a consumer."""

    def __init__(self, hosts: str, topic: str) -> None:
        super().__init__()
        self._hosts, self._topic = hosts, topic
        self._found: list[tuple[float, float]] = []

    def figures(self, began: float, ended: float) -> Figures:
        """Of those that were committed between two moments (time.time)."""
        found = [seconds for at, seconds in self._found if began <= at <= ended]
        if not found:
            raise BenchmarkFailed("no change came while the snapshot went on")
        return {"transactions": len(found) / (ended - began), **percentiles(found, p50=0.5, p99=0.99, max=1.0)}

    def _run(self) -> None:
        consumer = _consumer(self._hosts, self._topic)
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            now, event = time.time(), json.loads(message.value() or b"")
            if event["Action"] == "insert":  # the table of ticks is read, too
                at = float(event["Columns"]["at"])
                self._found.append((at, now - at))
        consumer.close()


class _Look(NamedTuple):
    """at: time.time. age: of the oldest transaction of the sessions that read chunks, seconds. confirmed: an LSN."""

    at: float
    age: float
    confirmed: int


class _Server(_Watch):
    """The sessions that read chunks, and the slot."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn
        self._looks: list[_Look] = []

    def figures(self, began: float, ended: float) -> Figures:
        """Between two moments (time.time). still: the longest time for which confirmed_flush_lsn stood still."""
        looks = [look for look in self._looks if began <= look.at <= ended]
        if not looks:
            raise BenchmarkFailed("the snapshot was over before anybody looked at the server: take more rows")
        moved = [after.at for before, after in pairwise(looks) if after.confirmed > before.confirmed]
        still = max(after - before for before, after in pairwise([began, *moved, ended]))
        return {"oldest": max(look.age for look in looks), "still": still}

    def _run(self) -> None:
        with connected(self._dsn) as cursor:
            while not self._stopping.wait(_LOOK_SECONDS):
                cursor.execute(_LOOK, (APPLICATION_NAME, _SLOT))
                age, confirmed = cursor.fetchone()
                self._looks.append(_Look(time.time(), float(age), int(confirmed)))


_LOOK = """SELECT (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)
    FROM pg_stat_activity WHERE application_name = %s),
    confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"""


@contextmanager
def _changes(dsn: str, tables: int, rows: int, rate: int) -> Iterator[None]:
    """The writer at work while the block runs; BenchmarkFailed when it ended by itself. rows: of each table."""
    if not rate:
        yield
        return
    command = [sys.executable, "-m", "benchmarks.changes", dsn, _PREFIX, *map(str, (tables, rows, rate))]
    process = subprocess.Popen(command)
    try:
        yield
        if process.poll() is not None:
            raise BenchmarkFailed("the changes failed")
    finally:
        process.terminate()
        process.wait()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshot", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="over all tables")
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--changes", type=int, default=2000, help="a second")
    arguments = parser.parse_args()
    return measure_alone(ExistingRows(arguments.rows, arguments.rows, arguments.tables, arguments.changes))


if __name__ == "__main__":
    sys.exit(main())
