"""`python -m benchmarks.drain [--tables N] [--rows N] ...`: a backlog, drained by the service and by pg_recvlogical.

The clock runs from the moment at which the slot is streamed from to the moment at which the broker has the last record.
CPU time is of all processes of the service, within that time. There are as many records as rows, or there is no figure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from benchmarks.backlog import SERVER_SETTINGS, Backlog, fill
from benchmarks.figures import MEGABYTE, Figures, cpu_figures, medians, memory_figures
from benchmarks.limit import drain
from benchmarks.load import Load
from benchmarks.registry import running_registry
from benchmarks.service import Service, Setup, Slot
from benchmarks.stage import Stage, measure_alone
from benchmarks.tables import one_shape, own_shapes
from benchmarks.topics import Topics
from psql_streamer.embedded.postgres import EmbeddedPostgres

_KAFKA = 'type = "kafka"\nhosts = ["{hosts}"]\n'
ONE_TOPIC = _KAFKA + 'topicFallback = "{topic}"'
TOPIC_PER_TABLE = _KAFKA + 'topicPrefix = "{topic}"'
DEBEZIUM = '\nformat = "debezium"'
DEBEZIUM_AVRO = '\nformat = "debezium-avro"\nformatOptions = {{ registry = {{ url = "%s" }} }}'
"""%s: the URL of a registry."""

EXACTLY_ONCE = '\nexactlyOnce = true\ntransactionalId = "{topic}"'
DISCARD = 'type = "stub_discard"'


@dataclass(frozen=True)
class Drain:
    """load: of each source, in a database of its own. quick_rows: the rows where little time is to be taken.

    in_avro: whether the setup's sink lacks the URL of a registry, and gets that of one that runs meanwhile.
    """

    load: Load
    quick_rows: int
    setup: Setup = Setup(ONE_TOPIC)  # noqa: RUF009 - frozen
    sources: int = 1
    in_avro: bool = False

    def measure(self, stage: Stage) -> Figures:
        """Medians of the stage's runs."""
        if self.in_avro:
            with running_registry() as url:
                setup = replace(self.setup, sink=self.setup.sink % url)
                return replace(self, setup=setup, in_avro=False).measure(stage)
        load = self.load.with_rows(stage.rows or (self.quick_rows if stage.quick else self.load.rows))
        slots = [f"run_{run}_{who}" for run in range(stage.runs) for who in ("service", "limit")]
        databases = [f"bench_{at}" for at in range(self.sources)]
        with EmbeddedPostgres(stage.binaries, settings=SERVER_SETTINGS) as server:
            backlogs = [
                fill(server, database, load, [f"{database}_{slot}" for slot in slots]) for database in databases
            ]
            runs = [self._run(stage, load, databases, backlogs, run) for run in range(stage.runs)]
        return medians(runs)

    def _run(
        self, stage: Stage, load: Load, databases: Sequence[str], backlogs: Sequence[Backlog], run: int
    ) -> Figures:
        def slots(who: str) -> tuple[Slot, ...]:
            pairs = zip(backlogs, databases, strict=True)
            return tuple(Slot(backlog.dsn, f"{database}_run_{run}_{who}") for backlog, database in pairs)

        rows, size = load.rows * self.sources, sum(backlog.wal_bytes for backlog in backlogs) / MEGABYTE
        name = stage.new_name()
        with self._topics(stage, load, name) as topics:
            with Service(stage.folder, self.setup, slots("service"), stage.hosts, name) as service:
                started = service.wait_until_streaming()
                if topics is None or self.setup.is_transactional:
                    ended = service.wait_for_events(rows)
                else:
                    ended = topics.wait_for(rows, service.require_running)
                used = service.used()
            if topics is not None:
                topics.require(rows, committed=self.setup.is_transactional)
            limit = drain(stage.binaries, backlogs, slots("limit"), started.options)
        seconds = ended - started.at
        rates = {"rate": rows / seconds, "limit": rows / limit, "part": limit / seconds}
        amounts = {"rows": rows, "megabytes": size / seconds}
        cpu = cpu_figures(used.cpu_since(started.used), rows)
        return {**amounts, **rates, **cpu, **memory_figures(used)}

    def _topics(self, stage: Stage, load: Load, name: str) -> AbstractContextManager[Topics | None]:
        if self.setup.sink == DISCARD:
            return nullcontext()
        if self.setup.sink.startswith(TOPIC_PER_TABLE):
            return stage.topics(tuple(f"{name}.public.{table.name}" for table in load.tables), partitions=1)
        return stage.topics((name,), partitions=4)


def main() -> int:
    """Measure what the arguments say, and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drain", description=__doc__)
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--rows", type=int, default=200_000, help="over all tables, which take turns row by row")
    parser.add_argument("--rows-per-transaction", type=int, default=1000)
    parser.add_argument("--own-shapes", action="store_true", help="every table has columns of its own")
    parser.add_argument("--topics", action="store_true", help="every table has a topic of its own")
    parser.add_argument("--updates", action="store_true", help="updates under REPLICA IDENTITY FULL, not inserts")
    parser.add_argument("--rule", default="", help='Spark SQL for all tables, as "SELECT * FROM changes"')
    parser.add_argument("--sources", type=int, default=1, help="so many slots of so many databases in one service")
    parser.add_argument("--exactly-once", action="store_true", help="in transactions")
    parser.add_argument("--timestamps", default="", help="which ones records get, as commit")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    tables = own_shapes(arguments.tables) if arguments.own_shapes else one_shape(arguments.tables)
    load = Load(tables, arguments.rows, arguments.rows_per_transaction, arguments.updates)
    sink = (TOPIC_PER_TABLE if arguments.topics else ONE_TOPIC) + (EXACTLY_ONCE if arguments.exactly_once else "")
    sink += f'\ntimestamps = "{arguments.timestamps}"' if arguments.timestamps else ""
    setup = with_rule(arguments.rule, sink) if arguments.rule else Setup(sink)
    return measure_alone(Drain(load, arguments.rows, setup, arguments.sources), runs=arguments.runs)


def with_rule(sql: str, sink: str = ONE_TOPIC, tables: str = "*", more: str = "") -> Setup:
    """Spark on two threads of this machine, with one rule for the tables that a glob fits. more: of [spark]."""
    rule = f'[spark.tables."{tables}"]\nsql = "{sql}"\n'
    return Setup(sink, '["spark"]', f'[spark]\nmaster = "local[2]"\n{rule}{more}')


if __name__ == "__main__":
    sys.exit(main())
