"""One run over a backlog: of pg_recvlogical, or of a pipeline in a process of its own.

What a pipeline's time holds beside the reading by its helper process, which all of them have:
- passthrough -> stub_discard: decoding into columns and keeping the position. Nothing is encoded.
- passthrough -> Kafka: that, keys and values in the format `event`, and delivery (lz4, idempotent, acks=all).
- spark -> Kafka: that, with every batch sent through Spark, typed, between decoding and encoding.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.backlog import PUBLICATION, Backlog
from psql_streamer.embedded.postgres import EmbeddedPostgres


@dataclass(frozen=True)
class Pipeline:
    """sink: its section, but for what all have; {hosts} and {topic} stand for the broker and a topic prefix."""

    name: str
    handlers: str
    sink: str


# A rule, or nothing would go through Spark.
_SPARK = '[spark]\nmaster = "local[2]"\n[spark.tables."*"]\nsql = "SELECT * FROM changes"\n'

_KAFKA = 'type = "kafka"\nhosts = ["{hosts}"]\ntopicPrefix = "{topic}"'

PASSTHROUGH_TO_DISCARD = Pipeline("passthrough -> stub_discard", '["passthrough"]', 'type = "stub_discard"')
PASSTHROUGH_TO_KAFKA = Pipeline("passthrough -> Kafka", '["passthrough"]', _KAFKA)
SPARK_TO_KAFKA = Pipeline("spark -> Kafka", '["spark"]', _KAFKA)


@dataclass(frozen=True)
class Run:
    """seconds: from the start of the source until all is durable. cpu: seconds, peak_rss: bytes, by process."""

    seconds: float
    cpu: dict[str, float]
    peak_rss: dict[str, int]


def pg_recvlogical(binaries: Path, server: EmbeddedPostgres, backlog: Backlog, slot: str) -> float:
    """Seconds that it takes over the unix socket, into /dev/null."""
    command = [
        str(binaries / "pg_recvlogical"), "--start", "--slot", slot, "--endpos", backlog.end_lsn,
        "--option", "proto_version=1", "--option", f"publication_names={PUBLICATION}",
        "--file", "/dev/null", "--dbname", server.dsn(), "--no-loop",
    ]  # fmt: skip
    began = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - began


def drain(folder: Path, pipeline: Pipeline, backlog: Backlog, slot: str, hosts: str) -> Run:
    """A pipeline over the backlog. The slot's name is the topic prefix too. hosts: Kafka's."""
    sink = pipeline.sink.format(hosts=hosts, topic=slot)
    config = write_config(folder, backlog.socket_dsn, slot, sink, pipeline.handlers)
    command = [sys.executable, "-m", "benchmarks.drain", str(config), backlog.end_lsn]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Run(**json.loads(output.splitlines()[-1]))


def write_config(folder: Path, dsn: str, slot: str, sink: str, handlers: str) -> Path:
    """A configuration file, named after the slot, of one source and one sink."""
    path = folder / f"{slot}.toml"
    spark = _SPARK if "spark" in handlers else ""
    path.write_text(
        f"""
http = "127.0.0.1:0"
lmdb = "{folder}/{slot}.lmdb"
[source.bench]
type = "postgres"
dsn = "{dsn}"
publication = "{PUBLICATION}"
replicationSlot = "{slot}"
[sink.bench]
{sink}
sources = ["bench"]
handlers = {handlers}
{spark}"""
    )
    return path
