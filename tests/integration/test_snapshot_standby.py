"""A standby as the server that chunks are read from."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from psql_streamer.embedded.postgres import EmbeddedPostgres, find_server_binaries
from sources.postgres.snapshot import copying
from tests.database import Database
from tests.snapshot_reading import reading, rows_of
from tests.source_at_work import wait_for


@pytest.fixture
def standby(own_postgres: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """Follows own_postgres."""
    binaries = find_server_binaries()
    with closing(EmbeddedPostgres(binaries[max(binaries)])) as server:
        backup = [own_postgres.bin_dir / "pg_basebackup", "-R", "-c", "fast", "--no-sync"]
        subprocess.run(
            [*backup, "-D", server.data_dir, "-d", own_postgres.build_dsn()], check=True, **server._make_popen_options()
        )
        server.start()
        yield server


@pytest.mark.behaviour("N16")
def test_n16_on_a_standby_what_may_be_running_is_not_taken_for_visible(
    own_postgres: EmbeddedPostgres, standby: EmbeddedPostgres
) -> None:
    primary = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    follower = Database("postgres", standby.build_dsn(), standby.version)
    primary.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    with primary.session() as running, running.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1); SELECT pg_current_xact_id()::text::bigint")
        [(open_xid,)] = cursor.fetchall()
        primary.execute("INSERT INTO t VALUES (2)")
        end = primary.value("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
        replayed = "SELECT pg_last_wal_replay_lsn() - '0/0'::pg_lsn"
        wait_for(lambda: follower.value(replayed) >= end, "the standby to follow")
        with reading(follower) as reader:
            table = reader.tables()["t"]
            fence = copying.begin(reader.connection, table, 1)
            chunk = copying.read_chunk(reader.connection, table, None, "", 10, 1000)
            copying.end(reader.connection)
    assert rows_of(chunk) == [("2",)]
    assert not fence.select_visible(np.array([open_xid], np.uint64)).any()
    assert fence.lsn >= end
