"""PostgreSQL -> Kafka -> another instance -> Kafka: the copy is as good as the original, whatever is killed."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.database import Database
from tests.delivered import assert_nothing_is_lost, assert_order_per_key, distinct_transactions
from tests.event_topics import make_topic
from tests.kafka_reader import consume
from tests.sections import kafka_section, postgres_section, topics_section
from tests.service import Service
from tests.write_load import SCHEMA, TABLES, WriteLoad

_KILLS = 20


@pytest.mark.behaviour("G5")
@pytest.mark.slow
def test_a_chain_of_two_services_that_are_killed_under_load_loses_nothing(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    database.execute(SCHEMA)
    topics = [f"{topic_prefix}.{table}" for table in TABLES]
    for topic in topics:
        make_topic(kafka, topic, partitions=2)
    copies = [f"{topic_prefix}-copy.{table}" for table in TABLES]
    first_config = postgres_section(database, startRetryInterval="100ms") + kafka_section(kafka, topic_prefix)
    second_config = topics_section(kafka, topics, topic_prefix, instanceId="one") + kafka_section(
        kafka, f"{topic_prefix}-copy", sources=["hop"], format="event"
    )
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    moments = random.Random(topic_prefix)
    with Service(tmp_path / "first", first_config) as first, Service(tmp_path / "second", second_config) as second:
        for service in (first, second):
            service.start()
        with WriteLoad(database) as load:
            for kill in range(_KILLS + _KILLS // 2):
                killed = first if kill % 3 == 0 else second
                time.sleep(moments.uniform(0.2, 1.2))
                killed.kill()
                killed.start(wait=False)
            load.stop()
        first.until_durable(database)
        assert first.stop() == 0
        originals = consume(kafka, topics, timeout=60)
        second.until(lambda: second.stats().get("source.hop", {}).get("lag_records", 1) == 0, "the end of the topics")
        second.until(lambda: second.stats()["source.hop"]["batches_in_flight"] == 0, "the last batch")
        assert second.stop() == 0

    records = consume(kafka, copies, timeout=60)
    assert {(record.key, record.value) for record in records} == {(record.key, record.value) for record in originals}
    assert_nothing_is_lost(records, database, TABLES)
    assert_order_per_key(records)
    assert distinct_transactions(records) == load.committed
