"""A database -> Kafka -> another instance -> Kafka: the copy is as good as the original, whatever is killed."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.database import Database
from tests.delivered import assert_nothing_is_lost, assert_order_per_key, distinct_transactions
from tests.event_topics import event, write
from tests.kafka_reader import Record, consume
from tests.kafka_sinks import create_topic
from tests.mariadb import Schema
from tests.sections import kafka_section, mysql_section, postgres_section, topics_section
from tests.service import Service
from tests.write_load import SCHEMA, TABLES, WriteLoad

_KILLS = 20


@pytest.mark.soak
@pytest.mark.behaviour("G5")
@pytest.mark.slow
def test_a_chain_of_two_services_that_are_killed_under_load_loses_nothing(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    database.execute(SCHEMA)
    topics = [f"{topic_prefix}.{table}" for table in TABLES]
    for topic in topics:
        create_topic(kafka, topic, partitions=2)
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
        second.until(lambda: second.stats().get("source.hop", {}).get("lag_records") == 0, "the end of the topics")
        assert len(second.stats()["source.hop"]["partitions"]) == 4
        second.until(lambda: second.stats()["source.hop"]["batches_in_flight"] == 0, "the last batch")
        assert second.stop() == 0

    records = consume(kafka, copies, timeout=60)
    assert {(record.key, record.value) for record in records} == {(record.key, record.value) for record in originals}
    assert_nothing_is_lost(records, database, TABLES)
    assert_order_per_key(records)
    assert distinct_transactions(records) == load.committed


_ORDERS = """CREATE TABLE orders (
    id BIGINT UNSIGNED PRIMARY KEY, amount DECIMAL(30, 2), placed TIMESTAMP(6), note TEXT, document JSON, image BLOB
)"""


@pytest.mark.behaviour("G1")
def test_events_of_a_mariadb_are_the_same_bytes_after_a_hop_that_began_before_them(
    schema: Schema, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    schema.execute(_ORDERS, "CREATE TABLE items (id INT PRIMARY KEY, pieces INT)")
    extractor_config = mysql_section(schema) + kafka_section(kafka, topic_prefix)
    applier_config = topics_section(kafka, [rf"^{topic_prefix}\..*"], topic_prefix, instanceId="applier-1")
    applier_config += _NEW_TOPICS_SOON + kafka_section(kafka, f"{topic_prefix}-copy", sources=["hop"])
    (tmp_path / "extractor").mkdir()
    (tmp_path / "applier").mkdir()
    with (
        Service(tmp_path / "extractor", extractor_config) as extractor,
        Service(tmp_path / "applier", applier_config) as applier,
    ):
        applier.start()
        extractor.start()
        schema.transaction(
            "INSERT INTO orders VALUES (18446744073709551615, 12345678901234567890.50, '2026-11-22 10:00:00.5', "
            "'Zoë', '{\"a\": [1, 2.50]}', x'00ff'), (2, NULL, NULL, NULL, NULL, NULL)",
            "INSERT INTO items VALUES (1, 3)",
        )
        schema.execute("UPDATE orders SET id = 3, note = 'moved' WHERE id = 2", "DELETE FROM orders WHERE id = 3")
        schema.execute("TRUNCATE items")
        applier.until(lambda: applier.stats()["sink.k"].get("events", 0) >= 7, "the copies")
        assert extractor.stop() == 0
        assert applier.stop() == 0

    for table, count in (("orders", 5), ("items", 2)):
        originals = consume(kafka, [f"{topic_prefix}.{schema.name}.{table}"])
        copies = consume(kafka, [f"{topic_prefix}-copy.{schema.name}.{table}"])
        assert len(originals) == count
        assert _by_key(copies) == _by_key(originals)


@pytest.mark.soak
def test_an_applier_that_is_started_first_waits_for_topics_and_copies_what_comes(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    written, never = f"{topic_prefix}.orders", f"{topic_prefix}.fallback"
    sections = topics_section(kafka, [written, never], topic_prefix)
    sections += kafka_section(kafka, f"{topic_prefix}-copy", sources=["hop"], format="event")
    with Service(tmp_path, 'startTimeout = "1s"\n' + sections) as applier:
        applier.start(wait=False)
        applier.until(lambda: "waits for topics that do not exist" in _reason(applier), "the reason")
        time.sleep(2.0)  # longer than startTimeout
        create_topic(kafka, written)
        write(kafka, written, [event(number) for number in range(1, 4)])
        applier.until(lambda: applier.stats()["sink.k"].get("events", 0) == 3, "the copies")
        applier.until(
            lambda: f"waits for topics that do not exist: {never}; reads {written}[0]" in _reason(applier), "it"
        )
        assert applier.status()[0] == 500
        create_topic(kafka, never)
        applier.until(lambda: applier.status()[0] == 200, "the service to be well")
        assert applier.stop() == 0


def _reason(service: Service) -> str:
    parts = service.status()[1].get("parts", {})
    return str(parts.get("source.hop", {}).get("reason", ""))


_NEW_TOPICS_SOON = '[source.hop.kafka]\n"topic.metadata.refresh.interval.ms" = 500\n'


def _by_key(records: list[Record]) -> dict[bytes | None, list[bytes | None]]:
    """The values of each key in their order: that of records with different keys may differ between partitions."""
    found: dict[bytes | None, list[bytes | None]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record.value)
    return found
