"""What a source asks the server over an ordinary connection: settings, publications, slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg2
import psycopg2.extensions

from psql_streamer.errors import PositionRefused, SourceRefused
from psql_streamer.model import NO_LSN, Lsn
from sources.server_errors import SlotInUse, from_psycopg2

_STATUS_INTERVAL = 10.0
"""Seconds between standby status updates; PostgreSQL's own receivers use wal_receiver_status_interval, 10 s."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A row of pg_replication_slots."""

    name: str
    plugin: str
    database: str
    active_pid: int | None
    confirmed_flush_lsn: Lsn
    wal_status: str

    def require_usable(self, database: str) -> None:
        """SourceError when this database's pgoutput stream cannot be read from the slot."""
        if self.plugin != "pgoutput":
            raise SourceRefused(
                f'slot "{self.name}" was made for the output plugin "{self.plugin}"',
                f"set replicationSlot to another name, or drop it: SELECT pg_drop_replication_slot('{self.name}')",
            )
        if self.database != database:
            raise SourceRefused(
                f'slot "{self.name}" belongs to the database "{self.database}", not to "{database}"',
                "set replicationSlot to another name",
            )
        if self.wal_status == "lost":
            raise PositionRefused(
                f'slot "{self.name}" was invalidated: the server removed WAL that it needs (max_slot_wal_keep_size)',
                "take a new copy of the tables, drop the slot, and forget the position to start a new one",
            )
        if self.active_pid is not None:
            raise SlotInUse(
                f'slot "{self.name}" is active for PID {self.active_pid}',
                "stop the other consumer, or set replicationSlot to another name",
            )


class Catalog:
    """Connects to a source's database for questions. timeout: seconds for a connection to be made."""

    def __init__(self, dsn: str, timeout: float) -> None:
        self._dsn = dsn
        self._timeout = timeout

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A connection for the length of a `with`; its errors are SourceErrors."""
        try:
            connection = psycopg2.connect(
                psycopg2.extensions.make_dsn(
                    self._dsn, connect_timeout=max(2, round(self._timeout)), client_encoding="UTF8"
                )
            )
            connection.autocommit = True
        except psycopg2.Error as error:
            raise from_psycopg2(error, self._dsn) from None
        try:
            yield Session(connection)
        except psycopg2.Error as error:
            raise from_psycopg2(error, self._dsn) from None
        finally:
            connection.close()

    @cached_property
    def database(self) -> str:
        """The database's name, as the server knows it."""
        given = psycopg2.extensions.parse_dsn(self._dsn).get("dbname")
        if given:
            return str(given)
        with self.session() as session:
            return session.database


class Session:
    """Questions over one connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @cached_property
    def database(self) -> str:
        """current_database()."""
        return str(self.value("SELECT current_database()"))

    def value(self, query: str, *parameters: Any) -> Any:
        """The first column of the first row; None when there is no row."""
        rows = self.rows(query, *parameters)
        return rows[0][0] if rows else None

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """All rows."""
        with self._connection.cursor() as cursor:
            cursor.execute(query, parameters or None)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def setting(self, name: str) -> str:
        """A server setting, as SHOW gives it."""
        return str(self.value("SELECT current_setting(%s)", name))

    def require_logical_wal(self) -> None:
        """SourceRefused unless the server writes what logical decoding needs."""
        level = self.setting("wal_level")
        if level != "logical":
            raise SourceRefused(
                f'the server\'s wal_level is "{level}"',
                "set wal_level = logical (ALTER SYSTEM SET wal_level = 'logical') and restart the server",
            )

    def require_publications(self, names: Sequence[str]) -> None:
        """SourceRefused when a publication does not exist in this database."""
        missing = sorted(set(names) - self.publications())
        if missing:
            raise SourceRefused(
                f'publication "{missing[0]}" does not exist in the database "{self.database}"',
                f'create it: CREATE PUBLICATION "{missing[0]}" FOR ALL TABLES',
            )

    def publications(self) -> set[str]:
        """Names of this database's publications."""
        return {name for (name,) in self.rows("SELECT pubname FROM pg_publication")}

    def slot(self, name: str) -> Slot | None:
        """The slot, or None."""
        rows = self.rows(
            "SELECT slot_name, plugin, database, active_pid, coalesce(confirmed_flush_lsn, '0/0')::text, wal_status "
            "FROM pg_replication_slots WHERE slot_name = %s",
            name,
        )
        if not rows:
            return None
        slot_name, plugin, database, active_pid, confirmed, wal_status = rows[0]
        return Slot(slot_name, plugin or "", database or "", active_pid, Lsn.parse(confirmed), wal_status or "")

    def create_slot(self, name: str) -> Slot:
        """Create a pgoutput slot. It waits for running transactions to end: what they wrote comes whole or not."""
        self.rows("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", name)
        slot = self.slot(name)
        if slot is None:
            raise SourceRefused(f'slot "{name}" was dropped right after it was made', "find out who drops it")
        return slot

    def wal_end(self) -> Lsn:
        """The end of the WAL that the server has written (or, on a standby, replayed)."""
        standby = self.value("SELECT pg_is_in_recovery()")
        function = "pg_last_wal_replay_lsn" if standby else "pg_current_wal_insert_lsn"
        return Lsn.parse(self.value(f"SELECT {function}()::text") or str(NO_LSN))

    def status_interval(self) -> float:
        """Seconds between standby status updates: well inside of wal_sender_timeout."""
        milliseconds = int(self.value("SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'"))
        return min(_STATUS_INTERVAL, milliseconds / 4000) if milliseconds else _STATUS_INTERVAL
