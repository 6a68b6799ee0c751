"""SIGKILL at any moment, again and again, under load: nothing is lost, order is kept, nothing hides behind the slot."""

from __future__ import annotations

import random
import time
import uuid
from pathlib import Path

import psutil
import pytest

from psql_streamer.checkpoint.store import Store
from psql_streamer.lsn import Lsn
from psql_streamer.model import Position
from psql_streamer.pgoutput.wal_position import WalPosition
from tests.database import Database
from tests.delivered import assert_nothing_is_lost, assert_order_per_key, distinct_transactions, repeats
from tests.kafka_reader import consume
from tests.sections import kafka_section, postgres_section
from tests.service import Service
from tests.source_at_work import confirmed_flush_lsn, wait_for
from tests.write_load import SCHEMA, TABLES, WriteLoad

_MARK = "MARK_OF_THE_KILL_TEST"


def _readers(mark: str) -> list[int]:
    """PIDs of the reader processes that this test's service started, whoever is their parent now."""
    # A zombie, or another user's process, has None in place of both.
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "environ"])
        if "sources.postgres.reader_program" in (process.info["cmdline"] or ())
        and (process.info["environ"] or {}).get(_MARK) == mark
    ]


def _slot_is_free(database: Database) -> bool:
    query = "SELECT NOT active FROM pg_replication_slots WHERE slot_name = %s"
    return bool(database.value(query, f"s_{database.name}"))


def _stored(service: Service) -> Position | None:
    """What the position store holds, while the service is not running."""
    store = Store(service.lmdb)
    store.open()
    try:
        record = store.get("db1")
    finally:
        store.close()
    return record.position if record else None


def _lsn(position: Position | None) -> Lsn:
    return Lsn(0) if position is None else WalPosition.from_position(position).lsn


@pytest.mark.behaviour("K1", "K2", "K10", "R2", "R3")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "exactly_once"),
    [(2, False), *(pytest.param(20, once, marks=pytest.mark.soak) for once in (False, True))],
)
def test_a_service_killed_again_and_again_under_load_loses_nothing_and_keeps_the_order(
    database: Database,
    kafka: str,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kills: int,
    exactly_once: bool,
) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv(_MARK, mark)
    database.execute(SCHEMA)
    once = {"exactlyOnce": True, "transactionalId": topic_prefix} if exactly_once else {}
    config = postgres_section(database, startRetryInterval="100ms", batchSize=2000)
    config += kafka_section(kafka, topic_prefix, **once)
    moments = random.Random(mark)
    stored: list[Position | None] = []
    with Service(tmp_path, config) as service:
        began = time.monotonic()
        service.start()
        longest = 1.5 * (time.monotonic() - began)
        with WriteLoad(database) as load:
            large = {kills // 6: 3_000, kills // 2: 50_000}
            for kill in range(kills):
                if kill in large:
                    load.large_transaction(large[kill])
                if kill % 2:
                    service.until_it_gets_on()
                    time.sleep(moments.uniform(0, 0.5))
                else:
                    time.sleep(moments.uniform(0.3, longest))
                service.kill()
                wait_for(lambda: not _readers(mark), "the reader process to end by itself", 30)
                wait_for(lambda: _slot_is_free(database), "the slot to become free", 30)
                stored.append(_stored(service))
                confirmed = confirmed_flush_lsn(database)
                assert stored[-1] is None or confirmed <= _lsn(stored[-1]), "more was confirmed than is remembered"
                service.start(wait=False)
            load.stop()
        service.until_durable(database)
        assert service.stop() == 0

    assert stored == sorted(stored, key=_lsn), "the position never goes back"
    assert len({position.shown for position in stored if position is not None}) >= kills // 2
    isolation = "read_committed" if exactly_once else "read_uncommitted"
    topics = [f"{topic_prefix}.{table}" for table in TABLES]
    records = consume(kafka, topics, timeout=60, isolation_level=isolation)
    assert not (exactly_once and repeats(records))
    assert_nothing_is_lost(records, database, TABLES)
    assert_order_per_key(records)
    assert distinct_transactions(records) == load.committed
