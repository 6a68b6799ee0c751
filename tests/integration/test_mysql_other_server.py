"""What is asked beside a stream of MySQL or MariaDB is asked of the server that the stream comes from, wherever the
address leads meanwhile.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from psql_streamer.embedded.mariadb import EmbeddedMariadb
from psql_streamer.embedded.mysql import EmbeddedMysql
from psql_streamer.errors import SourceUnavailable
from psql_streamer.model import Batch
from psql_streamer.snapshots import SnapshotRequest, SnapshotState
from sources.mysql.connection import Connector
from sources.mysql.dsn import parse_dsn
from sources.mysql.places import LogPlace
from sources.mysql.resuming import find_end_position
from sources.mysql.server import Session, open_session
from sources.mysql.server_of_stream import find_client
from sources.mysql.snapshot.line import Latest
from sources.mysql.snapshot.reading import ReadingSession
from sources.mysql.snapshot.tables import describe_table
from sources.mysql.source import MysqlSource
from tests.mariadb import Schema, fresh_schema, new_schema
from tests.mysql_snapshots import Consumer
from tests.mysql_source import read_all, read_until, seen, source_of, streaming
from tests.source_at_work import wait_for
from tests.started_source import started
from tests.tcp_proxy import TcpProxy

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(1000))"


@pytest.fixture(scope="module")
def other_server() -> Iterator[EmbeddedMariadb]:
    """Which has far more transactions than the others here, under the same GTIDs."""
    with EmbeddedMariadb() as server:
        yield server


@pytest.fixture
def here(own_mariadb: EmbeddedMariadb) -> Iterator[Schema]:
    """With a table `t`."""
    with fresh_schema(own_mariadb.host, own_mariadb.port, own_mariadb.version, "shop") as schema:
        schema.execute(TABLE)
        yield schema


@pytest.fixture
def there(other_server: EmbeddedMariadb) -> Iterator[Schema]:
    """The same on another server, with more transactions."""
    with fresh_schema(other_server.host, other_server.port, other_server.version, "shop") as schema:
        schema.execute(TABLE, *(f"INSERT INTO t VALUES ({number}, 'there')" for number in range(100, 150)))
        yield schema


class TcpProxyElsewhere(TcpProxy):
    """Its first connection leads to one server, and all later ones to another."""

    def __init__(self, first: int, later: int) -> None:
        self._ports = [first]
        self._later = later
        super().__init__(later)

    @property
    def target(self) -> int:
        return self._ports.pop() if self._ports else self._later

    @target.setter
    def target(self, port: int) -> None:
        self._later = port


def source_through(proxy: TcpProxy, schema: Schema, **options: object) -> MysqlSource:
    return source_of(schema, dsn=f"mysql://root@127.0.0.1:{proxy.port}/", startRetryInterval="100ms", **options)


def read_rows(source: MysqlSource, count: int) -> list[Batch]:
    return read_until(source, lambda batches: sum(map(len, batches)) >= count)


@pytest.mark.behaviour("B4")
def test_a_stream_comes_from_the_server_whose_position_was_looked_at(here: Schema, there: Schema) -> None:
    with TcpProxyElsewhere(here.port, there.port) as proxy:
        source = source_through(proxy, here)
        try:
            source.start(None)
            here.execute("INSERT INTO t VALUES (1, 'here')")
            there.execute("INSERT INTO t VALUES (2, 'there')")
            assert [(change.after or {})["v"] for change in seen(read_rows(source, 1))] == ["here"]
        finally:
            source.stop()


@pytest.mark.behaviour("B4")
def test_a_position_is_held_against_the_log_of_one_server(here: Schema, there: Schema) -> None:
    with streaming(here) as source:
        here.execute("INSERT INTO t VALUES (1, 'here')")
        position = read_all(source, here)[-1].position
    with TcpProxyElsewhere(here.port, there.port) as proxy:
        source = source_through(proxy, here)
        with pytest.raises(SourceUnavailable, match="leads to another server than the one"):
            source.start(position)  # when the file of the position was begun is asked over a connection of its own
        proxy.target = here.port
        with started(source, position):
            here.execute("INSERT INTO t VALUES (2, 'here')")
            assert len(seen(read_rows(source, 1))) == 1


@pytest.mark.behaviour("N16")
def test_status_says_that_the_address_leads_elsewhere_while_the_stream_goes_on(
    here: Schema, there: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.mysql.server_watch._SERVER_LOOK_SECONDS", 0.05)
    monkeypatch.setattr("sources.mysql.server_watch.WATCH_SESSION_SECONDS", 0.1)
    with TcpProxy(here.port) as proxy, started(source_through(proxy, here)) as source:
        here.execute("INSERT INTO t VALUES (1, 'here')")
        source.confirm(read_rows(source, 1)[-1].position)
        wait_for(lambda: "lag_bytes" in source.stats(), "the lag")
        proxy.target = there.port
        wait_for(lambda: not source.status().ok, "the status to tell")
        assert "does not have this stream" in source.status().reason
        assert "lag_bytes" not in source.stats()
        proxy.target = here.port
        wait_for(lambda: source.status().ok and "lag_bytes" in source.stats(), "the status to be well")


@pytest.mark.behaviour("N16")
def test_what_is_gone_from_another_server_is_not_taken_for_dropped(here: Schema, there: Schema) -> None:
    with TcpProxy(here.port) as proxy, started(source_through(proxy, here)) as source:
        proxy.target = there.port
        with pytest.raises(SourceUnavailable, match="leads to another server than the one"):
            source.find_dropped([])
        with pytest.raises(SourceUnavailable, match="leads to another server than the one"):
            source.review_snapshot(SnapshotRequest("again"))


@pytest.mark.behaviour("N16")
def test_a_connection_that_is_made_anew_behind_a_cut_answer_does_not_end_a_chunk_at_another_server(
    here: Schema, there: Schema
) -> None:
    here.execute("INSERT INTO t VALUES (1, REPEAT('v', 900)), (2, REPEAT('v', 900)), (3, '')")
    with TcpProxy(here.port) as proxy:
        connector = Connector(parse_dsn(f"mysql://root@127.0.0.1:{proxy.port}/"), 2.0, "test")
        with open_session(connector) as of_stream, closing(connect_reader(connector, of_stream)) as reading:
            table = describe_table(reading.asking, "shop.t")
            assert table is not None
            nothing = Latest(find_end_position(of_stream).position, LogPlace(0, 0), inside=False)
            assert reading.begin(table, nothing)
            proxy.target = there.port
            with pytest.raises(SourceUnavailable, match="leads to another server than the one"):
                reading.read_behind(table, None, "", rows=3, size=1000)


def connect_reader(connector: Connector, of_stream: Session) -> ReadingSession:
    return ReadingSession(connector, find_client(of_stream), 2.0, 10.0)


@pytest.mark.soak
@pytest.mark.behaviour("N16")
def test_no_row_of_a_snapshot_comes_from_a_copy_of_a_mysql_server(tmp_path: Path) -> None:
    with EmbeddedMysql() as server, EmbeddedMysql() as copy:
        copy.stop()
        shutil.copyfile(server.data_dir / "auto.cnf", copy.data_dir / "auto.cnf")  # which has server_uuid
        copy.start()
        here, there = (new_schema(one.host, one.port, one.version, "shop") for one in (server, copy))
        for schema in (here, there):
            schema.execute(TABLE, "INSERT INTO t VALUES (1, '')")
        there.execute("UPDATE t SET v = 'there'", *(f"INSERT INTO t VALUES ({id_}, '')" for id_ in range(2, 9)))
        with TcpProxy(server.port) as proxy:
            consumer = Consumer(source_through(proxy, here))
            try:
                proxy.target = copy.port
                here.execute("UPDATE t SET v = 'here'")
                consumer.source.set_snapshots([SnapshotRequest("again")])

                def is_told() -> bool:
                    here.execute("ALTER TABLE t COMMENT = 'so that the binary log goes on'")
                    return "leads to another server than the one" in consumer.source.status().reason

                consumer.until(lambda: consumer.reads() or is_told(), "the status to tell")
                assert consumer.reads() == []
                proxy.target = server.port
                consumer.until(lambda: consumer.snapshots[0].state is SnapshotState.DONE, "the snapshot to end")
                assert [row["v"] for row in consumer.reads()] == [b"here"]
            finally:
                consumer.source.stop()
