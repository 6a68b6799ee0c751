"""A fast stream over TCP on one machine: messages gather in the server's send buffer, and are read together."""

from __future__ import annotations

import psutil
import pytest
from psycopg2.extensions import make_dsn

from psql_streamer.embedded.ports import LOOPBACK
from tests.database import Database
from tests.source_at_work import read_all, rows, streaming

ROWS = 200_000
MESSAGES_A_WAKE_UP = 200
"""Without gathering a turn of the reader has 70 of these messages, with it more than a thousand."""


@pytest.fixture
def over_tcp(database: Database) -> Database:
    """A database with a table, over TCP."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t")
    return Database(database.name, make_dsn(database.dsn, host=LOOPBACK), database.version)


def _reader() -> psutil.Process:
    [reader] = [child for child in psutil.Process().children() if "sources.postgres.reader_program" in child.cmdline()]
    return reader


def test_a_backlog_is_read_in_few_turns_and_nothing_of_it_is_missing(over_tcp: Database) -> None:
    with streaming(over_tcp) as source:
        over_tcp.execute("INSERT INTO t SELECT i, 'value ' || i FROM generate_series(1, %s) i", ROWS)
        before = _reader().num_ctx_switches().voluntary
        found = rows(read_all(source, over_tcp))
        turns = _reader().num_ctx_switches().voluntary - before
    assert [row[0] for row in found] == [b"%d" % i for i in range(1, ROWS + 1)]
    assert turns < ROWS / MESSAGES_A_WAKE_UP


@pytest.mark.parametrize("size", [1, 1_000, 100_000, 3_000_000])
def test_rows_larger_than_the_window_and_the_send_buffer_arrive(over_tcp: Database, size: int) -> None:
    with streaming(over_tcp) as source:
        over_tcp.execute("INSERT INTO t SELECT i, repeat(chr(64 + i), %s) FROM generate_series(1, 20) i", size)
        over_tcp.execute("INSERT INTO t VALUES (21, 'a row that comes alone')")
        found = rows(read_all(source, over_tcp))
    assert found[:20] == [(b"%d" % i, bytes([64 + i]) * size) for i in range(1, 21)]
    assert found[20] == (b"21", b"a row that comes alone")
