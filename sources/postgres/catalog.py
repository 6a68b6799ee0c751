"""What a source asks the server over an ordinary connection: settings, publications, slots."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from typing import Any

import psycopg2
import psycopg2.errors
import psycopg2.extensions

from psql_streamer.bounded import Call
from psql_streamer.errors import PositionRefused, SourceRefused, SourceUnavailable
from psql_streamer.lsn import NO_LSN, Lsn
from psql_streamer.nearest import suggest_nearest
from sources.postgres.deadlines import Deadlines
from sources.postgres.dsn import build_session_dsn
from sources.postgres.identifiers import quote_identifier
from sources.postgres.libpq import CancelRequest
from sources.postgres.server_errors import SlotInUse, from_psycopg2
from sources.postgres.session_settings import lift_transaction_timeout
from sources.snapshot.gap_remedies import accept_gap

ANSWER_SECONDS = 60.0
"""Seconds that the answer to a question may take."""

_LOOKUP_SECONDS = 10.0

_DEADLINES = Deadlines()

_PINNED = {"statement_timeout": "0", "lock_timeout": "0", "idle_session_timeout": "0"}
"""Questions have a deadline of their own; limits that were made for others' queries must not end them."""

_CREATE_SLOT = "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
_CREATE_FAILOVER_SLOT = (
    "SELECT lsn::text FROM pg_create_logical_replication_slot("
    "%s, 'pgoutput', temporary => false, twophase => false, failover => true)"
)

_WAL_END = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END)::text
"""
_TIMELINE = """
SELECT CASE WHEN NOT pg_is_in_recovery()
    THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
END
"""
_REPLAYED_TIMELINE = "SELECT timeline_id FROM pg_control_checkpoint()"

_FAILOVER_SLOTS = 170000
"""The version that brought slots which standbys keep."""

_STANDBY_DECODING = 160000
"""The version that brought logical decoding on standbys."""

_STATUS_INTERVAL_SECONDS = 10.0
"""Between standby status updates; PostgreSQL's own receivers use wal_receiver_status_interval, 10 s."""


_WAL_REMOVED = "the server removed WAL that it needs (max_slot_wal_keep_size)"
_ROWS_REMOVED = (
    "the standby removed rows of its catalog that it needs (to keep them, set hot_standby_feedback = on and "
    "primary_slot_name there)"
)
_LEVEL_LOWERED = "wal_level was below logical on the primary of this standby"
_WHY_LOST = {
    "": _WAL_REMOVED,
    "wal_removed": _WAL_REMOVED,
    "rows_removed": _ROWS_REMOVED,
    "wal_level_insufficient": _LEVEL_LOWERED,
    "idle_timeout": "nobody read from it for as long as idle_replication_slot_timeout",
    "conflicting": f"{_ROWS_REMOVED}, or {_LEVEL_LOWERED}",  # all that version 16 says
}
"""Why a server has invalidated a slot, by invalidation_reason of pg_replication_slots."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A row of pg_replication_slots. failover: standbys keep it, too. synced: this standby does. invalidation_reason:
    since version 17; empty before.
    """

    name: str
    plugin: str
    database: str
    active_pid: int | None
    confirmed_flush_lsn: Lsn
    wal_status: str
    two_phase: bool = False
    failover: bool = False
    synced: bool = False
    invalidation_reason: str = ""

    @classmethod
    def make_created(cls, name: str, database: str, begins: Lsn, *, failover: bool = False) -> Slot:
        """One of pgoutput that was created just now."""
        return cls(name, "pgoutput", database, None, begins, "reserved", failover=failover)

    @property
    def is_lost(self) -> bool:
        """Whether the server has invalidated it."""
        return self.wal_status == "lost"

    @property
    def why_lost(self) -> str:
        """Of one that is."""
        return _WHY_LOST.get(self.invalidation_reason, self.invalidation_reason)

    def require_usable(self, database: str, source: str) -> None:
        """SourceError when this database's pgoutput stream cannot be read from the slot. source: for messages."""
        self.require_own(database)
        if self.is_lost:
            raise PositionRefused(
                f'slot "{self.name}" was invalidated: {self.why_lost}',
                accept_gap(source),
            )
        self.require_free()

    def require_own(self, database: str) -> None:
        """SourceRefused for a slot of another kind than the source makes, or of another database."""
        if not self.plugin:
            raise SourceRefused(
                f'slot "{self.name}" is a physical slot',
                "set replicationSlot to another name: a logical slot is then created",
            )
        if self.plugin != "pgoutput":
            raise SourceRefused(
                f'slot "{self.name}" was created for the output plugin "{self.plugin}"',
                f"set replicationSlot to another name, or drop it: SELECT pg_drop_replication_slot('{self.name}')",
            )
        if self.database != database:
            raise SourceRefused(
                f'slot "{self.name}" belongs to the database "{self.database}", not to "{database}"',
                "set replicationSlot to another name",
            )
        if self.two_phase:
            raise SourceRefused(
                f'slot "{self.name}" was created with two_phase: it sends prepared transactions, which are not read',
                "set replicationSlot to another name, or create the slot again without two_phase",
            )

    def require_free(self) -> None:
        """SlotInUse when somebody reads from it."""
        if self.active_pid is not None:
            raise SlotInUse(
                f'slot "{self.name}" is active for PID {self.active_pid}',
                "stop the other consumer, or set replicationSlot to another name",
            )


class Catalog:
    """Connects to a source's database for questions, of which none waits for ever.

    timeout: seconds for a connection to be made to one address. `interrupt`, from any thread, makes whatever waits
    raise SourceUnavailable, for good.
    """

    def __init__(self, dsn: str, timeout: float) -> None:
        self._dsn = dsn
        self._timeout = timeout
        self._interrupted = threading.Event()
        self._sessions: set[Session] = set()
        self._lock = threading.Lock()

    @contextmanager
    def open_session(
        self, answer_timeout: float | None = ANSWER_SECONDS, outlives_interrupt: bool = False
    ) -> Iterator[Session]:
        """A connection for the length of a `with`; its errors are SourceErrors.

        answer_timeout: seconds that an answer may take; then the connection is given up. None: no limit.
        outlives_interrupt: `interrupt` leaves it alone, and who uses it looks at `interrupted`.
        """
        session = Session(self._connect(), answer_timeout)
        if not outlives_interrupt:
            with self._lock:
                self._sessions.add(session)
            if self._interrupted.is_set():
                session.abort()
        try:
            yield session
        except psycopg2.Error as error:
            raise session.find_abort_error() or from_psycopg2(error, self._dsn) from None
        finally:
            with self._lock:
                self._sessions.discard(session)
            session.close()

    @property
    def interrupted(self) -> threading.Event:
        """Set by `interrupt`."""
        return self._interrupted

    def interrupt(self) -> None:
        """Give up every connection that is there or being made."""
        self._interrupted.set()
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.abort()

    @cached_property
    def database(self) -> str:
        """The database's name, as the server knows it."""
        given = psycopg2.extensions.parse_dsn(self._dsn).get("dbname")
        if given:
            return str(given)
        with self.open_session() as session:
            return session.database

    def _connect(self) -> psycopg2.extensions.connection:
        dsn = build_session_dsn(self._dsn, self._timeout, _PINNED)
        call = Call(lambda: psycopg2.connect(dsn), "connect")
        # libpq takes its time for each address of each host; who waits longer than that waits for a name server.
        hosts = 1 + dsn.count(",")
        if not call.wait(_LOOKUP_SECONDS + 2 * hosts * max(2.0, self._timeout), self._interrupted):
            call.abandon(lambda connection: connection.close())
            raise SourceUnavailable("the server was not reached in time", "check host and port in the dsn")
        try:
            connection = call.require_result()
            connection.autocommit = True
            lift_transaction_timeout(connection)
        except psycopg2.Error as error:
            raise from_psycopg2(error, self._dsn) from None
        return connection


class Session:
    """Questions over one connection. answer_timeout: see Catalog.open_session."""

    def __init__(self, connection: psycopg2.extensions.connection, answer_timeout: float | None) -> None:
        self._connection = connection
        self._answer_timeout = answer_timeout
        self._given_up = ""
        self._prepared: dict[str, str] = {}  # the names of queries
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))

    @property
    def backend_pid(self) -> int:
        """The process ID of its server process."""
        return int(self._connection.info.backend_pid)

    def abort(self, why: str = "the server did not answer in time") -> None:
        """Give the connection up, from any thread: a query that waits for its answer fails."""
        self._given_up = self._given_up or why
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def cancel_request(self) -> CancelRequest:
        """What asks the server to end the query that runs."""
        return CancelRequest(self._connection)

    def find_abort_error(self) -> SourceUnavailable | None:
        """The error of a query that failed because the connection was given up."""
        return SourceUnavailable(self._given_up) if self._given_up else None

    def close(self) -> None:
        """End the session."""
        self._socket.close()
        self._connection.close()

    @cached_property
    def database(self) -> str:
        """current_database()."""
        return str(self.read_value("SELECT current_database()"))

    @cached_property
    def system_identifier(self) -> str:
        """The cluster's, as IDENTIFY_SYSTEM gives it; empty where this role may not see it."""
        try:
            return str(self.read_value("SELECT system_identifier FROM pg_control_system()"))
        except psycopg2.errors.InsufficientPrivilege:
            return ""

    def read_value(self, query: str, *parameters: Any) -> Any:
        """The first column of the first row; None when there is no row."""
        rows = self.read_rows(query, *parameters)
        return rows[0][0] if rows else None

    def read_rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """All rows."""
        with self._keep_deadline(), self._connection.cursor() as cursor:
            cursor.execute(query, parameters or None)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def read_prepared_rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """The same, of a query that the server plans once for the session, as it is asked often. Its parameters have
        casts.
        """
        if (name := self._prepared.get(query)) is None:
            name = f"q{len(self._prepared)}"
            with self._keep_deadline(), self._connection.cursor() as cursor:
                cursor.execute(f"PREPARE {name} AS {_number_parameters(query)}")
            self._prepared[query] = name
        return self.read_rows(f"EXECUTE {name} ({', '.join(['%s'] * len(parameters))})", *parameters)

    def _keep_deadline(self) -> AbstractContextManager[None]:
        """The connection is given up when what stands inside takes too long."""
        if self._answer_timeout is None:
            return nullcontext()
        why = f"the server did not answer a query within {self._answer_timeout:g} s"
        return _DEADLINES.keep(self._answer_timeout, partial(self.abort, why))

    @property
    def server_version(self) -> int:
        """server_version_num."""
        return int(self._connection.server_version)

    def read_setting(self, name: str) -> str:
        """A server setting, as SHOW gives it."""
        return str(self.read_value("SELECT current_setting(%s)", name))

    def require_logical_wal(self) -> None:
        """SourceRefused unless the server writes what logical decoding needs."""
        level = self.read_setting("wal_level")
        if level != "logical":
            raise SourceRefused(
                f'the server\'s wal_level is "{level}"',
                "set wal_level = logical (ALTER SYSTEM SET wal_level = 'logical') and restart the server",
            )

    def require_publications(self, names: Sequence[str]) -> None:
        """SourceRefused when a publication does not exist in this database."""
        existing = self.list_publications()
        missing = sorted(set(names) - existing)
        if missing:
            nearest = suggest_nearest(missing[0], sorted(existing))
            create = f"create it: CREATE PUBLICATION {quote_identifier(missing[0])} FOR ALL TABLES"
            raise SourceRefused(
                f'publication "{missing[0]}" does not exist in the database "{self.database}"{nearest}',
                f"correct the name, or {create}" if existing else create,
            )

    def list_publications(self) -> set[str]:
        """Names of this database's publications."""
        return {name for (name,) in self.read_rows("SELECT pubname FROM pg_publication")}

    def find_existing_tables(self, oids: Sequence[int]) -> set[int]:
        """Those of these OIDs that are tables of this database."""
        query = "SELECT oid FROM pg_class WHERE oid = ANY (%s::bigint[]::oid[])"
        return {oid for (oid,) in self.read_rows(query, list(oids))}

    def find_slot(self, name: str) -> Slot | None:
        """The slot, or None."""
        rows = self.read_rows(
            "SELECT slot_name, plugin, database, active_pid, coalesce(confirmed_flush_lsn, '0/0')::text, wal_status, "
            "two_phase, coalesce((to_jsonb(s) ->> 'failover')::bool, false), "
            "coalesce((to_jsonb(s) ->> 'synced')::bool, false), coalesce(to_jsonb(s) ->> 'invalidation_reason', "
            "CASE WHEN (to_jsonb(s) ->> 'conflicting')::bool THEN 'conflicting' ELSE '' END) "
            "FROM pg_replication_slots s WHERE slot_name = %s",
            name,
        )
        if not rows:
            return None
        slot_name, plugin, database, active_pid, confirmed, wal_status, *kinds, invalidated = rows[0]
        lsn = Lsn.parse(confirmed)
        two_phase, failover, synced = map(bool, kinds)
        return Slot(
            *(slot_name, plugin or "", database or "", active_pid, lsn, wal_status or ""),
            *(two_phase, failover, synced, invalidated),
        )

    def peek(self, slot: str, publications: Sequence[str], seconds: int) -> str:
        """What decoding of the slot's next change ends with, as the server says it; empty when it does not fail.

        Nothing is consumed. Nothing is known, and nothing said, when the server needs longer than this.
        """
        names = ",".join(quote_identifier(name) for name in publications)
        self.read_rows("SELECT set_config('statement_timeout', %s, false)", f"{seconds}s")
        try:
            self.read_rows(
                "SELECT count(*) FROM pg_logical_slot_peek_binary_changes("
                "%s, NULL, 1, 'proto_version', '1', 'publication_names', %s)",
                *(slot, names),
            )
        except psycopg2.errors.UndefinedObject as error:
            return error.diag.message_primary or "a publication does not exist"
        except psycopg2.errors.QueryCanceled:
            return ""
        finally:
            self.read_rows("SELECT set_config('statement_timeout', '0', false)")
        # Since version 18 the server only warns of a publication that is not there.
        return " ".join(self._connection.notices[-1:]).partition("WARNING:")[2].strip()

    def create_slot(self, name: str, *, failover: bool) -> Lsn:
        """Create a pgoutput slot, and say where it begins. failover: see require_failover_slots.

        It waits for running transactions to end: what they wrote comes whole or not.
        """
        return Lsn.parse(self.read_value(_CREATE_FAILOVER_SLOT if failover else _CREATE_SLOT, name))

    def drop_slot(self, name: str) -> None:
        """Drop a slot that nobody reads from."""
        self.read_rows("SELECT pg_drop_replication_slot(%s)", name)

    def is_standby(self) -> bool:
        """Whether the server is in recovery now."""
        return bool(self.read_value("SELECT pg_is_in_recovery()"))

    @property
    def decodes_on_standbys(self) -> bool:
        """Whether a standby of this version lets a slot be read from."""
        return self.server_version >= _STANDBY_DECODING

    def require_failover_slots(self) -> None:
        """SourceRefused on a server that cannot keep a slot on standbys."""
        if self.server_version < _FAILOVER_SLOTS:
            raise SourceRefused(
                f"slotFailover needs PostgreSQL 17 or later, and the server is {self.read_setting('server_version')}",
                "remove slotFailover, and keep the slot on standbys by other means (Patroni's permanent slots, say)",
            )

    def read_wal_end(self) -> Lsn:
        """The end of the WAL that the server has written (or, on a standby, replayed)."""
        return Lsn.parse(self.read_value(_WAL_END) or str(NO_LSN))

    def read_timeline(self) -> int:
        """The timeline of the WAL that the server writes, or on a standby, of what was replayed up to its last
        restartpoint; 0 where this role may not see it.
        """
        try:
            return int(self.read_value(_TIMELINE) or self.read_value(_REPLAYED_TIMELINE))
        except psycopg2.errors.InsufficientPrivilege:
            return 0

    def compute_status_interval(self) -> float:
        """Seconds between standby status updates: well inside of wal_sender_timeout."""
        milliseconds = int(self.read_value("SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'"))
        return min(_STATUS_INTERVAL_SECONDS, milliseconds / 4000) if milliseconds else _STATUS_INTERVAL_SECONDS


def _number_parameters(query: str) -> str:
    """A query for psycopg2 as one for the server: `$1` for the first `%s`."""
    numbers = count(1)
    return re.sub("%[%s]", lambda found: "%" if found[0] == "%%" else f"${next(numbers)}", query)
