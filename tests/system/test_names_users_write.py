"""Names that any user of the database can write: none of them stops the service without a way out that works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.database import Database
from tests.kafka_reader import consume
from tests.sections import kafka_section, postgres_section
from tests.service import Service

FAILED = 1


def test_messages_whose_prefix_is_no_topic_are_skipped_counted_and_the_stream_goes_on(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE orders")
    config = postgres_section(database) + kafka_section(kafka, topic_prefix, messageTopic="{prefix}")
    with Service(tmp_path, config) as service:
        service.start()
        for prefix in ("p" * 300, "", ".", "__consumer_offsets", f"{topic_prefix} odd", f"{topic_prefix}_odd"):
            database.execute("SELECT pg_logical_emit_message(true, %s, 'x')", prefix)
        database.execute("INSERT INTO orders VALUES (1)")
        service.until_durable(database)
        shown = ("p" * 63 + "...", "", ".", "__consumer_offsets")
        assert service.stats()["sink.k"]["skipped"] == {f"message {prefix}": 1 for prefix in shown}
        assert 'psql_streamer_sink_skipped_total{sink="k",table="message ."} 1.0' in service.text("/metrics")
        assert service.log.read_text().count("Kafka does not allow the topic") == len(shown)
        assert service.status()[0] == 200
        assert service.stop() == 0
    assert len(consume(kafka, [f"{topic_prefix}.public.orders"])) == 1
    assert len(consume(kafka, [f"{topic_prefix}_odd"])) == 2


@pytest.mark.parametrize(
    ("remedy", "topic"),
    [
        ({"excludeTables": ["public..."]}, ""),
        pytest.param({"excludeTables": [".."]}, "", marks=pytest.mark.soak),
        pytest.param("public...", "dots", marks=pytest.mark.soak),
        ("..", "dots"),
    ],
)
def test_a_table_whose_name_is_no_topic_stops_the_service_until_its_remedy_is_followed(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path, remedy: dict[str, list[str]] | str, topic: str
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE PUBLICATION p FOR ALL TABLES")
    ours = f'tableTopicMapping = {{ orders = "{topic_prefix}", "*" = "{{table}}" }}'
    config = postgres_section(database) + kafka_section(kafka, "") + ours
    with Service(tmp_path, config) as service:
        service.start()
        database.execute(
            'CREATE TABLE ".." (id int PRIMARY KEY); INSERT INTO ".." VALUES (1); INSERT INTO orders VALUES (2)'
        )
        assert service.wait() == FAILED
        assert 'table "public".".." would go to topic "..", which Kafka does not allow: give it a' in service.tail()
        text = service.config.read_text()
        if isinstance(remedy, str):
            service.config.write_text(text.replace('"*" =', f'"{remedy}" = "{topic_prefix}.{topic}", "*" ='))
        else:
            service.config.write_text(f"{text}\nexcludeTables = {remedy['excludeTables']}")
        service.start()
        service.until_durable(database)
        assert service.stop() == 0
    assert len(consume(kafka, [topic_prefix])) == 1
    if topic:
        assert len(consume(kafka, [f"{topic_prefix}.{topic}"])) == 1
