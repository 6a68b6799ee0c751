"""The Go psql-streamer from topic to topic: its Kafka source, its passthrough handler, its Kafka sink.

It reads the format `event`, of which it takes the fields that it has itself. `--go-service` names its program.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.figures import Figures
from benchmarks.programs import Program, measure_delivery
from benchmarks.stage import Stage
from psql_streamer.embedded.ports import LOOPBACK, free_ports

_DEFAULT_BATCH, _LARGE_BATCH = 100, 10_000


class GoService(Program):
    """The program with one source and one sink. batch: the batchSize of both, so that a batch is sent at once."""

    def __init__(self, program: Path, folder: Path, hosts: str, source: str, target: str, batch: int) -> None:
        config = folder / f"{target}.toml"
        config.write_text(_config(hosts.split(","), source, target, batch))
        super().__init__("the Go psql-streamer", [str(program), "-config", str(config)], folder / f"{target}.log")


def measure_go_service(stage: Stage, program: Path, source: str, rows: int) -> Figures:
    """Two runs over a topic, each into a topic of its own: with the default batchSize, and with a larger one."""
    figures: Figures = {}
    for prefix, batch in (("go", _DEFAULT_BATCH), ("go_large", _LARGE_BATCH)):
        target = f"{source}-{prefix}"
        with stage.topics((target,), partitions=4) as topics:
            with GoService(program, stage.folder, stage.hosts, source, target, batch) as service:
                measured = measure_delivery(service, topics, 0, rows)
            topics.require(rows)
        figures |= {prefix: measured["rate"], f"{prefix}_cpu": measured["cpu"], f"{prefix}_rss": measured["rss"]}
    return figures


def _config(hosts: list[str], source: str, target: str, batch: int) -> str:
    # JSON's strings, numbers and lists are TOML's as well.
    both = f'type = "kafka"\nhosts = {json.dumps(hosts)}\nbatchSize = {batch}\n'
    return (
        f'http = "{LOOPBACK}:{free_ports(1)[0]}"\n'
        f'[source.bench]\n{both}topics = ["{source}"]\ngroupID = "{target}"\n'
        f'[sink.bench]\n{both}sources = ["bench"]\nhandlers = ["passthrough"]\ntopicFallback = "{target}"\n'
    )
