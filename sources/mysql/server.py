"""What a source asks the server: which it is, how it is set, how far it has got, and what its tables look like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pymysql

from psql_streamer.errors import SourceRefused
from sources.mysql.connection import Connector
from sources.mysql.gtid_sets import DomainPositions, Executed, GtidSet
from sources.mysql.places import FIRST_EVENT, LogPlace, Place

OLDEST_MYSQL, OLDEST_MARIADB = (8, 0, 14), (10, 5, 0)

_COLLATIONS = "SELECT COLLATION_NAME, ID FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"
_FULL_COLLATIONS = (
    "SELECT FULL_COLLATION_NAME, ID FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL"
)
_MARIADB_FULL_COLLATIONS = (10, 10, 1)

_ACCESS_DENIED = {1227, 1142, 1044, 1045}


def measure_bytes_behind(place: Place, received: Place, files: Sequence[tuple[str, int]]) -> int | None:
    """From a place to the end of a binary log of these files; None when the place's file is not among them.

    received: how far the stream has got, which may be a file that began after the server was asked.
    """
    if files and LogPlace.from_place(received) > LogPlace.from_place(Place(*files[-1])):
        ended = [file for file in files if file[0] != received.file]
        files = [*ended, (received.file, received.offset)]
    names = [name for name, _ in files]
    if place.file not in names:
        return None
    at = names.index(place.file)
    return max(0, files[at][1] - place.offset) + sum(size for _, size in files[at + 1 :])


class Session:
    """Questions over one connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def read_rows(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """All rows of an answer."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql, arguments or None)
            return list(cursor.fetchall())

    def read_value(self, sql: str, *arguments: Any) -> Any:
        """The one value of an answer."""
        return self.read_rows(sql, *arguments)[0][0]

    @cached_property
    def version(self) -> str:
        """As the server writes it: 10.11.19-MariaDB-0+deb12u1-log."""
        return str(self.read_value("SELECT VERSION()"))

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """(10, 11, 19). Some MariaDB servers put 5.5.5- in front."""
        found = re.search(r"(\d+)\.(\d+)\.(\d+)", self.version.removeprefix("5.5.5-"))
        return tuple(map(int, found.groups())) if found else (0, 0, 0)

    @property
    def is_mariadb(self) -> bool:
        """Whether it is MariaDB, and not MySQL."""
        return "mariadb" in self.version.lower()

    @property
    def product(self) -> str:
        """MariaDB or MySQL."""
        return "MariaDB" if self.is_mariadb else "MySQL"

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """The global variables, by name."""
        return {str(name).lower(): str(value) for name, value in self.read_rows("SHOW GLOBAL VARIABLES")}

    @cached_property
    def collations(self) -> Mapping[str, int]:
        """Their numbers by name."""
        rows = self.read_rows(_COLLATIONS)
        if self.is_mariadb and self.numbers >= _MARIADB_FULL_COLLATIONS:
            rows += self.read_rows(_FULL_COLLATIONS)
        return {str(name): int(number) for name, number in rows}

    @property
    def has_gtids(self) -> bool:
        """Whether every transaction has a GTID. MariaDB's always have."""
        return self.is_mariadb or self.settings.get("gtid_mode", "OFF").upper() == "ON"

    @property
    def uuid(self) -> str:
        """MySQL's server_uuid; empty for MariaDB, which has none."""
        return "" if self.is_mariadb else self.settings.get("server_uuid", "")

    def require_binary_log(self) -> None:
        """SourceRefused when nothing can be streamed from the server as it is set."""
        oldest = OLDEST_MARIADB if self.is_mariadb else OLDEST_MYSQL
        if self.numbers < oldest:
            shown = ".".join(map(str, oldest))
            raise SourceRefused(
                f"the server is {self.product} {self.version}",
                f"{self.product} {shown} is the oldest that is supported",
            )
        if not is_on(self.settings.get("log_bin", "OFF")):
            raise SourceRefused(
                "the server writes no binary log",
                "start it with log_bin = binlog, binlog_format = ROW and binlog_row_metadata = FULL",
            )

    def read_executed(self) -> Executed:
        """Every transaction that is in the binary log, or was."""
        if self.is_mariadb:
            return DomainPositions.parse(str(self.read_value("SELECT @@GLOBAL.gtid_binlog_pos")))
        return GtidSet.parse(str(self.read_value("SELECT @@GLOBAL.gtid_executed")).replace("\n", ""))

    def read_purged(self) -> Executed:
        """The transactions that are in the binary log no more."""
        if not self.is_mariadb:
            return GtidSet.parse(str(self.read_value("SELECT @@GLOBAL.gtid_purged")).replace("\n", ""))
        files = self.list_files()
        oldest = self.read_gtids_before(Place(files[0][0], FIRST_EVENT)) if files else None
        return oldest or DomainPositions()

    def read_gtids_before(self, place: Place) -> Executed | None:
        """What MariaDB's binary log has up to a place between two transactions; None where it does not say."""
        state = self.read_value("SELECT BINLOG_GTID_POS(%s, %s)", place.file, place.offset)
        return None if state is None else DomainPositions.parse(str(state))

    def read_end(self) -> Place:
        """Where the binary log ends."""
        command = "SHOW MASTER STATUS" if self.is_mariadb or self.numbers < (8, 2, 0) else "SHOW BINARY LOG STATUS"
        file, offset, *_ = self.read_rows(command)[0]
        return Place(str(file), int(offset))

    def list_files(self) -> list[tuple[str, int]]:
        """The files of the binary log, in their order, each with its bytes."""
        return [(str(name), int(size)) for name, size, *_ in self.read_rows("SHOW BINARY LOGS")]

    def is_replica(self) -> bool | None:
        """Whether it gets its changes from another server; None where the account may not know."""
        old = self.is_mariadb or self.numbers < (8, 0, 22)
        found = self._read_rows_if_allowed("SHOW SLAVE STATUS" if old else "SHOW REPLICA STATUS")
        return None if found is None else bool(found)

    def list_replica_ids(self) -> Sequence[int] | None:
        """Server ids of the replicas that are connected; None where the account may not know."""
        old = self.is_mariadb or self.numbers < (8, 0, 22)
        found = self._read_rows_if_allowed("SHOW SLAVE HOSTS" if old else "SHOW REPLICAS")
        return None if found is None else [int(row[0]) for row in found]

    def _read_rows_if_allowed(self, sql: str) -> list[tuple[Any, ...]] | None:
        try:
            return self.read_rows(sql)
        except pymysql.Error as error:
            if error.args and error.args[0] in _ACCESS_DENIED:
                return None
            raise


def is_on(value: str) -> bool:
    """Whether a variable is set: SHOW VARIABLES has ON, SELECT @@x 1."""
    return value.upper() in ("ON", "1", "YES", "TRUE")


@contextmanager
def open_session(connector: Connector) -> Iterator[Session]:
    """Questions for the length of a `with`; errors are SourceErrors."""
    with connector.open_connection() as connection:
        yield Session(connection)


def describe_server(asking: Session) -> str:
    """What tells a server from the others of its replication."""
    if asking.uuid:
        return asking.uuid
    [(host, port, number)] = asking.read_rows("SELECT @@hostname, @@port, @@server_id")
    return f"{host}:{port}/{number}"
