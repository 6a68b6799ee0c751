"""The stream through TLS: the same changes, and the same care for what the server may forget."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg2.extensions import make_dsn

from psql_streamer.embedded.postgres import EmbeddedPostgres, find_server_binaries
from psql_streamer.model import Batch, Position
from psql_streamer.pgoutput.wal_position import WalPosition
from tests.database import Database, fresh_database
from tests.source_at_work import (
    confirmed_flush_lsn,
    identities,
    read_all,
    read_until,
    read_up_to,
    rows,
    streaming,
    wait_for,
)


@pytest.fixture(scope="module")
def tls_server() -> Iterator[EmbeddedPostgres]:
    """A server with ssl = on and a certificate of its own making."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl on PATH to make a certificate with")
    folders = [folder for folder in find_server_binaries().values() if _has_tls(folder)]
    if not folders:
        pytest.skip("no PostgreSQL on this machine was built with OpenSSL")
    server = EmbeddedPostgres(folders[-1])
    certificate, key = server.socket_dir / "server.crt", server.socket_dir / "server.key"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)
    server.own(key)
    server.settings |= {"ssl": "on", "ssl_cert_file": str(certificate), "ssl_key_file": str(key)}
    with server:
        yield server


@pytest.fixture
def encrypted(tls_server: EmbeddedPostgres) -> Iterator[Database]:
    """A fresh database, over TLS."""
    dsn = make_dsn(tls_server.build_dsn(tcp=True), sslmode="require")
    with fresh_database(dsn, f"test_{time.monotonic_ns()}") as database:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE unpublished (id int)")
        database.execute("CREATE PUBLICATION p FOR TABLE t")
        yield database


def _has_tls(folder: Path) -> bool:
    shown = subprocess.run([folder / "pg_config", "--configure"], capture_output=True, text=True, check=False)
    return "openssl" in shown.stdout


def _walsender(database: Database) -> tuple[int, bool]:
    """The walsender's PID, and whether its connection is encrypted."""
    [(pid, encrypted)] = database.query(
        "SELECT pid, ssl FROM pg_stat_replication JOIN pg_stat_ssl USING (pid)"
        " JOIN pg_replication_slots ON active_pid = pid WHERE slot_name = %s",
        f"s_{database.name}",
    )
    return int(pid), bool(encrypted)


def _last(batches: list[Batch]) -> Position:
    return batches[-1].position


def test_tls_gives_the_same_changes_as_the_plain_socket(tls_server: EmbeddedPostgres, encrypted: Database) -> None:
    plain = Database(encrypted.name, make_dsn(tls_server.build_dsn(encrypted.name)), encrypted.version)
    with (
        streaming(encrypted, replicationSlot="s_tls") as over_tls,
        streaming(plain, replicationSlot="s_plain") as over_socket,
    ):
        encrypted.execute("INSERT INTO t SELECT i, repeat('ä', i % 300) FROM generate_series(1, 30000) i")
        encrypted.execute("UPDATE t SET v = NULL, id = -id WHERE id % 3 = 0; DELETE FROM t WHERE id % 5 = 0")
        for i in range(50):
            encrypted.execute("INSERT INTO t VALUES (%s, 'small')", 100_000 + i)
        first, second = read_all(over_tls, encrypted), read_all(over_socket, encrypted)
    assert len(identities(first)) > 46_000
    assert identities(first) == identities(second)
    assert rows(first) == rows(second)


def test_tls_costs_no_wait_per_message(encrypted: Database) -> None:
    with streaming(encrypted) as source:
        encrypted.execute("INSERT INTO t SELECT i, 'v' FROM generate_series(1, 100000) i")
        began = time.monotonic()
        batches = read_all(source, encrypted)
        assert sum(map(len, batches)) == 100_001
        assert time.monotonic() - began < 15, "100,000 naps take thirty seconds"


def test_rows_of_megabytes_pass_tls(encrypted: Database) -> None:
    with streaming(encrypted) as source:
        encrypted.execute("INSERT INTO t SELECT i, repeat(i::text, 5000000) FROM generate_series(1, 4) i")
        found = rows(read_all(source, encrypted))
    assert found == [(b"%d" % i, b"%d" % i * 5_000_000) for i in range(1, 5)]


def test_a_reader_that_waited_for_room_needs_no_news_from_the_server_to_go_on(encrypted: Database) -> None:
    # Neither side says anything for ten seconds.
    with streaming(encrypted, batchBytes="100kB") as source:
        # The mark is in the same transaction, so that nothing comes after it.
        encrypted.execute("""
            INSERT INTO t SELECT i, repeat('x', 1000000) FROM generate_series(1, 40) i;
            SELECT pg_logical_emit_message(true, 'the last', '')
        """)
        began = time.monotonic()
        read_until(source, lambda batch: any(message.prefix == "the last" for message in batch.messages))
    assert time.monotonic() - began < 6


def test_a_quiet_stream_over_tls_outlives_wal_sender_timeout(encrypted: Database) -> None:
    encrypted.execute(f"ALTER DATABASE {encrypted.name} SET wal_sender_timeout = '2s'")
    with streaming(encrypted) as source:
        before = _walsender(encrypted)
        assert before[1], "the connection is encrypted"
        quiet_until = time.monotonic() + 5
        while time.monotonic() < quiet_until:
            source.read(0.1)
        assert _walsender(encrypted) == before
        assert source.status().ok


def test_the_server_is_told_nothing_over_tls_that_was_not_confirmed(encrypted: Database) -> None:
    encrypted.execute(f"ALTER DATABASE {encrypted.name} SET wal_sender_timeout = '2s'")
    with streaming(encrypted) as source:
        start = confirmed_flush_lsn(encrypted)
        encrypted.execute("INSERT INTO t VALUES (1, 'delivered to nobody yet')")
        position = _last(read_all(source, encrypted))
        quiet_until = time.monotonic() + 3  # several keepalives and status updates
        while time.monotonic() < quiet_until:
            source.read(0.1)
            encrypted.execute("INSERT INTO unpublished VALUES (1)")
        assert confirmed_flush_lsn(encrypted) == start
        source.confirm(position)
        wait_for(lambda: confirmed_flush_lsn(encrypted) == WalPosition.from_position(position).lsn, "the confirmation")
        quiet_until = time.monotonic() + 3
        while time.monotonic() < quiet_until:
            source.read(0.1)
            encrypted.execute("INSERT INTO unpublished VALUES (1)")
            assert confirmed_flush_lsn(encrypted) == WalPosition.from_position(position).lsn


def test_an_idle_stream_over_tls_moves_the_slot_on(encrypted: Database) -> None:
    with streaming(encrypted) as source:
        encrypted.execute("INSERT INTO unpublished SELECT generate_series(1, 10000)")
        end = int(encrypted.value("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))
        source.confirm(_last(read_up_to(source, end)))
        wait_for(lambda: confirmed_flush_lsn(encrypted) >= end, "the confirmation")


def test_the_end_of_the_server_is_told_in_its_own_words_over_tls(encrypted: Database) -> None:
    with streaming(encrypted) as source:
        pid, _ = _walsender(encrypted)
        encrypted.value("SELECT pg_terminate_backend(%s)", pid)
        with pytest.raises(Exception, match="terminating connection due to administrator command"):
            read_up_to(source, 1 << 63)
        assert "terminating connection due to administrator command" in source.status().reason
