"""SIGKILL, a server that crashes, a broker that is away while existing rows are read: nothing is lost or begun anew."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.postgres import EmbeddedPostgres
from tests.database import Database
from tests.existing_rows import TABLES, RowLoad, fold_with_reads, make_tables, reads, snapshot_state
from tests.fold import select
from tests.kafka_reader import Record, consume
from tests.sections import kafka_section, postgres_section
from tests.service import Service
from tests.source_at_work import wait_for

_CHUNK_ROWS = 20
_IN_FLIGHT = 40 * _CHUNK_ROWS
"""Rows that may be in the topics while no stored position says so."""


def _config(database: Database, bootstrap: str, prefix: str, **more: object) -> str:
    snapshot = {"mode": "initial", "chunkRows": _CHUNK_ROWS}
    source = postgres_section(database, startRetryInterval="100ms", snapshot=snapshot)
    return source + kafka_section(bootstrap, prefix, **more)


def _slot_is_free(database: Database) -> bool:
    query = "SELECT NOT active FROM pg_replication_slots WHERE slot_name = %s"
    return bool(database.value(query, f"s_{database.name}"))


def _until_read(service: Service) -> None:
    service.until(lambda: snapshot_state(service) == "done", "the snapshot to end", 300)


def _finish(service: Service, database: Database) -> None:
    service.until_durable(database)
    assert service.stop() == 0


def _records(bootstrap: str, prefix: str, database: Database) -> list[Record]:
    """Those of all tables, whose fold is what SELECT gives."""
    records = consume(bootstrap, [f"{prefix}.{table}" for table in TABLES], timeout=60)
    folded = fold_with_reads(records)
    for table in TABLES:
        assert folded[table] == select(database, table), f"{table} differs"
    return records


@pytest.mark.behaviour("N29")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "rows"), [(1, 3_000), pytest.param(50, 20_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]
)
def test_a_service_killed_while_it_reads_existing_rows_goes_on_where_it_was(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path, kills: int, rows: int
) -> None:
    make_tables(database, rows)
    moments = random.Random(topic_prefix)
    during = 0
    with Service(tmp_path, _config(database, kafka, topic_prefix)) as service:
        began = time.monotonic()
        service.start()
        longest = 2 * (time.monotonic() - began)  # a slow machine must get to reading, too
        with RowLoad(database, rows) as load:
            for _ in range(kills):
                time.sleep(moments.uniform(0.1, longest))
                service.kill()
                during += snapshot_state(service) in ("waiting", "running")
                wait_for(lambda: _slot_is_free(database), "the slot to become free", 30)
                service.start(wait=False)
            _until_read(service)
            load.stop()
        _finish(service, database)
    assert during > kills / 2, "the snapshot was over before most of the kills"
    records = _records(kafka, topic_prefix, database)
    assert reads(records) <= len(TABLES) * rows + load.inserted + kills * _IN_FLIGHT, "a table was begun anew"


@pytest.mark.soak
@pytest.mark.behaviour("N30")
@pytest.mark.slow
def test_a_server_that_crashes_while_its_rows_are_read(
    own_postgres: EmbeddedPostgres, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    database, rows = Database("postgres", own_postgres.build_dsn(), own_postgres.version), 3000
    make_tables(database, rows)
    during = 0
    with Service(tmp_path, _config(database, kafka, topic_prefix)) as service:
        service.start()
        with RowLoad(database, rows) as load:
            for _ in range(2):
                own_postgres.restart("immediate")
                during += snapshot_state(service) != "done"
                service.until(lambda: service.status()[0] == 200, "the service to be well again")
            _until_read(service)
            load.stop()
        _finish(service, database)
    assert during, "the snapshot was over before the server crashed"
    records = _records(kafka, topic_prefix, database)
    assert reads(records) <= len(TABLES) * rows + load.inserted + 2 * _IN_FLIGHT, "a table was begun anew"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as broker:
        yield broker


@pytest.mark.soak
@pytest.mark.behaviour("N31")
@pytest.mark.slow
def test_a_broker_that_is_away_while_rows_are_read(
    database: Database, broker: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    rows = 3000
    make_tables(database, rows)
    with Service(tmp_path, _config(database, broker.bootstrap, topic_prefix, timeout="1s")) as service:
        service.start()
        with RowLoad(database, rows) as load:
            service.until(lambda: snapshot_state(service) == "running", "the snapshot to begin")
            broker.stop()
            time.sleep(3)
            assert snapshot_state(service) == "running", "the snapshot was over before the broker went"
            broker.start()
            _until_read(service)
            load.stop()
        _finish(service, database)
    records = _records(broker.bootstrap, topic_prefix, database)
    assert reads(records) <= len(TABLES) * rows + load.inserted + _IN_FLIGHT, "a table was begun anew"
