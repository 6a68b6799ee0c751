"""One sink fed by two sources, one source feeding two sinks."""

from __future__ import annotations

from pathlib import Path

from tests.database import Database, fresh_database
from tests.delivered import assert_nothing_is_lost, assert_order_per_key, distinct_transactions
from tests.fold import parse
from tests.kafka_reader import consume
from tests.service import Service
from tests.write_load import SCHEMA, TABLES, WriteLoad


def _source(name: str, database: Database) -> str:
    return f"""
[source.{name}]
type = "postgres"
dsn = "{database.dsn}"
publication = "p"
snapshot = "never"
replicationSlot = "s_{database.name}"
"""


def test_two_sources_into_one_sink_and_one_of_them_into_another_sink_too(
    database: Database, postgres: str, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    with fresh_database(postgres, f"{database.name}_b") as second:
        database.execute(SCHEMA)
        second.execute(SCHEMA)
        config = f"""
{_source("db1", database)}
{_source("db2", second)}
[sink.k]
type = "kafka"
sources = ["db1", "db2"]
hosts = ["{kafka}"]
topicPrefix = "{topic_prefix}"
handlers = ["passthrough"]
[sink.log]
type = "stub_log"
sources = ["db2"]
"""
        with Service(tmp_path, config) as service:
            service.start()
            with WriteLoad(database, seed=1) as one, WriteLoad(second, seed=2) as two:
                one.until_more(200)
                two.until_more(100)
                assert service.stop() == 0
                service.start()
                two.large_transaction(5_000)
                one.until_more()
                one.stop()
                two.stop()
            service.until_durable(database, "db1")
            service.until_durable(second, "db2")
            assert service.stats()["sink.log"]["events"] >= 5_000
            assert service.stop() == 0

        records = consume(kafka, [f"{topic_prefix}.{table}" for table in TABLES])
        for origin, load in ((database, one), (second, two)):
            own = [record for record in records if parse(record)["Database"] == origin.name]
            assert_nothing_is_lost(own, origin, TABLES)
            assert_order_per_key(own)
            assert distinct_transactions(own) == load.committed
