"""The service as a user runs it: a configuration file, and what is seen from outside."""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from psycopg2.extensions import make_dsn

from benchmarks.backlog import PUBLICATION, connected
from benchmarks.failures import BenchmarkFailed
from benchmarks.processes import Used
from benchmarks.programs import Program
from psql_streamer.embedded.ports import LOOPBACK, free_ports

_START_SECONDS = 180.0


@dataclass(frozen=True)
class Setup:
    """Parts of a configuration file. sink: its keys but for `sources` and `handlers`; {hosts} and {topic} stand for the
    broker and a topic (prefix). spark: the sections of Spark, or nothing. snapshot: what of existing rows is read."""

    sink: str
    handlers: str = '["passthrough"]'
    spark: str = ""
    snapshot: str = "never"

    @property
    def is_transactional(self) -> bool:
        """Whether records are written in transactions: then brokers count the ends of transactions as records."""
        return "exactlyOnce" in self.sink


@dataclass(frozen=True)
class Slot:
    """Where a source of the service reads, and pg_recvlogical: this one over the Unix socket of the dsn."""

    dsn: str
    name: str

    @property
    def dsn_over_tcp(self) -> str:
        """For the service, which reads faster so; pg_recvlogical reads faster over the Unix socket."""
        return str(make_dsn(self.dsn, host=LOOPBACK))


@dataclass(frozen=True)
class Started:
    """When a slot became active (time.time), what had been used until then, and the options of START_REPLICATION."""

    at: float
    used: Used
    options: Mapping[str, str]


class Service(Program):
    """A running service of one sink, `bench`. folder: for its files, of which the log is kept until the folder goes.

    section: of the source `bench`, in place of slots. checkout: of the sources that run, with an environment of its own
    in .venv; None for those that run here.
    """

    def __init__(
        self,
        folder: Path,
        setup: Setup,
        slots: tuple[Slot, ...],
        hosts: str,
        topic: str,
        section: str = "",
        checkout: Path | None = None,
    ) -> None:
        self._slots = slots
        self._section = section
        self._port = free_ports(1)[0]
        config = folder / f"{topic}.toml"
        config.write_text(self._config(folder, setup, hosts, topic))
        python = sys.executable if checkout is None else str(checkout / ".venv/bin/python")
        command = [python, "-m", "benchmarks.as_installed", "-q", "--config", str(config)]
        super().__init__("the service", command, folder / f"{topic}.log", checkout)

    def wait_until_streaming(self) -> Started:
        """Return when the first slot is being streamed from: what was used before is the start-up's."""
        slot, deadline = self._slots[0], time.monotonic() + _START_SECONDS
        names = tuple(each.name for each in self._slots)
        with connected(slot.dsn) as cursor:
            looked = time.time()
            while time.monotonic() < deadline:
                cursor.execute(_STREAMING, (names,))
                if found := cursor.fetchone():
                    return Started(looked, self.used(), _options(found[0]))
                self.require_running()
                looked = time.time()
                time.sleep(0.003)
        raise BenchmarkFailed(f"the service did not start within {_START_SECONDS:.0f} s: {self._said()}")

    def wait_until_well(self, seconds: float = 60.0) -> None:
        """Return when /status says that all parts are well."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.require_running()
            with suppress(OSError), urllib.request.urlopen(f"http://{LOOPBACK}:{self._port}/status", timeout=30):
                return
            time.sleep(0.05)
        raise BenchmarkFailed(f"the service was not well within {seconds:.0f} s: {self._said()}")

    def wait_for_events(self, events: int, seconds: float = 600.0) -> float:
        """The time (time.time) at which /stats first told of so many events at the sink."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.require_running()
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._port}/stats", timeout=30) as answer:
                count = json.load(answer)["sink.bench"]["events"]
            if count >= events:
                return time.time()
            time.sleep(0.05)
        raise BenchmarkFailed(f"the sink did not take {events:,} events within {seconds:.0f} s")

    def stages(self) -> dict[str, tuple[float, float]]:
        """By stage, how many batches have been in it, and for how many seconds together."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self._port}/metrics", timeout=30) as answer:
            found = _STAGE.findall(answer.read().decode())
        figures = {(stage, figure): float(value) for figure, stage, value in found}
        return {stage: (figures[stage, "count"], figures[stage, "sum"]) for stage, _ in figures}

    def _config(self, folder: Path, setup: Setup, hosts: str, topic: str) -> str:
        sources = "".join(
            f'[source.bench{at}]\ntype = "postgres"\ndsn = "{slot.dsn_over_tcp}"\npublication = "{PUBLICATION}"\n'
            f'replicationSlot = "{slot.name}"\nsnapshot = "{setup.snapshot}"\n'
            for at, slot in enumerate(self._slots)
        )
        names = json.dumps([f"bench{at}" for at in range(len(self._slots))] or ["bench"])
        return (
            f'http = "{LOOPBACK}:{self._port}"\nlmdb = "{folder}/{topic}.lmdb"\n{sources}{self._section}'
            f"[sink.bench]\nsources = {names}\nhandlers = {setup.handlers}\n"
            f"{setup.sink.format(hosts=hosts, topic=topic)}\n{setup.spark}"
        )


_STAGE = re.compile(r'psql_streamer_stage_seconds_(count|sum)\{.*stage="(\w+)"\} (\S+)')

# Whoever only looks into a slot, as a check does, makes it active, too.
_STREAMING = """SELECT activity.query FROM pg_replication_slots slot
JOIN pg_stat_activity activity ON activity.pid = slot.active_pid
WHERE slot.slot_name IN %s AND activity.query LIKE 'START_REPLICATION%%'"""


def _options(command: str) -> dict[str, str]:
    """Of a START_REPLICATION as the server shows it: `... LOGICAL 0/0 ("proto_version" '1', ...)`."""
    return {name: value.replace("''", "'") for name, value in re.findall(r"\"(\w+)\" '((?:[^']|'')*)'", command)}
