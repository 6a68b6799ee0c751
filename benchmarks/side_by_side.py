"""`python -m benchmarks.side_by_side CHECKOUT CHECKOUT...`: the CPU time of several versions at the same steady rate.

Each checkout has an environment of its own in .venv. All services run at once, each with a slot and a topic of its own,
behind one writer of single-row transactions. So they share every slow minute of the machine, and their ratio is known
to one part in a hundred where runs in turn differ by a third. They disturb each other: no figure is that of a service
which has the machine for itself.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.backlog import connected, make_slot, make_tables
from benchmarks.commits import ticks
from benchmarks.drain import ONE_TOPIC
from benchmarks.failures import FAILURES
from benchmarks.latency import Commits
from benchmarks.service import Service, Setup, Slot
from benchmarks.stage import Stage, a_stage
from psql_streamer.embedded.postgres import EmbeddedPostgres

_DATABASE = "steady"
_WARM_UP_SECONDS = 8.0


def main() -> int:
    """Measure and print; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side", description=__doc__)
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="CHECKOUT")
    parser.add_argument("--rate", type=int, default=1100, help="commits a second")
    parser.add_argument("--tables", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=40.0)
    arguments = parser.parse_args()
    with a_stage() as stage:
        try:
            shares = _measure(stage, arguments.checkouts, arguments.tables, arguments.rate, arguments.seconds)
        except FAILURES as failure:
            print(f"FAILED: {failure}", file=sys.stderr)
            return 1
    for checkout, share in zip(arguments.checkouts, shares, strict=True):
        event = share / arguments.rate * 1e6
        print(f"{checkout}: {share:.3f} of a core  CPU {event:.0f} us/event  {share / shares[0]:.3f} of the first")
    return 0


def _measure(stage: Stage, checkouts: Sequence[Path], tables: int, rate: int, seconds: float) -> list[float]:
    """The share of a core of each."""
    with EmbeddedPostgres(stage.binaries) as server, ExitStack() as stack:
        dsn = server.build_dsn(_DATABASE)
        make_tables(server, _DATABASE, ticks(tables))
        names = tuple(stage.new_name() for _ in checkouts)
        stack.enter_context(stage.topics(names, partitions=1))
        with connected(dsn) as cursor:
            for name in names:
                make_slot(cursor, name)
        services = [
            stack.enter_context(
                Service(stage.folder, Setup(ONE_TOPIC), (Slot(dsn, name),), stage.hosts, name, checkout=checkout)
            )
            for checkout, name in zip(checkouts, names, strict=True)
        ]
        for service in services:
            service.wait_until_streaming()
        with Commits(dsn, tables, rate, int(rate * (_WARM_UP_SECONDS + seconds))):
            time.sleep(_WARM_UP_SECONDS)
            before, began = [service.used() for service in services], time.monotonic()
            time.sleep(seconds)
            used, ended = [service.used() for service in services], time.monotonic()
        for service in services:
            service.require_running()
    return [sum(now.cpu_since(then).values()) / (ended - began) for now, then in zip(used, before, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
