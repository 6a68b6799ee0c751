"""`python -m benchmarks.shapes [--rows-scale F] [--only NAME]`: rows of other shapes than `python -m benchmarks` has.

For every shape one backlog on a server of its own, drained once by pg_recvlogical into /dev/null over the unix socket
and once by each pipeline: figures to compare, without targets. MB are of WAL; MB/s of WAL read; `main` is the process
that decodes, encodes and delivers. stub_discard takes batches as they were decoded: nothing is encoded there, so the
distance to Kafka is the encoding and the delivery. A run of a second or two holds the start of the reader (0.2 s).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.backlog import ORDERS, SERVER_SETTINGS, Backlog, Table, fill, version
from benchmarks.runs import PASSTHROUGH_TO_DISCARD, PASSTHROUGH_TO_KAFKA, Run, drain, pg_recvlogical
from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.postgres import EmbeddedPostgres, server_binaries

PIPELINES = (PASSTHROUGH_TO_DISCARD, PASSTHROUGH_TO_KAFKA)


@dataclass(frozen=True)
class Shape:
    """rows: as many as take the slowest pipeline three to five seconds on two cores."""

    name: str
    rows: int
    table: Table
    rows_per_transaction: int = 1000


def _wide(columns: int) -> Table:
    """Integers and texts in turn."""
    texts = ((f"c{at} text", f"'text {at} of ' || i") for at in range(0, columns, 2))
    integers = ((f"c{at} int", f"i + {at}") for at in range(1, columns, 2))
    kinds = [kind for pair in zip(texts, integers, strict=True) for kind in pair]
    return _table("wide", *kinds)


def _table(name: str, *columns: tuple[str, str]) -> Table:
    """(column as CREATE TABLE takes it, its SQL) each, behind an id."""
    definitions, values = zip(*columns, strict=True)
    return Table(name, ", ".join(("id bigint PRIMARY KEY", *definitions)), ", ".join(("i", *values)))


# EXTERNAL keeps the value uncompressed in the WAL; digests keep Kafka's lz4 from making little of it.
_TEN_KILOBYTES = "(SELECT string_agg(md5(i || ' ' || part), '') FROM generate_series(1, 320) part)"

_NUMERICS = (
    ("n0 numeric(12, 2)", "i::numeric / 100"),
    ("n1 numeric(12, 2)", "-i"),
    ("n2 numeric(38, 10)", "i * 12345678901234567.0000000001"),
    ("n3 numeric(5, 4)", "(i % 10000)::numeric / 10000"),
    ("n4 numeric(18)", "i * 1000000007::numeric"),
    ("n5 numeric", "i / 7.0"),
    ("n6 numeric", "i * 1e20"),
    ("n7 numeric", "i % 10"),
)

_TIMES = (
    ("t0 timestamptz", "timestamptz '2024-01-01 10:00:00+00' + i * interval '1.000001 second'"),
    ("t1 timestamptz", "timestamptz '1970-01-01 00:00:00+00' + i * interval '1 minute'"),
    ("t2 timestamptz", "timestamptz '2024-06-01 00:00:00+00' + i * interval '1 millisecond'"),
    ("t3 timestamp", "timestamp '2024-01-01 10:00:00' + i * interval '1.000001 second'"),
    ("t4 timestamp", "timestamp '1970-01-01 00:00:00' + i * interval '1 minute'"),
    ("t5 timestamp(3)", "timestamp '2024-06-01 00:00:00' + i * interval '1 millisecond'"),
    ("t6 date", "date '1970-01-01' + i % 30000"),
    ("t7 date", "date '2024-01-01' + i % 366"),
)

_DOCUMENT = """jsonb_build_object(
    'id', i, 'customer', jsonb_build_object('name', 'customer ' || i, 'email', 'customer' || i || '@example.com'),
    'lines', jsonb_build_array(
        jsonb_build_object('sku', md5(i::text), 'amount', i / 100.0, 'tags', jsonb_build_array('new', 'fragile')),
        jsonb_build_object('sku', md5((i + 1)::text), 'amount', i % 100, 'tags', jsonb_build_array())),
    'paid', i % 2 = 0, 'note', null)"""

_ARRAYS = (
    ("a0 int[]", "ARRAY[i, i + 1, i + 2, i + 3, i + 4]"),
    ("a1 int[]", "ARRAY[[i, NULL], [i % 10, 0]]"),
    ("a2 text[]", "ARRAY['one', 'number ' || i, 'a \"quoted\" one']"),
    ("a3 text[]", "ARRAY['tag' || i % 10, 'tag' || i % 7, NULL]"),
)

SHAPES = (
    Shape("plain", 800_000, ORDERS),
    Shape("transactions of one row", 400_000, ORDERS, rows_per_transaction=1),
    Shape("wide row: 200 columns", 25_000, _wide(200)),
    Shape("text of 10 kB", 25_000, _table("texts", ("document text STORAGE EXTERNAL", _TEN_KILOBYTES))),
    Shape("8 numerics", 400_000, _table("numerics", *_NUMERICS)),
    Shape("8 timestamps, dates", 400_000, _table("times", *_TIMES)),
    Shape("jsonb", 300_000, _table("documents", ("document jsonb", _DOCUMENT))),
    Shape("4 arrays", 80_000, _table("arrays", *_ARRAYS)),
)


def main() -> int:
    """Measure and print."""
    arguments = _arguments()
    chosen = [shape for shape in SHAPES if arguments.only in shape.name]
    if not chosen:
        print(f"--only {arguments.only}: the shapes are {', '.join(shape.name for shape in SHAPES)}", file=sys.stderr)
        return 2
    binaries = server_binaries()[max(server_binaries())]
    with EmbeddedKafka(num_partitions=4, heap="512m") as kafka:
        print(f"PostgreSQL {version(binaries)}, Apache Kafka on the same machine; one run of each")
        print(f"{'':<24}{'':<30}{'rows/s':>10}{'MB/s':>8}{'ratio':>8}   CPU us/event of main")
        for shape in chosen:
            _measure(shape, max(1000, int(shape.rows * arguments.rows_scale)), binaries, kafka.bootstrap)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shapes", description=__doc__)
    parser.add_argument("--rows-scale", type=float, default=1.0, help="times the rows of every shape")
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    return parser.parse_args()


def _measure(shape: Shape, rows: int, binaries: Path, hosts: str) -> None:
    """A line for pg_recvlogical, and one for each pipeline as soon as it is known."""
    slots = [f"shape_{SHAPES.index(shape)}_{place}" for place in range(len(PIPELINES) + 1)]
    with (
        tempfile.TemporaryDirectory(prefix="psql-streamer-bench-") as folder,
        EmbeddedPostgres(binaries, settings=SERVER_SETTINGS) as server,
    ):
        backlog = fill(server, rows, slots, shape.table, shape.rows_per_transaction)
        print(f"{shape.name}: {rows:,} rows, {backlog.wal_bytes / 1e6:.0f} MB of WAL", flush=True)
        limit = pg_recvlogical(binaries, server, backlog, slots[0])
        _print_line("pg_recvlogical > /dev/null", backlog, limit, limit)
        for pipeline, slot in zip(PIPELINES, slots[1:], strict=True):
            run = drain(Path(folder), pipeline, backlog, slot, hosts)
            _print_line(pipeline.name, backlog, run.seconds, limit, run)


def _print_line(name: str, backlog: Backlog, seconds: float, limit: float, run: Run | None = None) -> None:
    cpu = f"{run.cpu['main'] / backlog.rows * 1e6:.2f}" if run else ""
    rate, size = backlog.rows / seconds, backlog.wal_bytes / 1e6 / seconds
    print(f"{'':<24}{name:<30}{rate:>10,.0f}{size:>8.0f}{limit / seconds:>8.2f}   {cpu}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
