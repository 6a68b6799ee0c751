"""A stop while a slot is being made leaves none: it would keep WAL for nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg2
import pytest
from psycopg2.extensions import parse_dsn

from psql_streamer.errors import SourceError, SourceUnavailable
from sources.postgres.catalog import Catalog, Session
from sources.postgres.options import PostgresOptions
from sources.postgres.replication import connect
from sources.postgres.server_types import ServerTypes
from sources.postgres.slot_creation import create_slot, wait_for_slot
from sources.postgres.snapshot.keyless import KeylessTables
from sources.postgres.snapshot.tables import describe_shape, list_snapshot_tables
from tests.database import Database
from tests.source_at_work import wait_for
from tests.tcp_proxy import TcpProxy

_ENOUGH_SECONDS = 20.0


class _Making:
    """A slot that waits for a transaction, in a thread of its own. keyless: with the snapshot of tables without key."""

    def __init__(self, database: Database, dsn: str, keyless: bool) -> None:
        self.slot = f"made_{database.name}"
        self.catalog = Catalog(dsn, 5)
        self.failure: SourceError | None = None
        self._options = PostgresOptions(type="postgres", dsn=dsn, publication="p", replicationSlot=self.slot)
        self._keyless = keyless
        self._waits = threading.Event()
        self._thread = threading.Thread(target=self._make, daemon=True)

    def start(self) -> None:
        """Return when it waits."""
        self._thread.start()
        assert self._waits.wait(_ENOUGH_SECONDS), self.failure

    def end(self) -> None:
        """Return when it has failed."""
        self._thread.join(_ENOUGH_SECONDS)
        assert not self._thread.is_alive()
        assert isinstance(self.failure, SourceUnavailable), self.failure
        assert f'slot "{self.slot}" waits for the transaction of PID' in str(self.failure)

    def _make(self) -> None:
        tables = KeylessTables(
            self.catalog,
            self._options,
            lambda session: list_snapshot_tables(session, ["p"], ServerTypes(self.catalog).resolve),
            lambda session, oid: describe_shape(session, oid, ["p"], ServerTypes(self.catalog).resolve),
        )
        try:
            if self._keyless:
                tables.create_slot(self.slot, "a test", self._tell, failover=False)
            else:
                create_slot(self.catalog, self.slot, self._tell, failover=False)
        except SourceError as error:
            self.failure = error
        finally:
            tables.close()

    def _tell(self, _: str) -> None:
        self._waits.set()


def _wait_until_gone(database: Database, slot: str) -> None:
    gone = "SELECT NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s)"
    wait_for(lambda: database.value(gone, slot), "the slot to be gone")


@pytest.mark.parametrize("keyless", [False, True], ids=["slot alone", "exported snapshot"])
@pytest.mark.parametrize("stop_first", [True, False], ids=["stop first", "transaction first"])
def test_no_slot_is_left_when_a_stop_meets_the_end_of_what_it_waits_for(
    database: Database, keyless: bool, stop_first: bool
) -> None:
    database.execute("CREATE TABLE t (id int); CREATE PUBLICATION p FOR TABLE t")
    making = _Making(database, database.dsn, keyless)
    with database.session() as other:
        other.cursor().execute("INSERT INTO t VALUES (1)")
        making.start()
        ends: list[Callable[[], None]] = [making.catalog.interrupt, other.rollback]
        for end in ends if stop_first else reversed(ends):
            end()
    making.end()
    _wait_until_gone(database, making.slot)


@pytest.mark.parametrize("keyless", [False, True], ids=["slot alone", "exported snapshot"])
def test_a_stop_does_not_wait_for_a_server_that_keeps_silent(
    database: Database, keyless: bool, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("CREATE TABLE t (id int); CREATE PUBLICATION p FOR TABLE t")
    with TcpProxy(int(parse_dsn(database.dsn)["port"])) as proxy, database.session() as other:
        making = _Making(database, proxy.dsn(database.dsn), keyless)
        other.cursor().execute("INSERT INTO t VALUES (1)")
        making.start()
        proxy.freeze()
        began = time.monotonic()
        making.catalog.interrupt()
        making.end()
        assert time.monotonic() - began < 5
        assert f'slot "{making.slot}" may have been created' in caplog.text
        proxy.cut()
        if keyless:  # a server does not look for the client of a replication command that waits for a lock
            ended = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s"
            assert database.value(ended, making.slot)
        _wait_until_gone(database, making.slot)


@pytest.mark.parametrize("replication", [False, True], ids=["slot alone", "exported snapshot"])
def test_no_slot_is_left_by_a_command_that_is_cancelled_when_it_has_made_one(
    database: Database, replication: bool
) -> None:
    slot, made = f"made_{database.name}", threading.Event()
    catalog = Catalog(database.dsn, 5)
    if replication:
        connection = connect(database.dsn, 5, "a test")
    else:
        connection = psycopg2.connect(database.dsn)
        connection.autocommit = True
    maker = Session(connection, None)

    def make() -> None:
        if replication:
            maker.read_rows(f"CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput EXPORT_SNAPSHOT")
        else:
            maker.create_slot(slot, failover=False)
        made.set()
        maker.read_rows("SELECT pg_sleep(60)")

    interrupting = threading.Thread(target=lambda: made.wait(_ENOUGH_SECONDS) and catalog.interrupt())
    interrupting.start()
    with pytest.raises(SourceUnavailable, match="was not created in time"):
        wait_for_slot(catalog, maker, make, slot, lambda _: None)
    interrupting.join()
    maker.close()
    assert made.is_set()
    assert not database.query("SELECT FROM pg_replication_slots WHERE slot_name = %s", slot)


def test_a_slot_that_somebody_else_made_is_left(database: Database) -> None:
    slot, failed = f"made_{database.name}", threading.Event()
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", slot)
    catalog = Catalog(database.dsn, 5)

    def make() -> None:
        try:
            maker.create_slot(slot, failover=False)
        finally:
            catalog.interrupt()
            failed.set()

    with (
        catalog.open_session(answer_timeout=None, outlives_interrupt=True) as maker,
        pytest.raises(SourceUnavailable),
    ):
        wait_for_slot(catalog, maker, make, slot, lambda _: None)
    assert failed.is_set()
    assert database.query("SELECT FROM pg_replication_slots WHERE slot_name = %s", slot)
