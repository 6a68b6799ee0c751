"""PostgreSQL and Kafka go away and come back: the service says so, waits, goes on by itself, and loses nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Literal

import pytest

from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.lsn import Lsn
from tests.database import Database
from tests.delivered import assert_nothing_is_lost, assert_order_per_key, distinct_transactions
from tests.kafka_reader import consume
from tests.sections import kafka_section, postgres_section
from tests.service import Service
from tests.source_at_work import confirmed_flush_lsn
from tests.write_load import SCHEMA, TABLES, WriteLoad

pytestmark = pytest.mark.slow


@pytest.fixture
def database_of_its_own(own_postgres: EmbeddedPostgres) -> Database:
    """On a server of this test alone, with the tables of the write load."""
    database = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    database.execute(SCHEMA)
    return database


@pytest.fixture
def loaded(database: Database) -> Database:
    """On the shared server, with the tables of the write load."""
    database.execute(SCHEMA)
    return database


def _config(database: Database, bootstrap: str, prefix: str, first_lines: str = "") -> str:
    return f"""{first_lines}
{postgres_section(database, startRetryInterval="1s")}
{kafka_section(bootstrap, prefix, timeout="500ms", maxAttempts=2)}
[sink.k.kafka]
"reconnect.backoff.max.ms" = 500
"""


def _until_problem(service: Service, part: str) -> str:
    """Wait until /status is 500 because of this part; the reason."""
    reasons: list[str] = []

    def there() -> bool:
        code, answer = service.status()
        found = answer["parts"][part]
        if code == 500 and not found["ok"]:
            reasons.append(found["reason"])
        return bool(reasons)

    service.until(there, f"a problem of {part}")
    return reasons[0]


def _until_well(service: Service) -> None:
    service.until(lambda: service.status()[0] == 200, "the service to be well again")


def _assert_all_arrived(bootstrap: str, prefix: str, database: Database, committed: int) -> None:
    records = consume(bootstrap, [f"{prefix}.{table}" for table in TABLES], timeout=60)
    assert_nothing_is_lost(records, database, TABLES)
    assert_order_per_key(records)
    assert distinct_transactions(records) >= committed


def _walsender(database: Database) -> int:
    query = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"
    return int(database.value(query, f"s_{database.name}") or 0)


@pytest.mark.behaviour("R6")
@pytest.mark.parametrize("mode", [pytest.param("fast", marks=pytest.mark.soak), "immediate"])
def test_a_restart_of_postgresql_while_streaming_loses_nothing(
    own_postgres: EmbeddedPostgres,
    database_of_its_own: Database,
    kafka: str,
    topic_prefix: str,
    tmp_path: Path,
    mode: Literal["fast", "immediate"],
) -> None:
    database = database_of_its_own
    with Service(tmp_path, _config(database, kafka, topic_prefix)) as service:
        service.start()
        with WriteLoad(database) as load:
            load.until_more()
            own_postgres.stop(mode)
            reason = _until_problem(service, "source.db1")
            assert "server" in reason or "terminating connection" in reason, reason
            own_postgres.start()
            _until_well(service)
            load.until_more()
            load.stop()
        service.until_durable(database)
        assert service.stats()["source.db1"]["reconnects"] >= 1
        assert "(attempt 1, next in " in service.log.read_text()
        assert service.stop() == 0
    _assert_all_arrived(kafka, topic_prefix, database, load.committed)


@pytest.mark.behaviour("R6")
def test_a_terminated_walsender_is_replaced_and_a_hangup_is_ignored(
    loaded: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    with Service(tmp_path, _config(loaded, kafka, topic_prefix)) as service:
        service.start()
        with WriteLoad(loaded) as load:
            for _ in range(2):
                before = _walsender(loaded)
                loaded.value("SELECT pg_terminate_backend(%s)", before)
                assert "terminating connection due to administrator command" in _until_problem(service, "source.db1")
                _until_well(service)
                assert _walsender(loaded) not in (0, before)
            walsender = _walsender(loaded)
            os.kill(service.pid, signal.SIGHUP)
            service.until_durable(loaded)
            assert _walsender(loaded) == walsender
            load.stop()
        service.until_durable(loaded)
        assert service.stop() == 0
    _assert_all_arrived(kafka, topic_prefix, loaded, load.committed)


@pytest.mark.behaviour("R6")
@pytest.mark.parametrize("kill", [pytest.param(False, marks=pytest.mark.soak), True], ids=["in order", "killed"])
def test_a_broker_that_comes_back_gets_everything(
    loaded: Database, broker: EmbeddedKafka, topic_prefix: str, tmp_path: Path, kill: bool
) -> None:
    with Service(tmp_path, _config(loaded, broker.bootstrap, topic_prefix)) as service:
        service.start()
        with WriteLoad(loaded, pause=0.002) as load:
            load.until_more()
            load.large_transaction(10_000)
            broker.stop(kill=kill)
            assert "attempt 1 failed: " in _until_problem(service, "sink.k")
            assert service.status()[1]["parts"]["source.db1"]["ok"], "PostgreSQL is not to blame"
            broker.start()
            _until_well(service)
            load.until_more()
            load.stop()
        service.until_durable(loaded)
        assert service.stop() == 0
    _assert_all_arrived(broker.bootstrap, topic_prefix, loaded, load.committed)


def test_sigterm_while_the_broker_is_away_ends_in_time_and_the_rest_comes_after_the_restart(
    loaded: Database, broker: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    config = _config(loaded, broker.bootstrap, topic_prefix, 'drainTimeout = "1s"')
    with Service(tmp_path, config) as service:
        service.start()
        with WriteLoad(loaded, pause=0.002) as load:
            load.until_more()
            broker.stop()
            _until_problem(service, "sink.k")
            began = time.monotonic()
            assert service.stop() == 0
            assert time.monotonic() - began < 15, "drainTimeout and what it takes to leave"
            assert "not drained in time" in service.log.read_text()
            load.stop()
        broker.start()
        service.start()
        service.until_durable(loaded)
        assert service.stop() == 0
    _assert_all_arrived(broker.bootstrap, topic_prefix, loaded, load.committed)


@pytest.mark.soak
def test_a_sink_that_stalls_for_longer_than_wal_sender_timeout_costs_no_reconnect(
    own_postgres: EmbeddedPostgres,
    database_of_its_own: Database,
    broker: EmbeddedKafka,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    own_postgres.settings["wal_sender_timeout"] = "2s"
    own_postgres.restart()
    database = database_of_its_own
    config = _config(database, broker.bootstrap, topic_prefix).replace("[sink.k]", '[sink.k]\nqueueBytes = "64kB"')
    with Service(tmp_path, config.replace("[sink.k]", 'batchBytes = "64kB"\n[sink.k]', 1)) as service:
        service.start()
        walsender = _walsender(database)
        with WriteLoad(database, pause=0.001) as load:
            load.until_more()
            broker.stop()
            load.large_transaction(20_000)  # more than there is room for
            stalled_until = time.monotonic() + 6
            while time.monotonic() < stalled_until:
                assert _walsender(database) == walsender
                time.sleep(0.1)
            broker.start()
            _until_well(service)
            load.stop()
        service.until_durable(database)
        assert _walsender(database) == walsender
        assert service.stats()["source.db1"]["reconnects"] == 0
        assert service.stop() == 0
    _assert_all_arrived(broker.bootstrap, topic_prefix, database, load.committed)


@pytest.mark.behaviour("K7")
def test_a_sink_goes_on_while_another_of_the_same_source_is_away_and_the_position_waits_for_the_slower(
    loaded: Database, kafka: str, broker: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    config = _config(loaded, kafka, f"{topic_prefix}fast")
    slow = _config(loaded, broker.bootstrap, f"{topic_prefix}slow").partition("[sink.k]")[2]
    with Service(tmp_path, f"{config}[sink.slow]{slow.replace('sink.k', 'sink.slow')}") as service:
        service.start()
        loaded.execute("INSERT INTO kept SELECT generate_series(1, 1000)")
        service.until_durable(loaded)
        broker.stop()
        loaded.execute("INSERT INTO kept SELECT generate_series(1001, 2000)")
        stored = service.stats()["source.db1"]["stored_lsn"]
        _until_problem(service, "sink.slow")
        service.until(lambda: service.stats()["sink.k"]["events"] >= 2000, "the other sink to have everything")
        assert service.status()[1]["parts"]["sink.k"]["ok"]
        assert service.stats()["source.db1"]["stored_position"].startswith(str(Lsn(stored)))
        assert confirmed_flush_lsn(loaded) <= stored
        broker.start()
        _until_well(service)
        service.until_durable(loaded)
        assert service.stop() == 0
    for bootstrap, name in ((kafka, "fast"), (broker.bootstrap, "slow")):
        records = consume(bootstrap, [f"{topic_prefix}{name}.public.kept"])
        assert_nothing_is_lost(records, loaded, ["public.kept"])
