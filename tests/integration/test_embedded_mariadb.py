"""The MariaDB server of the tests: its binary log, its restarts, and what it says where it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from psql_streamer.embedded import mariadb_binaries
from psql_streamer.embedded.mariadb import EmbeddedMariadb
from psql_streamer.errors import StreamerError
from tests.mariadb import Schema, fresh_schema, new_schema


def test_the_binary_log_is_ready_to_be_streamed(schema: Schema) -> None:
    settings = "SELECT @@log_bin, @@binlog_format, @@binlog_row_image, @@binlog_row_metadata"
    assert schema.query(settings) == [(1, "ROW", "FULL", "FULL")]


def test_what_was_committed_survives_a_crash(own_mariadb: EmbeddedMariadb) -> None:
    server = own_mariadb
    schema = new_schema(server.host, server.port, server.version, "kept")
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    server.restart(kill=True)
    assert schema.query("SELECT id FROM t") == [(1,)]


def test_settings_hold_from_the_next_start_on(own_mariadb: EmbeddedMariadb) -> None:
    own_mariadb.settings["binlog_row_image"] = "MINIMAL"
    own_mariadb.restart()
    with fresh_schema(own_mariadb.host, own_mariadb.port, own_mariadb.version, "s") as schema:
        assert schema.value("SELECT @@binlog_row_image") == "MINIMAL"


def test_a_start_that_fails_shows_the_end_of_the_log() -> None:
    with pytest.raises(StreamerError, match=r"did not start: its log ends with: .*no_such_setting"):
        EmbeddedMariadb(settings={"no_such_setting": "1"}).__enter__()


def test_without_a_server_and_without_apt_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StreamerError, match="no apt-get to fetch one with: install mariadb-server"):
        mariadb_binaries._fetch(tmp_path / "mariadb")
