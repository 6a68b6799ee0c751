"""`python -m benchmarks [--rows N] [--runs N] [--only NAME]`: one backlog, drained by everything in turn.

pg_recvlogical writing to /dev/null over the unix socket is the most that one walsender gives; each line says what
part of it a pipeline reaches. All runs are of one session on one machine, interleaved, because machines are noisy;
the medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.backlog import SERVER_SETTINGS, fill, version
from benchmarks.runs import (
    PASSTHROUGH_TO_DISCARD,
    PASSTHROUGH_TO_KAFKA,
    SPARK_TO_KAFKA,
    Pipeline,
    Run,
    drain,
    pg_recvlogical,
)
from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.postgres import EmbeddedPostgres, server_binaries

TARGETS = {PASSTHROUGH_TO_DISCARD: 0.65, PASSTHROUGH_TO_KAFKA: 0.5, SPARK_TO_KAFKA: 0.25}
"""Pipeline -> the part of pg_recvlogical's rate that it should reach."""


def main() -> int:
    """Measure and print; 0 when every target was reached."""
    arguments = _arguments()
    chosen = [pipeline for pipeline in TARGETS if arguments.only in pipeline.name]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="psql-streamer-bench-")))
        binaries = server_binaries()[arguments.postgres or max(server_binaries())]
        server = stack.enter_context(EmbeddedPostgres(binaries, settings=SERVER_SETTINGS))
        kafka = stack.enter_context(EmbeddedKafka(num_partitions=4, heap="512m"))
        slots = [f"run_{run}_{place}" for run in range(arguments.runs) for place in range(len(chosen) + 1)]
        print(
            f"PostgreSQL {version(binaries)}, Apache Kafka on the same machine, {arguments.rows:,} inserts of 6 columns"
        )
        backlog = fill(server, arguments.rows, slots)
        print(f"{backlog.wal_bytes / 1e6:.0f} MB of WAL; {arguments.runs} runs of each, interleaved; medians:\n")
        limits: list[float] = []
        results: dict[Pipeline, list[Run]] = {pipeline: [] for pipeline in chosen}
        for run in range(arguments.runs):
            limits.append(pg_recvlogical(binaries, server, backlog, f"run_{run}_0"))
            for place, pipeline in enumerate(chosen, start=1):
                results[pipeline].append(drain(folder, pipeline, backlog, f"run_{run}_{place}", kafka.bootstrap))
    return _report(backlog.rows, limits, results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="pipelines whose name contains this")
    parser.add_argument("--postgres", type=int, default=0, help="major version; the newest there is by default")
    return parser.parse_args()


def _report(rows: int, limits: Sequence[float], results: dict[Pipeline, list[Run]]) -> int:
    limit = rows / statistics.median(limits)
    columns = f"{'':<30}{'rows/s':>10}{'ratio':>8}{'target':>8}"
    print(f"{columns}   {'CPU us/event (process)':<40}peak RSS MB (process)")
    print(f"{'pg_recvlogical > /dev/null':<30}{limit:>10,.0f}{1:>8.2f}{'':>8}   runs {_spread(rows, limits)}")
    reached = True
    for pipeline, runs in results.items():
        seconds = [run.seconds for run in runs]
        rate = rows / statistics.median(seconds)
        reached &= rate / limit >= TARGETS[pipeline]
        middle = sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
        cpu = "  ".join(f"{name} {used / rows * 1e6:.2f}" for name, used in middle.cpu.items())
        memory = "  ".join(f"{name} {peak / 1e6:.0f}" for name, peak in middle.peak_rss.items())
        print(
            f"{pipeline.name:<30}{rate:>10,.0f}{rate / limit:>8.2f}{TARGETS[pipeline]:>8.2f}   {cpu:<40}{memory}"
            f"   runs {_spread(rows, seconds)}"
        )
    return 0 if reached else 1


def _spread(rows: int, seconds: Sequence[float]) -> str:
    return " ".join(f"{rows / second:,.0f}" for second in seconds)


if __name__ == "__main__":
    sys.exit(main())
