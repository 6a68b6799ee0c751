"""`python -m benchmarks [--rows N] [--runs N] [--only NAME]`: one backlog, drained by everything in turn.

pg_recvlogical writing to /dev/null over the unix socket is the most that one walsender gives; each line says what
part of it a pipeline reaches. All runs are of one session on one machine, interleaved, because machines are noisy;
the medians are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.backlog import PUBLICATION, Backlog, fill, version
from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.postgres import EmbeddedPostgres, server_binaries

_SINKS = {
    "discard": 'type = "stub_discard"',
    "kafka": 'type = "kafka"\nhosts = ["{hosts}"]\ntopicPrefix = "{topic}"',
}


@dataclass(frozen=True)
class Candidate:
    """A pipeline to measure. target: the part of pg_recvlogical's rate that it should reach."""

    name: str
    handlers: str
    sink: str
    target: float


CANDIDATES = (
    Candidate("passthrough -> stub_discard", '["passthrough"]', "discard", 0.65),
    Candidate("passthrough -> Kafka", '["passthrough"]', "kafka", 0.5),
    Candidate("spark -> Kafka", '["spark"]', "kafka", 0.25),
)


def main() -> int:
    """Measure and print; 0 when every target was reached."""
    arguments = _arguments()
    chosen = [candidate for candidate in CANDIDATES if arguments.only in candidate.name]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="psql-streamer-bench-")))
        binaries = server_binaries()[arguments.postgres or max(server_binaries())]
        settings = {"max_wal_size": "8GB", "shared_buffers": "256MB", "synchronous_commit": "off"}
        server = stack.enter_context(EmbeddedPostgres(binaries, settings=settings))
        kafka = stack.enter_context(EmbeddedKafka(num_partitions=4, heap="512m"))
        slots = [f"run_{run}_{place}" for run in range(arguments.runs) for place in range(len(chosen) + 1)]
        print(
            f"PostgreSQL {version(binaries)}, Apache Kafka on the same machine, {arguments.rows:,} inserts of 6 columns"
        )
        backlog = fill(server, arguments.rows, slots)
        print(f"{backlog.wal_bytes / 1e6:.0f} MB of WAL; {arguments.runs} runs of each, interleaved; medians:\n")
        limits: list[float] = []
        results: dict[str, list[dict[str, Any]]] = {candidate.name: [] for candidate in chosen}
        for run in range(arguments.runs):
            limits.append(_pg_recvlogical(binaries, server, backlog, f"run_{run}_0"))
            for place, candidate in enumerate(chosen, start=1):
                config = _write_config(folder, candidate, backlog, f"run_{run}_{place}", kafka.bootstrap)
                results[candidate.name].append(_drain(config, backlog))
    return _report(backlog.rows, limits, results, chosen)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="pipelines whose name contains this")
    parser.add_argument("--postgres", type=int, default=0, help="major version; the newest there is by default")
    return parser.parse_args()


def _pg_recvlogical(binaries: Path, server: EmbeddedPostgres, backlog: Backlog, slot: str) -> float:
    """Seconds that it takes over the unix socket."""
    command = [
        str(binaries / "pg_recvlogical"), "--start", "--slot", slot, "--endpos", backlog.end_lsn,
        "--option", "proto_version=1", "--option", f"publication_names={PUBLICATION}",
        "--file", "/dev/null", "--dbname", server.dsn(), "--no-loop",
    ]  # fmt: skip
    began = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - began


def _write_config(folder: Path, candidate: Candidate, backlog: Backlog, slot: str, hosts: str) -> Path:
    sink = _SINKS[candidate.sink].format(hosts=hosts, topic=slot)
    path = folder / f"{slot}.toml"
    path.write_text(
        f"""
http = "127.0.0.1:0"
lmdb = "{folder}/{slot}.lmdb"
[source.bench]
type = "postgres"
dsn = "{backlog.socket_dsn}"
publication = "{PUBLICATION}"
replicationSlot = "{slot}"
[sink.bench]
{sink}
sources = ["bench"]
handlers = {candidate.handlers}
[spark]
master = "local[2]"
"""
    )
    return path


def _drain(config: Path, backlog: Backlog) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.drain", str(config), backlog.end_lsn]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def _report(rows: int, limits: list[float], results: dict[str, list[dict[str, Any]]], chosen: list[Candidate]) -> int:
    limit = rows / statistics.median(limits)
    print(f"{'':<30}{'rows/s':>10}{'ratio':>8}{'target':>8}   CPU us/event (process)        peak RSS MB (process)")
    print(f"{'pg_recvlogical > /dev/null':<30}{limit:>10,.0f}{1:>8.2f}{'':>8}   runs {_spread(rows, limits)}")
    reached = True
    for candidate in chosen:
        runs = results[candidate.name]
        seconds = [run["seconds"] for run in runs]
        rate = rows / statistics.median(seconds)
        reached &= rate / limit >= candidate.target
        middle = sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]
        cpu = "  ".join(f"{name} {used / rows * 1e6:.2f}" for name, used in middle["cpu"].items())
        memory = "  ".join(f"{name} {peak / 1e6:.0f}" for name, peak in middle["peak_rss"].items())
        print(
            f"{candidate.name:<30}{rate:>10,.0f}{rate / limit:>8.2f}{candidate.target:>8.2f}   {cpu:<30}{memory}"
            f"   runs {_spread(rows, seconds)}"
        )
    return 0 if reached else 1


def _spread(rows: int, seconds: list[float]) -> str:
    return " ".join(f"{rows / second:,.0f}" for second in seconds)


if __name__ == "__main__":
    sys.exit(main())
