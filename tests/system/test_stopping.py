"""A stop ends in time, whatever hangs; a start that waits says for what."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest
from psycopg2.extensions import parse_dsn

from psql_streamer.checkpoint.store import Store
from psql_streamer.pipeline.shutdown import FORCED
from tests.database import Database
from tests.kafka_reader import consume
from tests.log_pipe import LogPipe
from tests.sections import kafka_section, postgres_section
from tests.service import Service
from tests.source_at_work import wait_for
from tests.tcp_proxy import TcpProxy

_SCHEMA = "CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t"
_LEAVE_SECONDS = 5.0
_DISCARD = '[sink.s]\ntype = "stub_discard"\nsources = ["db1"]\n'
_STUCK = '[sink.s]\ntype = "tests.stuck_sink:StuckSink"\nsources = ["db1"]\n'
_SENT_AGAIN = re.compile(
    "source.db1: position .+ was not stored: the next start goes on .+, and what sink.s took since then is sent again"
)


def _config(database: Database, sink: str, first_lines: str = "", **more: object) -> str:
    return f"{first_lines}\n{postgres_section(database, **more)}\n{sink}"


@contextmanager
def _takes_less_than(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def _until_stuck(service: Service, database: Database) -> None:
    database.execute("INSERT INTO t VALUES (1)")
    service.until(lambda: service.stats()["sink.s"]["events"] > 0, "the sink to have a row")


@pytest.mark.behaviour("O2")
def test_sigterm_ends_a_service_whose_sink_never_comes_back_and_names_what_hangs(
    database: Database, tmp_path: Path
) -> None:
    database.execute(_SCHEMA)
    with Service(tmp_path, _config(database, _STUCK, 'drainTimeout = "500ms"')) as service:
        service.start()
        _until_stuck(service, database)
        with _takes_less_than(0.5 + _LEAVE_SECONDS):
            assert service.stop() == 0
        said = service.log.read_text()
        assert "sink.s: not drained in time" in said
        assert "left behind, because it does not end: " in said
        assert "sink.s in write (stuck_sink.py:" in said
        assert "stop sink.s in stop (stuck_sink.py:" in said


@pytest.mark.behaviour("O2")
def test_a_second_signal_ends_at_once(database: Database, tmp_path: Path) -> None:
    database.execute(_SCHEMA)
    with Service(tmp_path, _config(database, _STUCK, 'drainTimeout = "60s"')) as service:
        service.start()
        _until_stuck(service, database)
        os.kill(service.pid, signal.SIGINT)
        service.until(lambda: "stopping: SIGINT" in service.log.read_text(), "the first signal to be heard")
        with _takes_less_than(3):
            os.kill(service.pid, signal.SIGTERM)
            assert service.wait() == 128 + signal.SIGTERM
        assert "SIGTERM for the second time" in service.log.read_text()


@pytest.mark.behaviour("O2")
def test_a_stop_does_not_wait_for_a_log_that_nobody_reads(database: Database, tmp_path: Path) -> None:
    database.execute(_SCHEMA)
    with LogPipe() as log:
        config = _config(database, _DISCARD, 'drainTimeout = "60s"')
        with Service(tmp_path, config, stderr=log.writer) as service:
            service.start()
            log.fill()
            with _takes_less_than(_LEAVE_SECONDS):
                assert service.stop() == 0


def test_a_stop_whose_sink_and_log_hang_ends_in_time(database: Database, tmp_path: Path) -> None:
    database.execute(_SCHEMA)
    with LogPipe() as log:
        config = _config(database, _STUCK, 'drainTimeout = "500ms"')
        with Service(tmp_path, config, stderr=log.writer) as service:
            service.start()
            _until_stuck(service, database)
            log.fill()
            with _takes_less_than(0.5 + _LEAVE_SECONDS):
                assert service.stop() == 0


def test_a_second_signal_ends_at_once_though_nobody_reads_the_log(database: Database, tmp_path: Path) -> None:
    database.execute(_SCHEMA)
    with LogPipe() as log:
        config = _config(database, _STUCK, 'drainTimeout = "60s"')
        with Service(tmp_path, config, stderr=log.writer) as service:
            service.start()
            _until_stuck(service, database)
            log.fill()
            os.kill(service.pid, signal.SIGTERM)
            time.sleep(0.2)  # the kernel makes one of two signals that wait
            with _takes_less_than(1.5):
                assert service.stop() == 128 + signal.SIGTERM


@pytest.mark.behaviour("O2")
@pytest.mark.parametrize("log_is_read", [True, False])
def test_a_disk_that_stands_still_at_the_stop_is_named_with_what_is_sent_again(
    database: Database, tmp_path: Path, log_is_read: bool
) -> None:
    database.execute(_SCHEMA)
    with LogPipe() as log:
        config = _config(database, _DISCARD, 'drainTimeout = "500ms"')
        with Service(tmp_path, config, stderr=log.writer) as service:
            service.start()
            with _lmdb(service) as file, file.begin(write=True):
                database.execute("INSERT INTO t VALUES (1)")
                service.until(lambda: service.stats()["sink.s"]["events"] == 1, "the row")
                if not log_is_read:
                    log.fill()
                with _takes_less_than(0.5 + _LEAVE_SECONDS):
                    assert service.stop() == FORCED
        if log_is_read:
            wait_for(lambda: "psql-streamer: " in log.text(), "the last line")
            said = log.text()
            assert "left behind, because it does not end: checkpointer in put (store.py:" in said
            assert _SENT_AGAIN.search(said)
            last = "psql-streamer: store: positions were not stored within 1.0 s: look at the disk that lmdb is on"
            assert said.splitlines()[-1] == last


def test_a_store_that_refuses_the_last_position_is_told_with_what_is_sent_again(
    database: Database, tmp_path: Path
) -> None:
    database.execute(_SCHEMA)
    with Service(tmp_path, _config(database, _DISCARD, 'lmdbMapSize = "1MB"')) as service:
        service.start()
        service.until_durable(database)
        before = service.stats()["sink.s"]["events"]  # logical messages count as well
        with _lmdb(service) as file, file.begin():
            _fill(file)
            with file.begin(write=True):
                database.execute("INSERT INTO t VALUES (1)")
                service.until(lambda: service.stats()["sink.s"]["events"] == before + 1, "the row")
                os.kill(service.pid, signal.SIGTERM)
                service.until(lambda: "stopping: SIGTERM" in service.log.read_text(), "the signal to be heard")
            assert service.wait(10) == FORCED
        said = service.log.read_text()
        assert _SENT_AGAIN.search(said)
        assert said.splitlines()[-1].endswith(f"lmdb: {service.lmdb} is full: raise lmdbMapSize")


@pytest.mark.soak
@pytest.mark.behaviour("K10")
def test_what_a_transaction_brought_is_not_sent_again_though_the_disk_took_no_position(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    database.execute(_SCHEMA)
    sink = kafka_section(kafka, topic_prefix, "s", exactlyOnce=True, transactionalId=topic_prefix)
    topic = f"{topic_prefix}.public.t"

    def count() -> int:
        return len(consume(kafka, [topic], isolation_level="read_committed"))

    with Service(tmp_path, _config(database, sink, 'drainTimeout = "500ms"')) as service:
        service.start()
        with _lmdb(service) as file, file.begin(write=True):
            database.execute("INSERT INTO t VALUES (1)")
            wait_for(lambda: count() == 1, "the row")
            assert service.stop() == FORCED
        said = service.log.read_text()
        assert re.search(r"was not stored: the next start goes on behind the last transaction of sink\.s", said)
        assert "stopped; the next start goes on behind the last transaction of sink.s" in said
        assert not _SENT_AGAIN.search(said)
        service.start()
        database.execute("INSERT INTO t VALUES (2)")
        service.until_durable(database)
        assert service.stop() == 0
        assert re.search(r"goes on at .+, as the last transaction of sink\.s says", service.log.read_text())
    assert count() == 2


def test_sigterm_behind_a_network_that_swallows_everything_ends_in_time(database: Database, tmp_path: Path) -> None:
    database.execute(_SCHEMA)
    with TcpProxy(int(parse_dsn(database.dsn)["port"])) as proxy:
        far = replace(database, dsn=proxy.dsn(database.dsn))
        config = _config(far, _DISCARD, 'drainTimeout = "500ms"', receiveTimeout="2s", startRetryInterval="100ms")
        with Service(tmp_path, config) as service:
            service.start()
            proxy.freeze()
            service.until(lambda: service.status()[0] == 500, "the silence to be noticed")
            reasons: set[str] = set()

            def told() -> bool:
                reasons.add(service.status()[1]["parts"]["source.db1"]["reason"])
                return any("failed: " in reason for reason in reasons)

            service.until(told, "an attempt to connect again to fail")
            assert "stopped" not in reasons
            assert any("not even an answer" in reason for reason in reasons), reasons
            with _takes_less_than(0.5 + _LEAVE_SECONDS):
                service.stop()


def test_a_service_comes_back_when_a_frozen_network_thaws(database: Database, tmp_path: Path) -> None:
    database.execute(_SCHEMA)
    with TcpProxy(int(parse_dsn(database.dsn)["port"])) as proxy:
        far = replace(database, dsn=proxy.dsn(database.dsn))
        config = _config(far, _DISCARD, receiveTimeout="2s", startRetryInterval="100ms")
        with Service(tmp_path, config) as service:
            service.start()
            proxy.freeze()
            service.until(lambda: service.status()[0] == 500, "the silence to be noticed")
            database.execute("INSERT INTO t VALUES (1)")
            proxy.thaw()
            service.until(lambda: service.status()[0] == 200, "the service to be well again")
            service.until(lambda: service.stats()["sink.s"]["events"] == 1, "the row")
            assert service.stop() == 0


@pytest.mark.parametrize("signalled", [False, True], ids=["startTimeout", "SIGTERM"])
def test_a_first_start_beside_a_long_transaction_says_whom_it_waits_for(
    database: Database, tmp_path: Path, signalled: bool
) -> None:
    database.execute(_SCHEMA)
    with database.session() as other, other.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1); SELECT pg_backend_pid()")
        [(pid,)] = cursor.fetchall()
        config = _config(database, _DISCARD, f'startTimeout = "{60 if signalled else 3}s"')
        with Service(tmp_path, config) as service:
            service.start(wait=False)
            wanted = f'slot "s_{database.name}" waits for the transaction of PID {pid} to end, open since '

            def told() -> bool:
                return bool(service.status()[1].get("parts", {}).get("source.db1", {}).get("reason", "").count(wanted))

            service.until(told, "the reason")
            if signalled:
                with _takes_less_than(_LEAVE_SECONDS):
                    assert service.stop() == 0
            else:
                assert service.wait(10) == 1
                assert wanted in service.tail().strip().splitlines()[-1]
    slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
    wait_for(lambda: not database.value(slots, f"s_{database.name}"), "the server to give the slot up")


def test_a_source_that_no_sink_names_is_left_alone_with_its_slot(database: Database, tmp_path: Path) -> None:
    database.execute(_SCHEMA)
    lonely = f"lonely_{database.name}"
    database.query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", lonely)
    section = postgres_section(database, replicationSlot=lonely).replace("source.db1", "source.lonely")
    polled = '[source.polled]\ntype = "sql"\nurl = "sqlite:///shop.sqlite"\ntables = ["orders"]'
    with Service(tmp_path, f"{_config(database, _DISCARD)}\n{section}\n{polled}") as service:
        query = "SELECT confirmed_flush_lsn, active FROM pg_replication_slots WHERE slot_name = %s"
        before = database.query(query, lonely)
        service.start()
        database.execute("INSERT INTO t SELECT generate_series(1, 100)")
        service.until_durable(database)
        parts = service.status()[1]["parts"]
        told = parts["source.lonely"]
        assert told["ok"]
        assert "no sink takes from it: it is not started, and its slot is left alone" in told["reason"]
        assert parts["source.polled"]["reason"] == "no sink takes from it: it is not started"
        assert service.stop() == 0
        assert "source.lonely: no sink takes from it" in service.log.read_text()
    assert database.query(query, lonely) == before


def test_the_last_line_says_where_the_next_start_goes_on(database: Database, tmp_path: Path) -> None:
    database.execute(_SCHEMA)
    with Service(tmp_path, _config(database, _DISCARD)) as service:
        service.start()
        database.execute("INSERT INTO t VALUES (1)")
        service.until_durable(database)
        assert service.stop() == 0
        position = service.log.read_text().strip().splitlines()[-1].partition("the next start goes on at ")[2]
        assert position in _stored_position(service)
        assert "not drained" not in service.log.read_text()


def _lmdb(service: Service) -> lmdb.Environment:
    """LMDB has one writer at a time: while a transaction here is one, the service's commit does not return."""
    return lmdb.open(str(service.lmdb), subdir=False, max_dbs=3, map_size=1 << 20)


def _fill(file: lmdb.Environment) -> None:
    """Leave no page, while somebody reads: pages that a reader may look at are not used again."""
    meta = file.open_db(b"meta")
    with suppress(lmdb.MapFullError):
        for number in itertools.count():
            with file.begin(write=True, db=meta) as transaction:
                transaction.put(b"filler %d" % number, bytes(1000))


def _stored_position(service: Service) -> str:
    store = Store(service.lmdb)
    store.open()
    try:
        return f"{store.read_all()['db1'].position}"
    finally:
        store.close()


def test_the_last_line_has_the_position_also_when_nothing_came_and_when_the_start_failed(
    database: Database, tmp_path: Path
) -> None:
    database.execute(_SCHEMA)
    with Service(tmp_path, _config(database, _DISCARD, 'startTimeout = "1s"')) as service:

        def read_last_position() -> str:
            line = [line for line in service.log.read_text().splitlines() if "the next start goes on" in line][-1]
            return line.partition("the next start goes on ")[2]

        service.start()
        database.execute("INSERT INTO t VALUES (1)")
        service.until_durable(database)
        assert service.stop() == 0
        reached = read_last_position()
        assert re.fullmatch("at 0/[0-9A-F]+", reached)
        service.start()
        assert service.stop() == 0
        assert read_last_position() == reached
        config = service.config.read_text()
        service.config.write_text(config.replace(_DISCARD, kafka_section("127.0.0.1:1", "p")))
        service.start(wait=False)
        assert service.wait() == 1
        assert read_last_position() == reached
        back = 'walPositionOverride = "0/1"\n[sink.k]'
        service.config.write_text(service.config.read_text().replace("[sink.k]", back))
        service.start(wait=False)
        assert service.wait() == 1
        assert read_last_position() == "at 0/1"
