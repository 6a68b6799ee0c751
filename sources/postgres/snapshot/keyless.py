"""Tables without a key, as they are where a new slot begins.

Nothing tells a row of such a table from another, so what is read cannot be held against the stream. But a slot that is
made exports the snapshot in which its stream begins: rows that are read in it, and given before anything of the stream,
are what the stream continues. The snapshot lives as long as the session that made the slot does nothing else
(PostgreSQL documentation, "CREATE_REPLICATION_SLOT").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg2

from psql_streamer.lsn import Lsn
from sources.postgres.catalog import Catalog, Session, Slot
from sources.postgres.identifiers import quote_identifier
from sources.postgres.options import PostgresOptions
from sources.postgres.replication import connect
from sources.postgres.server_errors import from_psycopg2
from sources.postgres.slot_creation import wait_for_slot
from sources.postgres.snapshot.copying import connect_reader
from sources.postgres.snapshot.keyless_readers import STATE_LOST, KeylessReaders, StateLost
from sources.postgres.snapshot.tables import SnapshotTable

_KEYLESS_LOCK_SECONDS = 10

FindTables = Callable[[Session], Sequence[SnapshotTable]]
DescribeTable = Callable[[Session, int], SnapshotTable | None]


class KeylessTables:
    """These tables in the state in which the stream of a new slot begins, from `create_slot` until `close`.

    A TRUNCATE, or an ALTER that writes the rows anew, would leave nothing for the snapshot to see (PostgreSQL
    documentation, "MVCC Caveats"): the tables are locked before it is taken, and stay so. Whoever reads them has locks
    of its own from then on, see KeylessReaders.

    tables: as they are in that state, by relation. find: lists them as they are when it is called, without their
    row filters. describe: one of them, with its row filter; None for one that is none of them any more.
    """

    def __init__(self, catalog: Catalog, options: PostgresOptions, find: FindTables, describe: DescribeTable) -> None:
        self.tables: dict[str, SnapshotTable] = {}
        self.snapshot = ""
        self._catalog = catalog
        self._options = options
        self._find = find
        self._describe = describe
        self._locker: Session | None = None
        self._maker: Session | None = None
        self._readers: KeylessReaders | None = None

    def create_slot(self, name: str, application_name: str, on_wait: Callable[[str], None], *, failover: bool) -> Slot:
        """Lock the tables, make the slot, and hold its snapshot. on_wait, failover: as slot_creation.create_slot."""
        dsn, timeout = self._options.connection_string, self._options.timeout
        database = self._catalog.database
        try:
            self._lock(connect_reader(dsn, timeout))
            self._readers = readers = self._make_readers()
            readers.open(min(self._options.snapshot.parallel, len(self.tables)))
            maker = self._maker = Session(connect(dsn, timeout, application_name), None)
            maker.read_rows("SELECT set_config('idle_in_transaction_session_timeout', '0', false)")
            how = "(SNAPSHOT 'export', FAILOVER true)" if failover else "EXPORT_SNAPSHOT"
            command = f"CREATE_REPLICATION_SLOT {quote_identifier(name)} LOGICAL pgoutput {how}"
            made = wait_for_slot(self._catalog, maker, lambda: maker.read_rows(command), name, on_wait)
            [(_, begins, self.snapshot, _)] = made
            readers.see(self.snapshot)
            self.tables |= self._look_at_locked()
        except psycopg2.Error as error:
            self.close()
            raise from_psycopg2(error, dsn) from None
        except BaseException:
            self.close()
            raise
        return Slot.make_created(name, database, Lsn.parse(begins), failover=failover)

    @contextmanager
    def lend_reader(self) -> Iterator[psycopg2.extensions.connection]:
        """A session that sees the tables in that state, and has locked them. StateLost."""
        if self._readers is None:
            raise StateLost(STATE_LOST)
        with self._readers.lend(self.snapshot, self._require_locks) as reader:
            yield reader

    def _require_locks(self) -> None:
        try:
            if self._locker is None or not self._locker.read_value("SELECT true"):
                raise StateLost(STATE_LOST)
        except psycopg2.Error:
            raise StateLost(STATE_LOST) from None

    def _make_readers(self) -> KeylessReaders:
        dsn, timeout = self._options.connection_string, self._options.timeout
        return KeylessReaders(lambda: connect_reader(dsn, timeout), self._list_for_lock(), _KEYLESS_LOCK_SECONDS)

    def _lock(self, connection: psycopg2.extensions.connection) -> None:
        """Lock the tables. Somebody may have altered, renamed or dropped them while their locks were waited for."""
        locker = self._locker = Session(connection, None)
        self.tables = _index_by_relation(self._find(locker))
        while not (self._lock_these(connection) and self._are_locked(locker)):
            with connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
            self.tables = _index_by_relation(self._find(locker))
        self.tables = self._look_at_locked()

    def _are_locked(self, locker: Session) -> bool:
        """Whether the tables have the names that were locked. They are looked at anew."""
        before, self.tables = self.tables, _index_by_relation(self._find(locker))
        return _list_names(before) == _list_names(self.tables)

    def _lock_these(self, connection: psycopg2.extensions.connection) -> bool:
        """Lock whatever has the names of the tables; False when one of these names is gone."""
        names = self._list_for_lock()
        with connection.cursor() as cursor:
            try:
                cursor.execute(
                    f"BEGIN READ ONLY; SET LOCAL lock_timeout = '{_KEYLESS_LOCK_SECONDS}s';"
                    + (f"LOCK TABLE {names} IN ACCESS SHARE MODE" if names else "")
                )
            except psycopg2.errors.UndefinedTable:
                return False
        return True

    def _list_for_lock(self) -> str:
        return ", ".join(f"{'ONLY ' if table.only else ''}{table.name}" for table in self.tables.values())

    def _look_at_locked(self) -> dict[str, SnapshotTable]:
        """The locked tables as they are now: no lock keeps partitions from being attached."""
        assert self._locker is not None  # noqa: S101 - it has the locks
        found = [self._describe(self._locker, int(relation)) for relation in self.tables]
        return _index_by_relation([table for table in found if table is not None])

    def close(self) -> None:
        """Let the tables and the snapshot go. May be called twice."""
        readers, self._readers = self._readers, None
        if readers is not None:
            readers.close()
        locker, self._locker = self._locker, None
        if locker is not None:
            locker.close()
        maker, self._maker = self._maker, None
        if maker is not None:
            maker.close()


def _index_by_relation(tables: Sequence[SnapshotTable]) -> dict[str, SnapshotTable]:
    return {table.relation.id: table for table in tables}


def _list_names(tables: Mapping[str, SnapshotTable]) -> dict[str, str]:
    return {relation: table.name for relation, table in tables.items()}
