"""SIGKILL of the service and of a MariaDB server at any moment, under load: nothing is lost, order is kept."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

from psql_streamer.embedded.mariadb import EmbeddedMariadb
from tests.delivered import (
    assert_order_per_key,
    assert_repeats_are_the_same,
    assert_tables,
    distinct_transactions,
    repeats,
)
from tests.kafka_reader import consume
from tests.mariadb import Schema, new_schema
from tests.mysql_load import TABLES, MysqlLoad, contents, make_tables
from tests.sections import kafka_section, mysql_section
from tests.service import Service


def _until_durable(service: Service, schema: Schema) -> None:
    """Wait until everything that is committed now has been stored as durable."""
    end = str(schema.value("SELECT @@GLOBAL.gtid_binlog_pos"))
    service.until(lambda: service.stats().get("source.db1", {}).get("stored_position") == end, f"GTID {end}")


@pytest.mark.slow
@pytest.mark.behaviour("B4", "K10")
@pytest.mark.parametrize(
    ("kills", "exactly_once"),
    [(2, False), pytest.param(20, False, marks=pytest.mark.soak), pytest.param(20, True, marks=pytest.mark.soak)],
)
def test_a_service_and_a_server_killed_under_load_lose_nothing_and_keep_the_order(
    own_mariadb: EmbeddedMariadb, kafka: str, topic_prefix: str, tmp_path: Path, kills: int, exactly_once: bool
) -> None:
    server, moments = own_mariadb, random.Random(topic_prefix)
    schema = new_schema(server.host, server.port, server.version, "shop")
    make_tables(schema)
    once = {"exactlyOnce": True, "transactionalId": topic_prefix} if exactly_once else {}
    config = mysql_section(schema, startRetryInterval="100ms", batchSize=2000)
    config += kafka_section(kafka, topic_prefix, **once)
    with Service(tmp_path, config) as service:
        service.start()
        with MysqlLoad(schema) as load:
            large = {kills // 6: 3_000, kills // 2: 50_000}
            crash, restarts, rotations = kills * 3 // 5, (kills // 4, kills * 3 // 5), (kills // 3, kills * 7 // 10)
            for kill in range(kills):
                if kill in large:
                    load.large_transaction(large[kill])
                if kill % 4 == 3:
                    service.until_it_gets_on()
                time.sleep(moments.uniform(0.2, 1.2))
                if kill in restarts:
                    server.restart(kill=kill == crash)
                if kill in rotations:
                    schema.execute("FLUSH BINARY LOGS")
                service.kill()
                service.start(wait=False)
            load.stop()
        service.until(lambda: service.status()[0] == 200, "the service to be well")
        _until_durable(service, schema)
        lag = re.compile(r'^psql_streamer_lag_bytes{source="db1"} \d', re.MULTILINE)
        service.until(lambda: lag.search(service.text("/metrics")) is not None, "the server's answer")
        assert 'psql_streamer_lag_seconds{source="db1"} 0.0' in service.text("/metrics")
        assert service.stop() == 0
    topics = [f"{topic_prefix}.{schema.name}.{table}" for table in TABLES]
    isolation = "read_committed" if exactly_once else "read_uncommitted"
    records = consume(kafka, topics, timeout=60, isolation_level=isolation)
    assert_tables(records, contents(schema))
    assert_order_per_key(records)
    assert_repeats_are_the_same(records)
    assert not (exactly_once and repeats(records))
    assert exactly_once or kills < 20 or repeats(records), "none of the kills came between delivery and storing"
    assert distinct_transactions(records) >= load.committed
