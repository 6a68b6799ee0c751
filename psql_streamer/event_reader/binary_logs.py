"""What records say of changes in the binary log of MySQL or MariaDB."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from psql_streamer.event_reader.parsed import LARGEST_NUMBER, NoEventError, Origin
from psql_streamer.model import MARIADB, MYSQL

_MARIADB_GTID = re.compile(r"[0-9]+-(?:0|[1-9][0-9]{0,9})-[0-9]+")
"""Domain, server and number. The server's id goes out as a number of JSON, which begins with no 0."""

_OFFSET_BITS = 32
_LAST_FILE = (1 << 31) - 1
"""MAX_LOG_UNIQUE_FN_EXT in MySQL's sources."""


class InBinaryLog(NamedTuple):
    """kind: of the source. name: what the log's files begin with. id: of the transaction. place: see the model.
    server_id: of the server that made it; 0 where the record does not say it, and where the GTID does (MariaDB).
    """

    kind: str
    name: str
    id: str
    place: int
    server_id: int

    def make_origin(self, host: str, database: str) -> Origin:
        """Where the change was made."""
        return Origin(self.kind, host, database, self.name, self.server_id)


def locate_in_binary_log(
    gtid: str | None, file: str, offset: int, commit: int | None, server_id: int | None, kind: str = ""
) -> InBinaryLog:
    """What these fields say. A transaction without a GTID is called by the place where it begins, its commit number.

    kind: of the source; without it, the GTID says which it is.
    """
    name, number = _split_file_name(file)
    if offset >> _OFFSET_BITS:
        raise NoEventError("its offset in the binary log is past 4 bytes")
    begin = commit or 0
    known = gtid or f"{name}.{begin >> _OFFSET_BITS:06d}:{begin & (1 << _OFFSET_BITS) - 1}"
    kind_of_gtid = _derive_kind(gtid)
    kind = kind or kind_of_gtid
    made_on = 0 if kind == kind_of_gtid == MARIADB else server_id or 0
    return InBinaryLog(kind, name, known, number << _OFFSET_BITS | offset, made_on)


def read_gtid_number(gtid: str | None) -> int | None:
    """Which transaction of its server, or domain, it is: 23 in `uuid:23`, `uuid:tag:23` and `0-1-23`."""
    found = re.search(r"([0-9]+)$", gtid or "")
    if found is None:
        return None
    if len(found[1]) > len(str(LARGEST_NUMBER)) or int(found[1]) > LARGEST_NUMBER:
        raise NoEventError("its GTID has a number past 8 bytes")
    return int(found[1])


@lru_cache(maxsize=256)
def _derive_kind(gtid: str | None) -> str:
    return MARIADB if gtid is not None and _MARIADB_GTID.fullmatch(gtid) else MYSQL


@lru_cache(maxsize=256)
def _split_file_name(file: str) -> tuple[str, int]:
    name, _, number = file.rpartition(".")
    is_number = number.isascii() and number.isdecimal() and len(number) <= len(str(_LAST_FILE))
    if not name or not is_number or int(number) > _LAST_FILE:
        raise NoEventError("its file is not named as those of a binary log")
    return name, int(number)
