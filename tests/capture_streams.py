"""Captures what real walsenders send, byte for byte, into tests/data/captured: `python -m tests.capture_streams`.

For every server found it plays each scenario into a database of its own and keeps the COPY BOTH stream that a logical
slot gives of it. It speaks the frontend protocol itself (PostgreSQL documentation, "Message Flow"), because
client libraries hand out messages, not bytes.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import psycopg2
from psycopg2.extensions import connection

from psql_streamer.embedded.postgres import EmbeddedPostgres, find_server_binaries
from psql_streamer.lsn import Lsn
from tests.capture_scenarios import SCENARIOS, Scenario, Step
from tests.pgoutput_wire import split_frames

CAPTURED = Path(__file__).parent / "data" / "captured"

_PROTOCOL_3 = 196608


def capture(server: EmbeddedPostgres, database: str, scenario: Scenario) -> bytes:
    """Play the scenario and return the stream: whole CopyData frames, up to a keepalive past its end."""
    run(server.build_dsn(), f"CREATE DATABASE {database}")
    dsn = server.build_dsn(database)
    run(dsn, scenario.setup)
    run(dsn, "CREATE PUBLICATION everything FOR ALL TABLES")
    run(dsn, f"SELECT pg_create_logical_replication_slot('{database}', 'pgoutput')")
    target = play(dsn, scenario.steps)
    with Walsender(server, database) as walsender:
        return walsender.stream_to(target)


def play(dsn: str, steps: Sequence[Step]) -> Lsn:
    """Run the steps, each in the session that it names; the end of the WAL afterwards."""
    sessions: dict[str, connection] = {}
    try:
        for name, sql in steps:
            if name not in sessions:
                sessions[name] = psycopg2.connect(dsn)
                sessions[name].autocommit = True
            with sessions[name].cursor() as cursor:
                cursor.execute(sql)
        with sessions[name].cursor() as cursor:
            cursor.execute("SELECT pg_current_wal_insert_lsn()::text, pg_switch_wal()")
            (end, _) = cursor.fetchone() or ("0/0", None)
            return Lsn.parse(end)
    finally:
        for session in sessions.values():
            session.close()


def run(dsn: str, sql: str) -> None:
    session = psycopg2.connect(dsn)
    try:
        session.autocommit = True
        with session.cursor() as cursor:
            cursor.execute(sql)
    finally:
        session.close()


class Walsender:
    """A replication session of the slot named as its database, over the socket of a server that trusts everybody."""

    def __init__(self, server: EmbeddedPostgres, database: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect(str(server.socket_dir / f".s.PGSQL.{server.port}"))
        self._input = self._socket.makefile("rb")
        self._slot = database
        self._connect(database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._input.close()
        self._socket.close()

    def stream_to(self, target: Lsn) -> bytes:
        """Every frame up to the keepalive that says that all WAL before `target` is decoded."""
        self._query(
            f"START_REPLICATION SLOT {self._slot} LOGICAL 0/0 "
            "(proto_version '1', publication_names 'everything', messages 'true')"
        )
        self._wait_for(b"W")
        stream = b""
        self._ask_for_a_keepalive()
        while True:
            kind, body = self._receive()
            assert kind == b"d", f"{kind!r} instead of CopyData"
            stream += kind + struct.pack(">I", len(body) + 4) + body
            if body[:1] == b"k":
                if struct.unpack_from(">Q", body, 1)[0] >= target:
                    return stream
                time.sleep(0.1)  # it answers at once, decoded or not
                self._ask_for_a_keepalive()

    def _connect(self, database: str) -> None:
        options = {
            "user": "postgres",
            "database": database,
            "replication": "database",
            "client_encoding": "UTF8",
            "datestyle": "ISO",
            "timezone": "UTC",
        }
        words = b"".join(word.encode() + b"\0" for pair in options.items() for word in pair)
        self._send(b"", struct.pack(">I", _PROTOCOL_3) + words + b"\0")
        self._wait_for(b"Z")

    def _query(self, sql: str) -> None:
        self._send(b"Q", sql.encode() + b"\0")

    def _ask_for_a_keepalive(self) -> None:
        """Standby status update: nothing written, nothing flushed, reply requested."""
        self._send(b"d", b"r" + struct.pack(">QQQqB", 0, 0, 0, 0, 1))

    def _send(self, kind: bytes, body: bytes) -> None:
        self._socket.sendall(kind + struct.pack(">I", len(body) + 4) + body)

    def _receive(self) -> tuple[bytes, bytes]:
        kind = self._input.read(1)
        (length,) = struct.unpack(">I", self._input.read(4))
        return kind, self._input.read(length - 4)

    def _wait_for(self, wanted: bytes) -> None:
        while True:
            kind, body = self._receive()
            assert kind != b"E", body.decode(errors="replace")
            if kind == wanted:
                return


def main() -> None:
    CAPTURED.mkdir(parents=True, exist_ok=True)
    for version, bin_dir in find_server_binaries().items():
        with EmbeddedPostgres(bin_dir) as server:
            for name, scenario in SCENARIOS.items():
                stream = capture(server, name, scenario)
                (CAPTURED / f"pg{version}_{name}.bin").write_bytes(stream)
                print(f"PostgreSQL {version} {name}: {len(split_frames(stream))} frames, {len(stream)} bytes")


if __name__ == "__main__":
    main()
