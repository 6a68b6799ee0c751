"""What records say of changes in the binary log of MySQL or MariaDB."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from psql_streamer.event_reader.parsed import NoEventError
from psql_streamer.model import MARIADB, MYSQL

_MARIADB_GTID = re.compile(r"\d+-\d+-(\d+)")
_OFFSET_BITS = 32


class InBinaryLog(NamedTuple):
    """kind: of the source. name: what the log's files begin with. id: of the transaction. place: see the model."""

    kind: str
    name: str
    id: str
    place: int


def in_binary_log(gtid: str | None, file: str, offset: int, commit: int | None) -> InBinaryLog:
    """What these fields say. A transaction without a GTID is called by the place where it begins, its commit number."""
    name, number = _name_and_number(file)
    begin = commit or 0
    known = gtid or f"{name}.{begin >> _OFFSET_BITS:06d}:{begin & (1 << _OFFSET_BITS) - 1}"
    return InBinaryLog(_kind(gtid), name, known, number << _OFFSET_BITS | offset)


def number_of(gtid: str | None) -> int | None:
    """Which transaction of its server, or domain, it is: 23 in `uuid:23`, `uuid:tag:23` and `0-1-23`."""
    found = re.search(r"(\d+)$", gtid or "")
    return int(found[1]) if found else None


@lru_cache(maxsize=256)
def _kind(gtid: str | None) -> str:
    return MARIADB if gtid is not None and _MARIADB_GTID.fullmatch(gtid) else MYSQL


@lru_cache(maxsize=256)
def _name_and_number(file: str) -> tuple[str, int]:
    name, _, number = file.rpartition(".")
    if not name or not number.isdecimal() or len(number) > len(str(1 << _OFFSET_BITS)):
        raise NoEventError("its file is not named as those of a binary log")
    return name, int(number)
