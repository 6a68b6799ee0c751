"""Connections that are ended while nothing is written, as proxies and firewalls end them."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from psql_streamer.errors import QuietStreamEnded, SourceUnavailable
from psql_streamer.model import Batch
from sources.mysql.source import MysqlSource
from sources.postgres import server_watch
from sources.postgres.source import PostgresSource
from tests import mysql_source
from tests.database import Database
from tests.mariadb import Schema
from tests.source_at_work import read_until, source_of, start_again, streaming, wait_for
from tests.started_source import started
from tests.tcp_proxy import TcpProxy

_SCHEMA = "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t"
_ROWS = "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 50000) i"


@pytest.fixture(autouse=True)
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the server, from beside the stream."""
    monkeypatch.setattr(server_watch, "_SERVER_LOOK_SECONDS", 0.1)


def test_a_stream_whose_connection_is_dropped_while_nothing_is_written_has_failed_at_no_change(
    database: Database,
) -> None:
    database.execute(_SCHEMA)
    with TcpProxy(port_of(database)) as proxy, started(source_through(proxy, database)) as source:
        for _ in range(2):
            wait_for(lambda: source._server.sent_all, "the walsender to wait")
            proxy.cut()
            with pytest.raises(QuietStreamEnded, match="the server closed the connection"):
                read_until(source, never)
            start_again(source, None)


def test_a_stream_whose_connection_is_dropped_while_rows_wait_may_have_failed_at_one(database: Database) -> None:
    database.execute(_SCHEMA)
    with streaming(database):
        pass
    database.execute(_ROWS)
    with TcpProxy(port_of(database)) as proxy, started(source_through(proxy, database, batchBytes=1 << 20)) as source:
        looked = source._server._answered_at
        wait_for(lambda: source._server._answered_at > looked, "a look at the walsender")
        proxy.cut()
        with pytest.raises(SourceUnavailable) as ended:
            read_until(source, never)
    assert not isinstance(ended.value, QuietStreamEnded)


def test_a_binary_log_whose_connection_is_dropped_behind_a_heartbeat_has_failed_at_no_change(schema: Schema) -> None:
    schema.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with TcpProxy(schema.port) as proxy:
        through = replace(schema, port=proxy.port)
        with started(mysql_source.source_of(through)) as source:
            for _ in range(2):
                wait_for(lambda: source.read(0.1) is None and source._is_quiet, "a heartbeat")
                proxy.cut()
                with pytest.raises(QuietStreamEnded, match="was lost: the server closed it"):
                    read_until_it_ends(source)
                source.start(None)


def source_through(proxy: TcpProxy, database: Database, **options: int) -> PostgresSource:
    return source_of(database, dsn=proxy.dsn(database.dsn), **options)


def port_of(database: Database) -> int:
    return int(database.value("SELECT current_setting('port')"))


def read_until_it_ends(source: MysqlSource) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        source.read(0.1)


def never(_: Batch) -> bool:
    return False
