"""Snapshots of a server in recovery, which does not know what is in progress on its primary."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.snapshots import SnapshotRequest
from tests.beside import run_beside
from tests.database import Database
from tests.integration.test_snapshot import TABLE
from tests.integration.test_snapshot_races import Consumer, snapshotting
from tests.source_at_work import wait_for


@pytest.fixture
def standby(own_postgres: EmbeddedPostgres) -> Iterator[Database]:
    data = own_postgres.socket_dir / "standby"
    copied: list[str | Path] = [
        own_postgres.bin_dir / "pg_basebackup",
        "-D",
        data,
        "-R",
        "-c",
        "fast",
        "-d",
        own_postgres.build_dsn(),
    ]
    subprocess.run(copied, check=True, **own_postgres._make_popen_options())
    with EmbeddedPostgres(own_postgres.bin_dir, data) as server:
        yield Database("postgres", server.build_dsn(), server.version)


def test_a_writer_from_before_the_publication_is_waited_for_on_a_standby(
    own_postgres: EmbeddedPostgres, standby: Database
) -> None:
    primary = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    primary.execute(TABLE + "CREATE TABLE late (id int PRIMARY KEY)")
    wait_for(lambda: bool(standby.query("SELECT 1 FROM pg_publication")), "the standby")
    consumer = Consumer(snapshotting(standby, mode="never"))
    consumer.source.read_stream_identity()
    with describing_what_runs(primary):  # a slot on a standby waits for that
        consumer.source.start(None)
        try:
            with primary.session() as writer, writer.cursor() as cursor:
                cursor.execute("INSERT INTO late VALUES (1)")
                primary.execute("ALTER PUBLICATION p ADD TABLE late")
                there = "SELECT 1 FROM pg_publication_tables WHERE tablename = 'late'"
                wait_for(lambda: bool(standby.query(there)), "the publication")
                consumer.source.set_snapshots([SnapshotRequest("one", asked_at=1.0)])
                while not consumer.done and not consumer.source.list_snapshots()[0].reason:
                    consumer.read()
                writer.commit()
            consumer.until_done()
            consumer.until_level(primary)
        finally:
            consumer.source.stop()
    consumer.fold.assert_equals(primary, "public.late")


@contextmanager
def describing_what_runs(primary: Database) -> Iterator[None]:
    def describe(stopping: threading.Event) -> None:
        while not stopping.wait(0.1):
            primary.execute("SELECT pg_log_standby_snapshot()")

    with run_beside(describe):
        yield
