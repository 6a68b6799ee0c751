"""`python -m benchmarks [NAME ...] [--quick]`: what the service reaches, what the machine allows, and the goals.

pg_recvlogical writing to /dev/null over the unix socket is the most that one walsender gives. It drains the same WAL
with the same options, in turn with the service, because machines are noisy; the medians of the runs are compared. The
exit status is 1 when a goal was missed or a benchmark gave no figures.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.backlog import version
from benchmarks.cases import CASES, Case
from benchmarks.drain import Drain
from benchmarks.failures import FAILURES
from benchmarks.figures import Figures, shown
from benchmarks.load import Load
from benchmarks.stage import Stage, a_stage
from benchmarks.tables import ORDERS

_RUNS = 3
_WARM_UP_ROWS = 100_000


def main() -> int:
    """Measure and print; 0 when every goal was reached."""
    arguments = _arguments()
    if arguments.list:
        print("\n".join(f"{case.name:<17}{'quick' if case.quick else '':<6}{case.what}" for case in CASES))
        return 0
    began = time.monotonic()
    runs = arguments.runs or (1 if arguments.quick else _RUNS)
    amounts = {"quick": arguments.quick, "runs": runs, "rows": arguments.rows}
    with a_stage(arguments.postgres, **amounts, go_service=arguments.go_service) as stage:
        print(f"PostgreSQL {version(stage.binaries)}, Apache Kafka on the same machine; medians of {runs}", flush=True)
        _warm_up(stage)
        missed = _measure(_chosen(arguments.names, quick=arguments.quick), stage)
    outcome = f"missed: {', '.join(missed)}" if missed else "every goal was reached"
    print(f"\n{time.monotonic() - began:.0f} s; {outcome}")
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [case.name for case in CASES]
    parser.add_argument("names", nargs="*", metavar="NAME", help="those of --list; all by default")
    parser.add_argument("--list", action="store_true", help="the names, and what each measures")
    parser.add_argument("--quick", action="store_true", help="fewer rows, and without names a choice: three minutes")
    parser.add_argument("--runs", type=int, default=0, help=f"of each backlog; {_RUNS} by default, 1 with --quick")
    parser.add_argument("--rows", type=int, default=0, help="in place of each one's own number; a burst's tables")
    parser.add_argument("--postgres", type=int, default=0, help="major version; the newest there is by default")
    parser.add_argument(
        "--go-service",
        type=_program,
        metavar="PATH",
        help="program of the Go psql-streamer, which source-kafka then runs as well",
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in names]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(names)}")
    return arguments


def _program(path: str) -> Path:
    found = shutil.which(path)
    if found is None:
        raise argparse.ArgumentTypeError(f"{path} is not a program that can be run")
    return Path(found)


def _chosen(names: Sequence[str], *, quick: bool) -> list[Case]:
    """In the table's order, with those that the goals of others refer to."""
    chosen = set(names) or {case.name for case in CASES if case.quick or not quick}
    chosen |= {goal.of for case in CASES if case.name in chosen for goal in case.goals if goal.of}
    return [case for case in CASES if case.name in chosen]


def _warm_up(stage: Stage) -> None:
    """A broker that has just started is slower than it is later."""
    Drain(Load((ORDERS,), _WARM_UP_ROWS), _WARM_UP_ROWS).measure(replace(stage, runs=1, rows=0))


def _measure(cases: Sequence[Case], stage: Stage) -> list[str]:
    """The names of those that missed something."""
    results: dict[str, Figures] = {}
    missed = []
    for case in cases:
        print(f"\n{case.name}: {case.what}", flush=True)
        began = time.monotonic()
        try:
            results[case.name] = case.benchmark.measure(stage)
            print(f"  {shown(results[case.name])}  [{time.monotonic() - began:.0f} s]", flush=True)
        except FAILURES as failure:
            print(f"  FAILED: {failure}", flush=True)
        # Not in the condition, which would leave out the others' lines.
        reached = [_is_reached(case, at, results) for at in range(len(case.goals))]
        if case.name not in results or not all(reached):
            missed.append(case.name)
    return missed


def _is_reached(case: Case, at: int, results: Mapping[str, Figures]) -> bool:
    goal = case.goals[at]
    value = goal.value(case.name, results)
    reached = value is not None and goal.is_reached(value)
    text = "not known" if value is None else f"{value:.3g}"
    print(f"    {text:>9}  {goal.text():<48}{'reached' if reached else 'MISSED'}", flush=True)
    return reached


if __name__ == "__main__":
    sys.exit(main())
