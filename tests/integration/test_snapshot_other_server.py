"""Chunks come from the server that the stream comes from, wherever its address leads meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.errors import SourceUnavailable
from psql_streamer.model import Position
from psql_streamer.snapshots import SnapshotRequest, SnapshotState
from sources.postgres.source import PostgresSource
from tests.snapshot_fold import Fold
from tests.source_at_work import source_of, wait_for
from tests.standby import copy_of, database_of, promote, standby_of, wait_until_it_follows
from tests.started_source import started
from tests.tcp_proxy import TcpProxy

pytestmark = pytest.mark.behaviour("N16")

_SCHEMA = "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES (1, '')"


@contextmanager
def promoted(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A standby that was promoted while its primary lives on."""
    with standby_of(server) as standby:
        wait_until_it_follows(standby, server)
        promote(standby)
        yield standby


@pytest.mark.parametrize("another", [copy_of, promoted])
def test_n16_no_row_comes_from_another_server_to_which_the_address_leads(
    own_postgres: EmbeddedPostgres, another: Callable[[EmbeddedPostgres], AbstractContextManager[EmbeddedPostgres]]
) -> None:
    database = database_of(own_postgres)
    database.execute(_SCHEMA)
    with another(own_postgres) as other, TcpProxy(own_postgres.port) as proxy:
        for _ in range(5):
            database_of(other).execute("UPDATE t SET v = 'of the other server'")
        source = source_of(database, dsn=proxy.dsn(database.dsn), startRetryInterval="100ms")
        with started(source):
            fold = Fold()
            database.execute("UPDATE t SET v = 'of this server'")
            position = read_until(source, fold, lambda: bool(fold.touched))
            proxy.target = other.port
            source.set_snapshots([SnapshotRequest("again")])

            def is_told() -> bool:
                database.execute("SELECT pg_logical_emit_message(true, 'so that WAL goes on', '')")
                return bool(fold.reads) or "leads to another server than the one" in source.status().reason

            try:
                read_until(source, fold, is_told)
            except SourceUnavailable as error:  # the stream may find it out before a chunk does, and is begun anew
                if another is copy_of or "the dsn leads to a primary on timeline" not in str(error):
                    raise
                proxy.target = own_postgres.port
                source.stop()
                source.start(position)
            assert not fold.reads
            proxy.target = own_postgres.port
            read_until(source, fold, lambda: source.list_snapshots()[0].state is SnapshotState.DONE)
    assert fold.reads == 1
    assert fold.tables["public.t"] == {(b"1",): {"id": b"1", "v": b"of this server"}}


def read_until(source: PostgresSource, fold: Fold, condition: Callable[[], bool]) -> Position | None:
    """The position of what was read last."""
    positions: list[Position] = []

    def is_so() -> bool:
        if (batch := source.read(0.1)) is not None:
            fold.add(batch)
            source.confirm(batch.position)
            positions.append(batch.position)
        return condition()

    wait_for(is_so, "what is read", timeout=20)
    return positions[-1] if positions else None
