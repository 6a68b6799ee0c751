"""What a source says of its snapshots: in its status, and in the log."""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import replace

import pytest

from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.snapshots import SnapshotRequest, Wanted
from sources.snapshot import news
from tests.database import Database
from tests.integration.test_snapshot_races import Consumer, snapshotting
from tests.source_at_work import wait_for

_SCHEMA = """
CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t, u;
INSERT INTO t SELECT generate_series(1, 1200); INSERT INTO u VALUES (1); ANALYZE t, u
"""


_REQUEST = SnapshotRequest("now", asked_at=1.0)


def _started(database: Database, **more: object) -> Consumer:
    consumer = Consumer(snapshotting(database, **more))
    consumer.source.read_stream_identity()
    consumer.source.start(None)
    return consumer


def _lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.mark.behaviour("N37")
def test_a_snapshot_says_that_it_begins_which_tables_are_done_and_what_it_came_to(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    database.execute(_SCHEMA)
    consumer = _started(database)
    try:
        consumer.until_done()
        consumer.read()
        reason = consumer.source.status().reason
    finally:
        consumer.source.stop()
    said = [line for line in _lines(caplog, logging.INFO) if " snapshot initial-" in line]
    expected = [
        r"begins: 2 tables, about 1,201 rows",
        r"public\.[tu] is read, [0-9,]+ rows? in [0-9.]+ s",
        r"public\.[tu] is read, [0-9,]+ rows? in [0-9.]+ s",
        r"is done: 1,201 rows of 2 tables in [0-9.]+ s, 0 rows left out .*, 0 read again",
    ]
    assert len(said) == len(expected)
    for line, pattern in zip(said, expected, strict=True):
        assert re.fullmatch(rf"source\.db1: snapshot initial-\d+-\d+:? {pattern}", line)
    assert re.fullmatch(
        r'streaming from slot "s_.*" since .*; snapshot initial-.*: done, 1,201 rows of 2 tables', reason
    )


@pytest.mark.behaviour("N37")
@pytest.mark.parametrize(
    ("begun", "waits"),
    [
        (False, "waits for transactions that were writing to public.t"),
        (True, "waits for the lock of public.t, which somebody else has"),
    ],
)
def test_whom_a_snapshot_waits_for_is_said_until_they_are_gone(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, begun: bool, waits: str
) -> None:
    monkeypatch.setattr(news, "_SAID_AFTER_SECONDS", 0.1)
    caplog.set_level(logging.INFO)
    database.execute(_SCHEMA)
    with database.session() as holder, holder.cursor() as cursor:
        waits = f"{waits}: PID {holder.info.backend_pid}"
        consumer = _started(database, mode="never", chunkRows=100)
        try:
            if begun:
                _begin_and_pause(consumer)
            cursor.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
            consumer.source.set_snapshots([_REQUEST])
            _until(consumer, lambda: _waits_in_status(consumer, waits))
            _until(consumer, lambda: any(waits in line for line in _warnings(caplog)))
            holder.rollback()
            consumer.until_done()
        finally:
            consumer.source.stop()
    assert any(re.search(r"snapshot now goes on after \d+ s", line) for line in _lines(caplog, logging.INFO))


@pytest.mark.behaviour("N37")
def test_a_transaction_that_is_streamed_and_not_visible_is_named(
    own_postgres: EmbeddedPostgres, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news, "_SAID_AFTER_SECONDS", 0.1)
    database = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    database.execute(_SCHEMA)
    consumer = _started(database, mode="never", chunkRows=100)
    waiting = threading.Thread(target=database.execute, args=("INSERT INTO t VALUES (5000)",))
    try:
        _begin_and_pause(consumer)
        _reload(database, "SET synchronous_standby_names = 'nobody'")
        wait_for(lambda: _commits_wait(database), "commits to wait for a standby")
        waiting.start()
        _until(consumer, lambda: (b"5000",) in consumer.fold.touched.get("public.t", {}))
        consumer.source.set_snapshots([_REQUEST])
        _until(consumer, lambda: "not visible yet: look at the standbys" in consumer.source.status().reason)
        _until(consumer, lambda: any("not visible yet" in line for line in _warnings(caplog)))
        _reload(database, "RESET synchronous_standby_names")
        consumer.until_done()
    finally:
        _reload(database, "RESET synchronous_standby_names")
        consumer.source.stop()
        waiting.join(10)


@pytest.mark.behaviour("N37")
def test_a_snapshot_that_ends_without_a_table_is_an_error_in_the_log_with_the_reason(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("CREATE TABLE t (v int); CREATE PUBLICATION p FOR TABLE t")
    consumer = _started(database, mode="never")
    try:
        consumer.source.set_snapshots([SnapshotRequest("now", asked_at=1.0)])
        consumer.until_done()
        consumer.read()
        reason = consumer.source.status().reason
    finally:
        consumer.source.stop()
    assert "snapshot now: failed, 0 rows of 1 table, 1 of 1 tables were not read; public.t: " in reason
    [_, ended] = _lines(caplog, logging.ERROR)
    assert ended.startswith("source.db1: snapshot now is failed: 0 rows of 0 tables")
    assert "give it a primary key" in ended


def _begin_and_pause(consumer: Consumer) -> None:
    """Within table t."""
    consumer.source.set_snapshots([_REQUEST])
    while len(consumer.fold.tables.get("public.t", {})) < 100:
        consumer.read()
    consumer.source.set_snapshots([replace(_REQUEST, wanted=Wanted.PAUSE)])
    assert len(consumer.fold.tables["public.t"]) < 1200


def _waits_in_status(consumer: Consumer, waits: str) -> bool:
    said = re.escape(waits)
    return (
        re.search(rf"; snapshot now: . of 2 tables, [0-9,]+ rows?, {said}$", consumer.source.status().reason)
        is not None
    )


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return _lines(caplog, logging.WARNING)


def _until(consumer: Consumer, condition: object) -> None:
    assert callable(condition)

    def is_so() -> bool:
        consumer.read()
        return bool(condition())

    wait_for(is_so, "what is to be said", 30.0)


def _commits_wait(database: Database) -> bool:
    """Not before the checkpointer has read the configuration. A commit whose wait is cancelled is one all the same;
    statement_timeout does not end this wait.
    """
    with database.session(autocommit=True) as session, session.cursor() as cursor:
        cancelling = threading.Timer(0.2, session.cancel)
        cancelling.start()
        began = time.monotonic()
        cursor.execute("CREATE TEMP TABLE waits ()")
        cancelling.cancel()
        return time.monotonic() - began >= 0.2


def _reload(database: Database, alter: str) -> None:
    with database.session(autocommit=True) as session, session.cursor() as cursor:
        cursor.execute(f"ALTER SYSTEM {alter}")
        cursor.execute("SELECT pg_reload_conf()")
