"""A primary that crashes under load, and a standby that takes its place: nothing is lost, and nobody is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from psql_streamer.embedded.postgres import EmbeddedPostgres, find_server_binaries
from tests.delivered import assert_nothing_is_lost, assert_order_per_key
from tests.kafka_reader import consume
from tests.kafka_sinks import create_topic
from tests.sections import kafka_section, postgres_section
from tests.service import Service
from tests.standby import database_of, dsn_of_both, end_and_promote, is_slot_kept, synchronized
from tests.write_load import SCHEMA, TABLES, WriteLoad


@pytest.mark.slow
@pytest.mark.behaviour("R8")
@pytest.mark.skipif(max(find_server_binaries()) < 17, reason="standbys keep slots since PostgreSQL 17")
def test_a_service_goes_on_at_the_standby_that_is_promoted_under_load_and_loses_nothing(
    own_postgres: EmbeddedPostgres, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    topics = [f"{topic_prefix}.{table}" for table in TABLES]
    for topic in topics:
        create_topic(kafka, topic, partitions=2)
    database_of(own_postgres).execute(SCHEMA)
    own_postgres.settings["synchronous_standby_names"] = "*"
    with synchronized(own_postgres) as standby:
        database = replace(database_of(own_postgres), dsn=dsn_of_both(own_postgres, standby))
        source = postgres_section(database, slotFailover=True, startRetryInterval="100ms")
        with Service(tmp_path, source + kafka_section(kafka, topic_prefix)) as service, WriteLoad(database) as load:
            service.start()
            service.until(lambda: is_slot_kept(own_postgres, standby), "the standby to keep the slot")
            service.until_it_gets_on()
            end_and_promote(own_postgres, standby)
            service.until_it_gets_on()
            load.stop()
            service.until_durable(database)
            assert service.stop() == 0
        records = consume(kafka, topics, timeout=60)
        assert_nothing_is_lost(records, database, TABLES)
        assert_order_per_key(records)
    assert "the server is on timeline 2, which left timeline 1 at " in service.log.read_text()
