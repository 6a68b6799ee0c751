"""`python -m benchmarks.idle [--seconds N]`: what a service takes that streams while nothing is written."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from benchmarks.backlog import connected, make_slot, make_tables
from benchmarks.drain import ONE_TOPIC
from benchmarks.figures import Figures, memory_figures
from benchmarks.service import Service, Setup, Slot
from benchmarks.stage import Stage, measure_alone
from benchmarks.tables import ORDERS
from psql_streamer.embedded.postgres import EmbeddedPostgres

_DATABASE = "idle"
_SETTLING_SECONDS = 5.0
"""Not measured: what a start leaves to be done."""


@dataclass(frozen=True)
class Idle:
    """seconds: the kernel counts CPU time in steps of 0.01 s, of which an idle service takes some dozens a minute."""

    seconds: float = 30.0
    quick_seconds: float = 10.0

    def measure(self, stage: Stage) -> Figures:
        """The share of a core of all its processes."""
        name = stage.new_name()
        with EmbeddedPostgres(stage.binaries) as server, stage.topics((name,), partitions=1):
            slot = Slot(server.build_dsn(_DATABASE), "service")
            make_tables(server, _DATABASE, (ORDERS,))
            with connected(slot.dsn) as cursor:
                make_slot(cursor, slot.name)
            with Service(stage.folder, Setup(ONE_TOPIC), (slot,), stage.hosts, name) as service:
                service.wait_until_streaming()
                time.sleep(_SETTLING_SECONDS)
                before, began = service.used(), time.monotonic()
                time.sleep(self.quick_seconds if stage.quick else self.seconds)
                used, ended = service.used(), time.monotonic()
                service.require_running()
        return {"core": sum(used.cpu_since(before).values()) / (ended - began), **memory_figures(used)}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    return measure_alone(Idle(arguments.seconds))


if __name__ == "__main__":
    sys.exit(main())
