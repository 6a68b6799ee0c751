"""Rows of a snapshot and blocks of the stream come in turn."""

from __future__ import annotations

import pytest

from psql_streamer.model import Batch
from sources.postgres.source import PostgresSource
from tests.database import Database
from tests.source_at_work import read_until, rows, streaming, wait_for

TABLES = """
CREATE TABLE was_there (id int PRIMARY KEY);
INSERT INTO was_there SELECT generate_series(1, 1000);
CREATE TABLE changed (id int PRIMARY KEY);
CREATE PUBLICATION p FOR TABLE was_there, changed
"""


def test_a_block_of_the_stream_has_all_that_came_until_its_turn(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.postgres.source.BLOCK_ANSWER_SECONDS", 30.0)  # the machine may have other work
    database.execute(TABLES)
    with streaming(database, snapshot="initial", batchSize=10) as source:
        read_until(source, lambda batch: bool(batch.transactions.snapshots))  # the others lie ready
        commit_row(database, 1)
        read_until(source, is_of_stream)
        commit_row(database, 2)
        assert not is_of_stream(read_next(source))
        commit_row(database, 3)
        assert rows([read_next(source)]) == [(b"2",), (b"3",)]


def commit_row(database: Database, number: int) -> None:
    """And wait until the server has sent it."""
    database.execute("INSERT INTO changed VALUES (%s)", number)
    end = database.value("SELECT pg_current_wal_lsn()")
    of_slot = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"
    sent = f"SELECT sent_lsn >= %s FROM pg_stat_replication WHERE pid = ({of_slot})"
    wait_for(lambda: database.value(sent, end, f"s_{database.name}"), "the server to send a row")


def read_next(source: PostgresSource) -> Batch:
    batch = source.read(30.0)
    assert batch is not None
    return batch


def is_of_stream(batch: Batch) -> bool:
    return bool(batch.changes) and not batch.transactions.snapshots
