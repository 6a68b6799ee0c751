"""The parts that ship, and some of a third party, keep what the plug-in contract promises."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.embedded.ports import free_ports
from psql_streamer.events.format import Format
from psql_streamer.interfaces import Handler, Sink, Source
from psql_streamer.model import Batch
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.options import SparkOptions
from psql_streamer.testing import (
    FormatContract,
    HandlerContract,
    SinkContract,
    SourceContract,
    WrittenEvent,
    make_batch,
)
from sinks.kafka.sink import KafkaSink
from sinks.stub import StubDiscardSink, StubLogSink
from tests.database import Database
from tests.encoding import FORMATS, format_of
from tests.integration.conftest import MASTER
from tests.kafka_reader import consume
from tests.kafka_sinks import options as kafka_options
from tests.mock_brokers import MockBrokers
from tests.source_at_work import source_of
from tests.spark_changes import batch as postgres_batch
from tests.spark_changes import shop
from tests.sql_sources import sql_source, url_of
from tests.sqlite_source import SqliteSource


class TestPostgresSource(SourceContract):
    @pytest.fixture(autouse=True)
    def _tables(self, database: Database) -> None:
        self._database = database
        database.execute("CREATE TABLE t (id serial PRIMARY KEY, note text); CREATE PUBLICATION p FOR ALL TABLES")
        source = self.make_source()
        source.read_stream_identity()
        source.start(None)  # which makes the slot
        source.stop()

    def make_source(self) -> Source:
        return source_of(self._database)

    def make_unreachable_source(self) -> Source:
        return source_of(self._database, dsn=f"host=127.0.0.1 port={free_ports(1)[0]} dbname=nowhere")

    def make_changes(self) -> int:
        self._database.execute("INSERT INTO t (note) SELECT 'n' FROM generate_series(1, 3)")
        self._database.execute("UPDATE t SET note = 'other' WHERE id = 1")
        self._database.execute("DELETE FROM t WHERE id = (SELECT max(id) FROM t)")
        return 5

    def list_expected(self) -> Sequence[Mapping[str, Any]]:
        return [*[{"note": "n"}] * 3, {"id": "1", "note": "other"}]

    def list_expected_actions(self) -> Sequence[str]:
        return [*["insert"] * 3, "update", "delete"]

    @contextmanager
    def cause_outage(self) -> Iterator[None]:  # type: ignore[override]
        self._database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        yield


class TestSqliteSource(SourceContract):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self._path = tmp_path / "shop.sqlite"
        self._execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, amount REAL, photo BLOB)")

    def make_source(self) -> Source:
        section = {"type": "sqlite", "path": str(self._path), "table": "orders"}
        return SqliteSource("shop", SqliteSource.Options.model_validate(section))

    def make_changes(self) -> int:
        self._execute("INSERT INTO orders (customer, amount) VALUES ('ann', 1.5), ('bob', NULL), (NULL, 2), ('eve', 3)")
        return 4

    def list_expected(self) -> Sequence[Mapping[str, Any]]:
        values = ("ann", 1.5), ("bob", None), (None, 2), ("eve", 3)
        return [{"customer": customer, "amount": amount} for customer, amount in values]

    def _execute(self, sql: str) -> None:
        with closing(sqlite3.connect(self._path)) as file, file:
            file.execute(sql)


class TestSqlSourceOfSqlite(SourceContract):
    """One table with integers as its key: the commit number is the key."""

    reads_behind_stored_positions = True

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self._path = tmp_path / "shop.sqlite"
        self._execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, customer TEXT, amount DECIMAL(10, 2))"
        )

    def make_source(self) -> Source:
        return sql_source(f"sqlite:///{self._path}", "orders")

    def make_changes(self) -> int:
        self._execute("INSERT INTO orders (customer, amount) VALUES ('ann', 1.5), ('bob', NULL), (NULL, 2), ('eve', 3)")
        return 4

    def list_expected(self) -> Sequence[Mapping[str, Any]]:
        return [{"customer": customer} for customer in ("ann", "bob", None, "eve")]

    def _execute(self, sql: str) -> None:
        with closing(sqlite3.connect(self._path)) as file, file:
            file.execute(sql)


class TestSqlSourceOfPostgresql(SourceContract):
    """Two tables in small batches, one of which has a key of several columns."""

    reads_behind_stored_positions = True

    @pytest.fixture(autouse=True)
    def _tables(self, database: Database) -> None:
        self._database = database
        database.execute(
            "CREATE TABLE orders (id bigserial PRIMARY KEY, note text);"
            "CREATE TABLE visits (shop text, visit int, PRIMARY KEY (shop, visit)); CREATE SEQUENCE visit"
        )

    def make_source(self) -> Source:
        return sql_source(url_of(self._database), "orders", "visits", batchSize=2)

    def make_changes(self) -> int:
        self._database.execute("INSERT INTO orders (note) SELECT 'n' FROM generate_series(1, 3)")
        self._database.execute("INSERT INTO visits SELECT 'a', nextval('visit') FROM generate_series(1, 3)")
        return 6


class TestSparkHandler(HandlerContract):
    @pytest.fixture(autouse=True)
    def _engine(self, engine: SparkHandler) -> None:
        """The engine is the process's own, and stays."""

    def make_handler(self) -> Handler:
        return SparkHandler("spark", SparkOptions(master=MASTER, tables={"*": {"sql": "SELECT * FROM changes"}}))

    def make_batches(self) -> Sequence[Batch]:
        batch = postgres_batch(shop())
        return [
            replace(batch, nbytes=batch.overhead + 1000),
            make_batch([{"id": 1, "amount": 1.5}, {"id": 2, "amount": None}], "id"),
        ]


def list_events(bootstrap: str, topic: str, isolation_level: str = "read_uncommitted") -> Sequence[WrittenEvent]:
    """Those in a topic."""
    return [
        WrittenEvent(one.key, one.value, one.topic, {name: as_bytes(text) for name, text in one.headers.items()})
        for one in consume(bootstrap, [topic], isolation_level=isolation_level)
    ]


def as_bytes(text: str | bytes | None) -> bytes:
    """A header, of which the service writes none without a value."""
    assert text is not None
    return text.encode() if isinstance(text, str) else text


@pytest.mark.parametrize("kind", [StubLogSink, StubDiscardSink])
class TestStubSinks(SinkContract):
    @pytest.fixture(autouse=True)
    def _kind(self, kind: Any) -> None:
        self._class = kind

    def make_sink(self) -> Sink:
        return self._class("s", self._class.Options.model_validate({"type": "stub", "sources": ["db1"]}))


class TestKafkaSink(SinkContract):
    @pytest.fixture(autouse=True)
    def _topic(self, kafka: str, topic_prefix: str) -> None:
        self._kafka, self._events = kafka, topic_prefix
        with_topic = self.make_sink()
        with_topic.start()
        with_topic.stop()

    def make_sink(self) -> Sink:
        section = {
            "topicFallback": self._events,
            "headers": True,
            "createTopics": {"partitions": 1, "replicationFactor": 1},
        }
        return KafkaSink("k", kafka_options(self._kafka, **section, deadLetterTopic=f"{self._events}-dead"))

    def make_unreachable_sink(self) -> Sink:
        return KafkaSink("k", kafka_options(f"127.0.0.1:{free_ports(1)[0]}", timeout="500ms"))

    def list_written(self) -> Sequence[WrittenEvent]:
        return list_events(self._kafka, self._events)


class TestTransactionalKafkaSink(TestKafkaSink):
    def make_sink(self) -> Sink:
        section = {"topicFallback": self._events, "exactlyOnce": True, "transactionalId": self._events}
        return KafkaSink("k", kafka_options(self._kafka, **section, deadLetterTopic=f"{self._events}-dead"))

    def list_written(self) -> Sequence[WrittenEvent]:
        return list_events(self._kafka, self._events, isolation_level="read_committed")


class TestKafkaSinkOfABrokerThatGoesAway(SinkContract):
    @pytest.fixture(autouse=True)
    def _brokers(self) -> Iterator[None]:
        with MockBrokers() as brokers:
            self._brokers = brokers
            for topic in ("events", "dead"):
                brokers.create(topic, 1)
            yield

    def make_sink(self) -> Sink:
        section = {"deadLetterTopic": "dead", "timeout": "2s", "maxAttempts": 1}
        return KafkaSink("k", kafka_options(self._brokers.bootstrap, **section))

    def list_written(self) -> Sequence[WrittenEvent]:
        return list_events(self._brokers.bootstrap, "events")

    @contextmanager
    def cause_outage(self) -> Iterator[None]:
        self._brokers.take_down(1)
        yield
        self._brokers.bring_up(1)


@pytest.mark.parametrize("form", FORMATS)
class TestFormats(FormatContract):
    @pytest.fixture(autouse=True)
    def _form(self, form: str) -> None:
        self._name = form

    def make_format(self) -> Format:
        return format_of(self._name, schemas=False, transactions=False)


class TestDebeziumWithSchemas(FormatContract):
    def make_format(self) -> Format:
        return format_of("debezium", schemas=True, transactions=False)

    def make_telling_format(self) -> Format:
        return format_of("debezium", schemas=True, transactions=True)
