"""`python -m benchmarks.latency [--rate N] [--seconds N]`: from COMMIT to the consumer, at a steady rate.

Single-row transactions, each with the wall clock at its COMMIT in the row, through passthrough into a real Kafka;
one machine, so one clock. synchronous_commit is on: with it off PostgreSQL itself may hold WAL back for 200 ms.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg2
from confluent_kafka import Consumer

from benchmarks.backlog import PUBLICATION
from benchmarks.runs import write_config
from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.postgres import EmbeddedPostgres, server_binaries

_WARM_UP = 8.0
"""Seconds not measured: a fresh broker's Java compiles for that long, beside everything else."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    binaries = server_binaries()
    with (
        tempfile.TemporaryDirectory(prefix="psql-streamer-bench-") as folder,
        EmbeddedPostgres(binaries[max(binaries)]) as server,
        EmbeddedKafka(num_partitions=1, heap="512m") as kafka,
    ):
        connection = psycopg2.connect(server.dsn())
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE ticks (id bigint PRIMARY KEY, at double precision)")
            cursor.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE ticks")
        sink = f'type = "kafka"\nhosts = ["{kafka.bootstrap}"]\ntopicFallback = "ticks"'
        config = write_config(Path(folder), server.dsn(), "latency", sink, '["passthrough"]')
        service = subprocess.Popen([sys.executable, "-m", "psql_streamer", "-q", "--config", str(config)])
        try:
            latencies = _measure(connection, kafka.bootstrap, arguments.rate, arguments.seconds)
        finally:
            service.terminate()
            service.wait(30)
    latencies.sort()
    at = {name: latencies[min(len(latencies) - 1, int(len(latencies) * part))] for name, part in _PARTS.items()}
    print(
        f"{len(latencies)} commits at {arguments.rate}/s: " + "  ".join(f"{n} {v * 1000:.1f} ms" for n, v in at.items())
    )
    return 0


_PARTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def _measure(connection: psycopg2.extensions.connection, hosts: str, rate: int, seconds: float) -> list[float]:
    consumer = Consumer(
        {"bootstrap.servers": hosts, "group.id": "bench", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100,
         "topic.metadata.refresh.interval.ms": 500, "log_level": 0, "allow.auto.create.topics": True}
    )  # fmt: skip
    consumer.subscribe(["ticks"])
    wait_for_slot(connection)
    writer = threading.Thread(target=_write, args=(connection, rate, seconds + _WARM_UP))
    writer.start()
    latencies: list[float] = []
    count, expected, quiet = 0, int(rate * (seconds + _WARM_UP)), time.monotonic() + 60
    while count < expected and time.monotonic() < quiet:
        message = consumer.poll(0.05)
        if message is None or message.error() is not None:
            continue
        now = time.time()
        count += 1
        columns = json.loads(message.value() or b"")["Columns"]
        if columns["id"] >= rate * _WARM_UP:
            latencies.append(now - columns["at"])
    writer.join()
    consumer.close()
    if count < expected:
        raise SystemExit(f"{count} of {expected} events arrived")
    return latencies


def wait_for_slot(connection: psycopg2.extensions.connection) -> None:
    """Until the service streams."""
    deadline = time.monotonic() + 30
    with connection.cursor() as cursor:
        while time.monotonic() < deadline:
            cursor.execute("SELECT count(*) FROM pg_replication_slots WHERE active")
            if cursor.fetchone()[0]:
                return
            time.sleep(0.05)
    raise SystemExit("the service did not start")


def _write(connection: psycopg2.extensions.connection, rate: int, seconds: float) -> None:
    began = time.monotonic()
    with connection.cursor() as cursor:
        for number in range(int(rate * seconds)):
            pause = began + number / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            cursor.execute("INSERT INTO ticks VALUES (%s, %s)", (number, time.time()))


if __name__ == "__main__":
    sys.exit(main())
