"""The benchmarks of `python -m benchmarks` as data: what each measures, and the goals of its figures."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.burst import Burst
from benchmarks.drain import (
    DEBEZIUM,
    DEBEZIUM_AVRO,
    DISCARD,
    EXACTLY_ONCE,
    ONE_TOPIC,
    TOPIC_PER_TABLE,
    Drain,
    with_rule,
)
from benchmarks.figures import Goal, at_least, at_most
from benchmarks.idle import Idle
from benchmarks.latency import Steady
from benchmarks.load import Load
from benchmarks.other_sources import BinlogBacklog, TableBacklog, TopicBacklog
from benchmarks.service import Setup
from benchmarks.snapshot import ExistingRows
from benchmarks.stage import Benchmark
from benchmarks.tables import (
    ARRAYS,
    COLUMNS_200,
    DOCUMENTS,
    NUMERICS,
    ORDERS,
    TEXTS_1_MB,
    TEXTS_10_KB,
    TIMES,
    Table,
    one_shape,
    own_shapes,
)


@dataclass(frozen=True)
class Case:
    """what: one line. quick: it is one of those that take little time."""

    name: str
    what: str
    benchmark: Benchmark
    goals: tuple[Goal, ...] = ()
    quick: bool = False


_MEMORY = at_most(256, "rss")
_TOPICS = Setup(TOPIC_PER_TABLE)
_DEBEZIUM = Setup(ONE_TOPIC + DEBEZIUM)
_DEBEZIUM_AVRO = Setup(ONE_TOPIC + DEBEZIUM_AVRO)
_LARGE = Setup(ONE_TOPIC + '\n[sink.bench.kafka]\n"message.max.bytes" = 4194304')
_NO_RULE = Setup(ONE_TOPIC, '["spark"]', '[spark]\nmaster = "local[2]"\n')
_DERIVED = with_rule("SELECT *, amount * 2 AS doubled FROM changes", tables="orders*")
_LOOKUP = """
[spark.lookups.segments]
kind = "postgres"
source = "bench0"
query = "SELECT n::bigint AS bucket, 'segment ' || n % 7 AS segment FROM generate_series(0, 999) n"
"""
_JOINED = with_rule("SELECT c.*, s.segment FROM changes c LEFT JOIN segments s ON s.bucket = c.id % 1000", more=_LOOKUP)
_TYPES = (
    '{id = "decimal(20,0)", name = "string", email = "string", amount = "double", created_at = "date", active = "int"}'
)
_COERCED = Setup(ONE_TOPIC, '["spark"]', f'[spark]\nmaster = "local[2]"\n[spark.tables.orders]\ncoerce = {_TYPES}\n')
_TWO_OF_MANY = with_rule("SELECT *, c1 + length(c0) AS sum FROM changes")
_TICKS = with_rule("SELECT *, id * 2 AS doubled FROM changes")

_NARROW = Load((ORDERS,), 1_000_000)


def _tables(count: int) -> Load:
    return Load(one_shape(count), 200_000)


def _one(table: Table, rows: int) -> Load:
    return Load((table,), rows)


CASES = (
    Case(
        "narrow-discard",
        "one table of 6 columns, decoded and thrown away",
        Drain(_NARROW, 200_000, Setup(DISCARD)),
        (at_least(0.65, "part"), _MEMORY),
    ),
    Case(
        "narrow",
        "the same into one topic",
        Drain(_NARROW, 200_000),
        (at_least(0.75, "part"), at_most(3.5, "cpu"), _MEMORY),
        quick=True,
    ),
    Case("debezium", "`narrow` in the format debezium", Drain(_NARROW, 200_000, _DEBEZIUM), (_MEMORY,)),
    Case(
        "debezium-avro",
        "`narrow` in the format debezium-avro",
        Drain(_NARROW, 200_000, _DEBEZIUM_AVRO, in_avro=True),
        (at_least(1, "rate", of="debezium"), _MEMORY),
    ),
    Case(
        "tables-1",
        "one table, fewer rows: what the following lines are held against",
        Drain(_tables(1), 100_000),
        (_MEMORY,),
        quick=True,
    ),
    Case("tables-10", "10 tables of that shape, row by row in turn", Drain(_tables(10), 50_000), (_MEMORY,)),
    Case("tables-100", "100 tables", Drain(_tables(100), 50_000), (_MEMORY,)),
    Case(
        "tables-1000",
        "1,000 tables",
        Drain(_tables(1000), 50_000),
        (at_least(0.8, "rate", of="tables-1"), at_most(5, "cpu"), _MEMORY),
        quick=True,
    ),
    Case(
        "shapes-1000",
        "1,000 tables of as many shapes: names, types, 4 to 8 columns",
        Drain(Load(own_shapes(1000), 200_000), 50_000),
        (at_least(0.6, "rate", of="tables-1"), at_most(5, "cpu"), _MEMORY),
        quick=True,
    ),
    Case(
        "topics-1000",
        "1,000 tables of one shape into 1,000 topics of one partition",
        Drain(Load(one_shape(1000), 1_000_000), 20_000, _TOPICS),
        (at_least(0.6, "rate", of="narrow"), _MEMORY),
        quick=True,
    ),
    Case(
        "burst-10000",
        "10,000 tables with one row each in one transaction, the second time: from COMMIT to the last record",
        Burst(10_000, 2_000),
        (at_most(1.5, "seconds"), _MEMORY),
        quick=True,
    ),
    Case(
        "columns-200",
        "rows of 200 columns",
        Drain(_one(COLUMNS_200, 100_000), 10_000),
        (at_least(0.45, "part"), _MEMORY),
        quick=True,
    ),
    Case(
        "text-10kb",
        "a text of 10 kB a row",
        Drain(_one(TEXTS_10_KB, 100_000), 10_000),
        (at_least(0.4, "part"), _MEMORY),
        quick=True,
    ),
    Case("text-1mb", "a text of 1 MB a row", Drain(Load((TEXTS_1_MB,), 400, 10), 100, _LARGE)),
    Case(
        "updates-full",
        "updates under REPLICA IDENTITY FULL",
        Drain(Load((ORDERS,), 200_000, updates=True), 50_000),
        (_MEMORY,),
    ),
    Case(
        "commits-1",
        "transactions of one row",
        Drain(Load((ORDERS,), 200_000, 1), 50_000),
        (at_least(0.65, "part"), _MEMORY),
    ),
    Case(
        "commits-100",
        "transactions of one row over 100 tables in turn",
        Drain(Load(one_shape(100), 200_000, 1), 50_000),
        (at_least(0.65, "part"), _MEMORY),
        quick=True,
    ),
    Case("numerics", "8 numerics", Drain(_one(NUMERICS, 200_000), 50_000), (_MEMORY,)),
    Case("times", "8 timestamps and dates", Drain(_one(TIMES, 200_000), 50_000), (_MEMORY,)),
    Case("jsonb", "a jsonb document", Drain(_one(DOCUMENTS, 200_000), 50_000), (_MEMORY,)),
    Case("arrays", "4 arrays", Drain(_one(ARRAYS, 80_000), 20_000), (_MEMORY,)),
    Case(
        "exactly-once",
        "narrow, in transactions",
        Drain(_NARROW, 200_000, Setup(ONE_TOPIC + EXACTLY_ONCE)),
        (at_least(0.8, "rate", of="narrow"), _MEMORY),
    ),
    Case(
        "spark-none",
        "narrow, with the Spark handler but no rule",
        Drain(_NARROW, 200_000, _NO_RULE),
        (at_least(0.95, "rate", of="narrow"), _MEMORY),
    ),
    Case(
        "spark-derived",
        "narrow, with one derived column",
        Drain(_NARROW, 200_000, _DERIVED),
        (at_least(0.55, "part"), at_most(8, "cpu"), _MEMORY),
    ),
    Case(
        "spark-coerced",
        "narrow, with all columns coerced",
        Drain(_NARROW, 200_000, _COERCED),
        (at_least(0.45, "part"), _MEMORY),
    ),
    Case(
        "spark-lookup",
        "narrow, joined with a lookup of 1,000 rows",
        Drain(_NARROW, 200_000, _JOINED),
        (at_least(0.45, "part"), _MEMORY),
    ),
    Case(
        "spark-columns-200",
        "200 columns, with a rule that reads two",
        Drain(_one(COLUMNS_200, 100_000), 10_000, _TWO_OF_MANY),
        (at_least(0.9, "rate", of="columns-200"), _MEMORY),
    ),
    Case(
        "spark-tables-1",
        "a glob rule with a derived column over one table",
        Drain(_tables(1), 20_000, _DERIVED),
        (_MEMORY,),
        quick=True,
    ),
    Case(
        "spark-tables-100",
        "that rule over 100 tables of one shape",
        Drain(_tables(100), 20_000, _DERIVED),
        (at_least(0.6, "rate", of="spark-tables-1"), _MEMORY),
        quick=True,
    ),
    Case(
        "latency-1",
        "1,000 single-row commits a second: from COMMIT to the consumer",
        Steady(1, 1000),
        (at_most(4, "p50"), at_most(12, "p99"), _MEMORY),
    ),
    Case(
        "latency-2",
        "1,100 a second over two tables",
        Steady(2, 1100),
        (at_most(0.2, "core"), at_most(180, "cpu"), _MEMORY),
        quick=True,
    ),
    Case(
        "latency-100",
        "1,000 a second over 100 tables",
        Steady(100, 1000),
        (at_most(6, "p50"), at_most(15, "p99"), _MEMORY),
        quick=True,
    ),
    Case(
        "latency-debezium",
        "1,000 a second into one table, in the format debezium",
        Steady(1, 1000, setup=_DEBEZIUM),
        (at_most(4, "p50"), at_most(12, "p99"), _MEMORY),
    ),
    Case(
        "latency-exactly-once",
        "1,000 a second into one table, in transactions",
        Steady(1, 1000, setup=Setup(ONE_TOPIC + EXACTLY_ONCE)),
        (at_most(30, "p50"), at_most(100, "p99")),
    ),
    Case(
        "latency-spark-1",
        "1,000 a second into one table with a rule",
        Steady(1, 1000, setup=_TICKS),
        (at_most(40, "p50"), at_most(100, "p99"), _MEMORY),
    ),
    Case(
        "latency-spark-6",
        "1,000 a second over six tables with a rule",
        Steady(6, 1000, setup=_TICKS),
        (at_most(90, "p50"), _MEMORY),
    ),
    Case("idle", "nothing is written", Idle(), (at_most(0.005, "core"), _MEMORY)),
    Case(
        "source-kafka",
        "events from topic to topic",
        TopicBacklog(400_000, 200_000),
        (at_least(100_000, "rate"), _MEMORY),
    ),
    Case(
        "source-mysql",
        "MariaDB's binary log, transactions of 1,000 rows",
        BinlogBacklog(500_000, 200_000),
        (at_least(150_000, "rate"), _MEMORY),
    ),
    Case("source-sql", "a table of PostgreSQL, polled", TableBacklog(400_000, 200_000), (_MEMORY,)),
    Case("sources-1", "one source", Drain(Load((ORDERS,), 200_000), 50_000), (_MEMORY,)),
    Case(
        "sources-4",
        "4 sources in one process, each with a slot of a database of its own, drained at once: all together",
        Drain(Load((ORDERS,), 200_000), 50_000, sources=4),
        (at_least(1, "rate", of="sources-1"), _MEMORY),
    ),
    Case(
        "snapshot",
        "a first start with rows in 20 tables, of which 2,000 a second change",
        ExistingRows(),
        (
            at_least(0.5, "of_copy"),
            at_most(250, "p99"),
            at_most(300, "rss"),
            at_most(1, "oldest"),
            at_most(5, "still"),
        ),
    ),
    Case(
        "snapshot-alone",
        "the same, while nothing is written",
        ExistingRows(changes=0),
        (at_least(0.5, "of_copy"), at_most(300, "rss"), at_most(1, "oldest")),
    ),
)
