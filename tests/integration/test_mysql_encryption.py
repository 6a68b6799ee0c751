"""A binary log that lies encrypted on the server's disk: the server decrypts what it sends."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from psql_streamer.embedded.mariadb import EmbeddedMariadb
from sources.mysql.positions import make_override_position
from tests.mariadb import Schema, fresh_schema
from tests.mysql_source import identities, read_all, seen, streaming

NOTE = "a note that is not to be found on the disk"


@pytest.fixture
def encrypting() -> Iterator[EmbeddedMariadb]:
    """A server that encrypts its binary log, and compresses it besides."""
    server = EmbeddedMariadb()
    # Beside the server's log, where its account may read it.
    keys = server.log_file.with_name("keys")
    keys.write_text(f"1;{secrets.token_hex(32)}\n")
    server.settings |= {
        "plugin_load_add": "file_key_management",
        "file_key_management_filename": str(keys),
        "encrypt_binlog": "ON",
    }
    with server:
        yield server


def binary_logs(server: EmbeddedMariadb) -> list[bytes]:
    """What is on the disk."""
    return [file.read_bytes() for file in sorted(Path(server.data_dir).glob("binlog.0*"))]


@pytest.mark.behaviour("B5")
def test_an_encrypted_binary_log_is_read_from_any_place(encrypting: EmbeddedMariadb) -> None:
    server = encrypting
    with fresh_schema(server.host, server.port, server.version, "s") as schema:
        schema.execute("CREATE TABLE t (id INT PRIMARY KEY, note TEXT)")
        with streaming(schema, batchSize=2) as source:
            write(schema)
            whole = read_all(source, schema)
        notes = [(change.after or {})["note"] for change in seen(whole)]
        assert notes == [NOTE] * 5 + [NOTE * 20] * 2
        everything = identities(whole)
        had = 0
        for batch in whole:
            had += len(batch)
            with streaming(schema, batch.position) as again:
                assert identities(read_all(again, schema)) == everything[had:]
        with streaming(schema, make_override_position("binlog.000001:4")) as again:
            assert notes == [(change.after or {})["note"] for change in seen(read_all(again, schema))]
    assert len(binary_logs(server)) > 1
    assert not any(NOTE.encode() in found for found in binary_logs(server))


def write(schema: Schema) -> None:
    """Transactions over several files."""
    row = f"INSERT INTO t VALUES ({{}}, '{NOTE}')"
    schema.transaction(*(row.format(number) for number in range(4)))
    schema.execute("FLUSH BINARY LOGS", row.format(4), "SET GLOBAL log_bin_compress = 1")
    schema.execute(f"INSERT INTO t VALUES (5, REPEAT('{NOTE}', 20)), (6, REPEAT('{NOTE}', 20))")
