"""The compose files of deploy/, started without containers: what their head comments and pages promise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pymysql
import pytest
from pymysql.constants import CLIENT

from psql_streamer.embedded.binlog_server import BinlogServer
from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.mariadb_binaries import provide_mariadb_binaries
from psql_streamer.embedded.ports import LOOPBACK
from psql_streamer.embedded.postgres import EmbeddedPostgres, find_server_binaries
from tests.deployment import DeployedService, Deployment
from tests.kafka_reader import Record, consume
from tests.mariadb import Schema

ONE_MACHINE, TWO_MACHINES = Deployment("compose.yaml"), Deployment("two-machines/compose.yaml")

BROKERS = [(ONE_MACHINE, "kafka"), (TWO_MACHINES, "hub"), (TWO_MACHINES, "target")]

KAFKA_AS_SHIPPED = {"offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "3"}
POSTGRES_AS_SHIPPED = {"wal_level": "replica", "max_wal_senders": "10", "max_replication_slots": "10"}
"""What an embedded server sets otherwise, where the compose file does not."""

LITTLE_ROOM = {"innodb_buffer_pool_size": "32M", "innodb_log_file_size": "32M"}


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """What the three brokers of the compose files have in common. Their topics have different names."""
    given = [deployment.broker_properties(name) for deployment, name in BROKERS]
    alike = dict(given[0].items() & given[1].items() & given[2].items())
    with EmbeddedKafka(num_partitions=1, properties=KAFKA_AS_SHIPPED | alike) as kafka:
        yield kafka.bootstrap


@pytest.fixture
def mariadb_shop() -> Iterator[Schema]:
    """The server of the two machines, and its database as the image makes it."""
    settings = LITTLE_ROOM | TWO_MACHINES.server_options("mariadb")
    with BinlogServer("MariaDB", provide_mariadb_binaries(), None, settings) as server:
        with pymysql.connect(
            host=server.host, port=server.port, user="root", client_flag=CLIENT.MULTI_STATEMENTS
        ) as session:
            session.cursor().execute("CREATE DATABASE shop; USE shop;" + TWO_MACHINES.sql("mariadb"))
        yield Schema("shop", server.host, server.port, server.version)


@pytest.fixture
def postgres_shop() -> Iterator[EmbeddedPostgres]:
    """The server of the one machine, and its database as the image makes it."""
    binaries = find_server_binaries()
    settings = POSTGRES_AS_SHIPPED | ONE_MACHINE.server_options("postgres")
    with EmbeddedPostgres(binaries[max(binaries)], settings=settings) as server:
        run(server, "CREATE DATABASE shop", "postgres")
        run(server, ONE_MACHINE.sql("postgres"))
        yield server


def run(server: EmbeddedPostgres, sql: str, database: str = "shop") -> None:
    session = psycopg2.connect(server.build_dsn(database))
    session.autocommit = True
    session.cursor().execute(sql)
    session.close()


def topic(bootstrap: str, name: str, count: int) -> list[Record]:
    """At least so many records of a topic."""
    return consume(bootstrap, [name], until=lambda records: len(records) >= count, timeout=60)


def amounts(records: list[Record]) -> list[tuple[str, float]]:
    """By action: rows that were there are read, and later ones inserted."""
    events = [json.loads(record.value or b"") for record in records]
    return sorted((event["Action"], event["Columns"]["amount"]) for event in events)


def test_a_row_on_one_machine_is_in_the_topic_that_the_compose_file_names(
    broker: str, postgres_shop: EmbeddedPostgres, tmp_path: Path
) -> None:
    servers = {"postgres": LOOPBACK, "kafka:19092": broker}
    run(postgres_shop, ONE_MACHINE.shown_insert)
    with ONE_MACHINE.service("psql-streamer", tmp_path / "one", servers, PG_PORT=str(postgres_shop.port)) as service:
        service.start()
        assert service.is_healthy()
        topic(broker, ONE_MACHINE.shown_topic, 1)  # a row that comes before the others are read may be read, too
        run(postgres_shop, ONE_MACHINE.shown_insert)
        assert amounts(topic(broker, ONE_MACHINE.shown_topic, 2)) == [("insert", 12.5), ("read", 12.5)]
        assert service.stop() == 0


@pytest.mark.slow
def test_on_two_machines_every_record_is_copied_once_over_a_restart_and_by_a_second_applier(
    broker: str, mariadb_shop: Schema, tmp_path: Path
) -> None:
    servers = {
        "mariadb:3306": f"{mariadb_shop.host}:{mariadb_shop.port}",
        "hub:19092": broker,
        "target:19092": broker,
    }
    mariadb_shop.execute(TWO_MACHINES.shown_insert)
    with (
        TWO_MACHINES.service("extractor", tmp_path / "extractor", servers) as extractor,
        TWO_MACHINES.service("applier", tmp_path / "applier-1", servers) as applier,
        TWO_MACHINES.service("applier", tmp_path / "applier-2", servers, APPLIER_NAME="applier-2") as second,
    ):
        applier.start()
        extractor.start()
        assert extractor.is_healthy()
        assert applier.is_healthy()
        topic(broker, COPY, 1)
        mariadb_shop.execute(TWO_MACHINES.shown_insert)
        assert amounts(topic(broker, COPY, 2)) == [("insert", 12.5), ("read", 12.5)]

        assert applier.stop() == 0
        mariadb_shop.execute(TWO_MACHINES.shown_insert)
        topic(broker, ORIGINAL, 3)
        applier.start()
        assert amounts(topic(broker, COPY, 3)) == [("insert", 12.5), ("insert", 12.5), ("read", 12.5)]

        second.start()
        applier.until(lambda: len(partitions(applier)) == len(partitions(second)) == 3, "the partitions to be shared")
        assert len(partitions(applier) | partitions(second)) == 6
        mariadb_shop.execute(*[TWO_MACHINES.shown_insert] * 60)
        rows = mariadb_shop.value("SELECT count(*) FROM orders")
        copies = topic(broker, COPY, rows)
        assert second.stats()["sink.target"]["events"] > 0
        assert [one.stop() for one in (extractor, applier, second)] == [0, 0, 0]

    assert len(copies) == rows
    assert in_order_of_content(consume(broker, [COPY])) == in_order_of_content(copies)
    assert in_order_of_content(copies) == in_order_of_content(consume(broker, [ORIGINAL]))


ORIGINAL, COPY = "hub.shop.orders", TWO_MACHINES.shown_topic


def partitions(service: DeployedService) -> set[str]:
    """Those that an applier reads."""
    return set(service.stats().get("source.hub", {}).get("partitions", ()))


def in_order_of_content(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((record.key, record.value) for record in records)
