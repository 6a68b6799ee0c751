"""Backlogs of the sources beside PostgreSQL: a topic, a binary log, a table that is polled.

The clock runs from the moment at which the first records are in the topic to the moment at which the last one is; the
rows before the first moment do not count. Beside each rate stands what a plain reader of the same data does: a consumer
of librdkafka, mysql-replication (if it is installed: `pip install mysql-replication`), a cursor of the driver. A topic
is also read by the Go psql-streamer, if its program is given.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import psycopg2
import pymysql
from confluent_kafka import Consumer, Producer

from benchmarks.drain import ONE_TOPIC
from benchmarks.figures import Figures, medians
from benchmarks.go_service import measure_go_service
from benchmarks.programs import measure_delivery
from benchmarks.service import Service, Setup
from benchmarks.stage import Stage
from benchmarks.topics import Topics
from psql_streamer.embedded.mariadb import EmbeddedMariadb
from psql_streamer.embedded.postgres import EmbeddedPostgres

_ROWS_A_TRANSACTION = 1000


@dataclass(frozen=True)
class Backlog(ABC):
    """rows: of the columns id, name, email, amount, created_at, active."""

    rows: int
    quick_rows: int

    def measure(self, stage: Stage) -> Figures:
        """Medians of the stage's runs."""
        rows = stage.rows or (self.quick_rows if stage.quick else self.rows)
        return medians([self._run(stage, rows) for _ in range(stage.runs)])

    @abstractmethod
    @contextmanager
    def filled(self, stage: Stage, rows: int, name: str) -> Iterator[str]:
        """The section of the source, while what it reads is there, with so many rows."""

    @abstractmethod
    def plain(self, section: str, rows: int) -> Figures:
        """What a plain reader of the same does, by its name."""

    def beside(self, stage: Stage, section: str, rows: int) -> Figures:  # noqa: ARG002 - for those that need it
        """What another service does with the same; nothing where there is none."""
        return {}

    def _run(self, stage: Stage, rows: int) -> Figures:
        name = stage.new_name()
        with stage.topics((name,), partitions=4) as topics, self.filled(stage, rows, name) as section:
            there = topics.count()
            with Service(stage.folder, Setup(ONE_TOPIC), (), stage.hosts, name, section) as service:
                ours = measure_delivery(service, topics, there, rows)
            topics.require(rows)
            plain, beside = self.plain(section, rows), self.beside(stage, section, rows)
        return {"rows": rows, "rate": ours["rate"], **plain, **ours, **beside}


class TopicBacklog(Backlog):
    """Events of another instance, in the format `event`."""

    def measure(self, stage: Stage) -> Figures:
        """Say first when the Go psql-streamer is not among the figures."""
        if stage.go_service is None:
            print("  without the Go psql-streamer: no --go-service was given", flush=True)
        return super().measure(stage)

    @contextmanager
    def filled(self, stage: Stage, rows: int, name: str) -> Iterator[str]:
        """A topic of 4 partitions, which a consumer group of this run reads."""
        source = f"{name}-in"
        with stage.topics((source,), partitions=4):
            producer = Producer({"bootstrap.servers": stage.hosts, "linger.ms": 20, "compression.type": "lz4"})
            for number in range(rows):
                _produce(producer, source, number)
            producer.flush()
            yield _section(type="kafka", hosts=stage.hosts.split(","), topics=[source], groupID=name)

    def plain(self, section: str, rows: int) -> Figures:
        """librdkafka's consumer, as confluent_kafka has it."""
        options = _options(section)
        settings = {
            "bootstrap.servers": ",".join(options["hosts"]),
            "group.id": "plain",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(settings | {"fetch.wait.max.ms": 10, "queued.min.messages": 100_000})
        consumer.subscribe(list(options["topics"]))
        count, began = 0, 0.0
        while count < rows:
            found = consumer.consume(10_000, 1.0)
            if found and not began:
                began, rows = time.monotonic(), rows - len(found)
            elif found:
                count += len(found)
        seconds = time.monotonic() - began
        consumer.close()
        return {"plain_consumer": rows / seconds}

    def beside(self, stage: Stage, section: str, rows: int) -> Figures:
        """The Go psql-streamer, if its program was given."""
        if stage.go_service is None:
            return {}
        return measure_go_service(stage, stage.go_service, _options(section)["topics"][0], rows)


class BinlogBacklog(Backlog):
    """A table of MariaDB, in its binary log."""

    @contextmanager
    def filled(self, stage: Stage, rows: int, name: str) -> Iterator[str]:
        """A service starts at the end of the log, so it is told a position in front of the rows: it reads one first."""
        with EmbeddedMariadb() as server:
            section = _section(type="mysql", dsn=server.build_dsn(), tables=["bench.*"], snapshot="never")
            with closing(pymysql.connect(host=server.host, port=server.port, user="root", autocommit=True)) as session:
                with session.cursor() as cursor:
                    cursor.execute("CREATE DATABASE bench")
                    cursor.execute("USE bench")
                    cursor.execute(_MARIADB_TABLE)
                _store_position(stage, section, name, session)
                with session.cursor() as cursor:
                    for first in range(1, rows, _ROWS_A_TRANSACTION):
                        last = min(rows - 1, first + _ROWS_A_TRANSACTION - 1)
                        cursor.execute(_MARIADB_ROWS.format(first=first, last=last))
            yield section

    def plain(self, section: str, rows: int) -> Figures:
        """mysql-replication, on a part of the rows."""
        try:
            from pymysqlreplication import BinLogStreamReader
            from pymysqlreplication.row_event import WriteRowsEvent
        except ImportError:
            return {}
        address = _options(section)["dsn"].partition("@")[2].rstrip("/")
        host, _, port = address.partition(":")
        settings = {"host": host, "port": int(port), "user": "root", "passwd": ""}
        stream = BinLogStreamReader(settings, server_id=4711, only_events=[WriteRowsEvent], is_mariadb=True)
        count, began, wanted = 0, 0.0, min(rows - 1, 60_000)
        for event in stream:
            began = began or time.monotonic()
            count += len(event.rows)
            if count >= wanted:
                break
        stream.close()
        return {"plain_binlog": count / (time.monotonic() - began)}


def _store_position(stage: Stage, section: str, name: str, session: pymysql.Connection) -> None:
    """Let a service deliver one row, and stop it: the position is in its LMDB."""
    topics = Topics(stage.hosts, (name,), 4)
    with Service(stage.folder, Setup(ONE_TOPIC), (), stage.hosts, name, section) as service:
        service.wait_until_well()
        with session.cursor() as cursor:
            cursor.execute(_MARIADB_ROWS.format(first=0, last=0))
        topics.wait_for(1, service.require_running)


class TableBacklog(Backlog):
    """A table of PostgreSQL, polled."""

    @contextmanager
    def filled(self, stage: Stage, rows: int, name: str) -> Iterator[str]:  # noqa: ARG002 - for those that need it
        """Rows that were there before the first poll."""
        with EmbeddedPostgres(stage.binaries) as server:
            with closing(psycopg2.connect(server.build_dsn())) as session, session, session.cursor() as cursor:
                cursor.execute(_POSTGRES_ROWS, (rows,))
            url = f"postgresql+psycopg2:///?{_query(server.build_dsn())}"
            yield _section(type="sql", url=url, tables=["orders"])

    def plain(self, section: str, rows: int) -> Figures:
        """psycopg2, with a cursor at the server."""
        dsn = _options(section)["url"].partition("?")[2].replace("&", " ")
        began = time.monotonic()
        with closing(psycopg2.connect(dsn)) as session, session.cursor("plain") as cursor:
            cursor.itersize = 10_000
            cursor.execute("SELECT * FROM orders ORDER BY id")
            while cursor.fetchmany(10_000):
                pass
        return {"plain_cursor": rows / (time.monotonic() - began)}


_MARIADB_TABLE = """CREATE TABLE bench.orders (id BIGINT PRIMARY KEY, name VARCHAR(100), email VARCHAR(100),
    amount DECIMAL(12,2), created_at TIMESTAMP(6), active BOOLEAN)"""

_MARIADB_ROWS = """INSERT INTO bench.orders SELECT seq, concat('customer ', seq),
    concat('customer', seq, '@example.com'), (seq % 100000) / 100,
    timestamp '2024-01-01 10:00:00' + INTERVAL seq SECOND, seq % 3 = 0 FROM seq_{first}_to_{last}"""

_POSTGRES_ROWS = """CREATE TABLE orders (id bigint PRIMARY KEY, name text, email text, amount numeric(12, 2),
    created_at timestamptz, active boolean);
INSERT INTO orders SELECT i, 'customer ' || i, 'customer' || i || '@example.com', (i %% 100000)::numeric / 100,
    timestamptz '2024-01-01 10:00:00+00' + i * interval '1.000001 second', i %% 3 = 0 FROM generate_series(1, %s) i"""

_EVENT = (
    b'{"Host":"localhost","Database":"shop","Schema":"public","Table":"orders","Action":"insert",'
    b'"Timestamp":"2026-11-21T10:03:12.796477Z","XID":%d,"CommitLSN":%d,"WALPosition":%d,"Seq":%d,'
    b'"UUID":"00000000-0188-83e3-800e-ed76%08x","Checksum":"777170be","Columns":{"id":%d,"name":"customer %d",'
    b'"email":"customer%d@example.com","amount":%d.25,"created_at":"2024-01-01T10:00:01.000001Z","active":true}}'
)


def _produce(producer: Producer, topic: str, number: int) -> None:
    transaction, seq = divmod(number, _ROWS_A_TRANSACTION)
    lsn = 25_000_000 + number * 100
    commit = 25_000_000 + (transaction + 1) * _ROWS_A_TRANSACTION * 100
    value = _EVENT % (transaction, commit, lsn, seq, number, number, number, number, number % 1000)
    while True:
        try:
            producer.produce(topic, value, b'{"id":%d}' % number)
            producer.poll(0)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _section(**keys: object) -> str:
    # JSON's strings, numbers and lists are TOML's as well.
    return "\n".join(["[source.bench]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items()), ""])


def _options(section: str) -> dict[str, str]:
    import tomli

    found: dict[str, str] = tomli.loads(section)["source"]["bench"]
    return found


def _query(dsn: str) -> str:
    """A connection string of libpq as parameters of a URL."""
    from psycopg2.extensions import parse_dsn

    return "&".join(f"{name}={value}" for name, value in parse_dsn(dsn).items())
