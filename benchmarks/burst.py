"""`python -m benchmarks.burst [--tables N]`: one transaction with one row in each of many tables.

Seconds from COMMIT to the last record in the topic, of the second such transaction: in the first one the walsender and
the service meet the tables. Beside it the time until pg_recvlogical, which runs after the service, has written the last
byte of its second one.
"""

from __future__ import annotations

import argparse
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Self

import psycopg2

from benchmarks.backlog import SERVER_SETTINGS, connected, make_slot, make_tables
from benchmarks.drain import ONE_TOPIC
from benchmarks.failures import BenchmarkFailed
from benchmarks.figures import Figures, cpu_figures, memory_figures
from benchmarks.limit import streaming
from benchmarks.service import Service, Setup, Slot, Started
from benchmarks.stage import Stage, measure_alone
from benchmarks.tables import Table, one_shape
from psql_streamer.embedded.postgres import EmbeddedPostgres

_DATABASE = "burst"
_SETUP = Setup(ONE_TOPIC)
_QUIET_SECONDS = 2.0


@dataclass(frozen=True)
class Burst:
    """quick_tables: where little time is to be taken."""

    tables: int
    quick_tables: int

    def measure(self, stage: Stage) -> Figures:
        """Of one service, then of one pg_recvlogical."""
        tables = one_shape(stage.rows or (self.quick_tables if stage.quick else self.tables))
        with EmbeddedPostgres(stage.binaries, settings=SERVER_SETTINGS) as server:
            dsn = server.build_dsn(_DATABASE)
            make_tables(server, _DATABASE, tables)
            with connected(dsn) as cursor:
                make_slot(cursor, "service")
                cursor.execute(_procedure(tables))
            figures, started = self._measure_service(stage, dsn, len(tables))
            with connected(dsn) as cursor:
                make_slot(cursor, "limit_slot")
            limit = self._measure_pg_recvlogical(stage, dsn, started)
        seconds = figures.pop("seconds")
        return {"tables": len(tables), "seconds": seconds, "limit_seconds": limit, **figures}

    def _measure_service(self, stage: Stage, dsn: str, tables: int) -> tuple[Figures, Started]:
        name = stage.new_name()
        with (
            stage.topics((name,), partitions=4) as topics,
            Service(stage.folder, _SETUP, (Slot(dsn, "service"),), stage.hosts, name) as service,
        ):
            started = service.wait_until_streaming()
            with _Writer(dsn) as writer:
                writer.commit_burst(0)
                topics.wait_for(tables, service.require_running)
                before = service.used()
                committed = writer.commit_burst(tables)
                ended = topics.wait_for(2 * tables, service.require_running)
            used = service.used()
            topics.require(2 * tables)
        figures = {**cpu_figures(used.cpu_since(before), tables), **memory_figures(used)}
        return {"seconds": ended - committed, **figures}, started

    def _measure_pg_recvlogical(self, stage: Stage, dsn: str, started: Started) -> float:
        slot = Slot(dsn, "limit_slot")
        with streaming(stage.binaries, slot, started.options) as process, _Writer(dsn) as writer:
            _end_of_output(process, writer.commit_burst(-1))
            committed = writer.commit_burst(-2)
            return _end_of_output(process, committed) - committed


class _Writer:
    """A session that writes bursts."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg2.connect(dsn)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def commit_burst(self, base: int) -> float:
        """Write a row to each table, and commit. The time (time.time) at which COMMIT was sent. base: of the ids."""
        with self._connection.cursor() as cursor:
            cursor.execute("CALL burst(%s)", (base,))
        committed = time.time()
        self._connection.commit()
        return committed


def _procedure(tables: tuple[Table, ...]) -> str:
    """Of a session's calls the second one has its statements planned."""
    body = "\n".join(f"i := i + 1; INSERT INTO {table.name} VALUES ({table.values});" for table in tables)
    return f"CREATE PROCEDURE burst(i bigint) LANGUAGE plpgsql AS $$ BEGIN\n{body}\nEND $$"


def _end_of_output(process: subprocess.Popen[bytes], since: float) -> float:
    """The time (time.time) of the last bytes before it wrote none for a while."""
    stream: Any = process.stdout
    last, quiet_after = 0.0, since + 60.0
    while (left := quiet_after - time.time()) > 0:
        if select.select([stream], [], [], left)[0]:
            if not stream.read(1 << 20):
                raise BenchmarkFailed("pg_recvlogical ended")
            last = time.time()
            quiet_after = last + _QUIET_SECONDS
    if not last:
        raise BenchmarkFailed("pg_recvlogical wrote nothing")
    return last


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.burst", description=__doc__)
    parser.add_argument("--tables", type=int, default=10_000)
    arguments = parser.parse_args()
    return measure_alone(Burst(arguments.tables, arguments.tables))


if __name__ == "__main__":
    sys.exit(main())
