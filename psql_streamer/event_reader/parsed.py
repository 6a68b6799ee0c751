"""What a record says, whatever format it is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from psql_streamer.model import POSTGRESQL, Index, Kind, SnapshotRows

Image = Mapping[str, Raw]
"""A row: the JSON of each column's value, byte for byte."""


class Origin(NamedTuple):
    """Where a change was made: the fields of SourceInfo that records tell. kind: "" where a record does not.
    encoded: as SourceInfo has it.
    """

    kind: str
    host: str
    database: str
    log_name: str = ""
    server_id: int = 0
    encoded: bool = False

    @property
    def home(self) -> tuple[str, str]:
        """What holds tables. Rows of a snapshot say less of their origin than changes of the same table, and a failover
        changes the server.
        """
        return self.host, self.database


class Parsed(NamedTuple):
    """A change of a row or a table, or a logical message.

    commit, moment, id, place, seq: as the model has them; None for what the record does not say. uuid: 36 characters,
    or none. new, old: the rows. unchanged: columns whose value an update left alone. details: of a marker. snapshot:
    that the row is of; its id is empty where the record's value does not say it. part: which part of its change the row
    is, and of how many. thread: as the model has it.
    """

    origin: Origin
    schema: str
    table: str
    kind: Kind
    commit: int | None
    moment: int
    id: str | None
    place: int | None
    seq: int | None
    uuid: bytes
    new: Image | None
    old: Image | None
    unchanged: Sequence[str]
    details: MarkerDetails | None = None
    snapshot: SnapshotRows | None = None
    part: tuple[int, int] | None = None
    thread: int = 0


class MarkerDetails(NamedTuple):
    """options: of a TRUNCATE. prefix, content: of a logical message."""

    options: Sequence[str] = ()
    prefix: str = ""
    content: bytes = b""


class NoEventError(Exception):
    """A record that is none of the events. The text says why, without values."""


class Transaction(NamedTuple):
    """What stands for a transaction of records. id: None for one that has none. snapshot: of rows that are of none.
    thread: as the model has it.
    """

    commit: int
    moment: int
    id: str | None
    snapshot: SnapshotRows | None = None
    thread: int = 0


class RowNotes(NamedTuple):
    """What many records say of their rows beside the values, one element a record but for transactions.

    place: NO_PLACE for rows of snapshots. uuid: empty texts where records have none. tx: index into transactions.
    """

    op: NDArray[np.uint8]
    seq: Index
    place: NDArray[np.uint64]
    uuid: NDArray[np.bytes_]
    transactions: list[Transaction]
    tx: NDArray[np.int32]


class Message(Protocol):
    """A Kafka record, as confluent_kafka gives it."""

    def __len__(self) -> int: ...
    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...  # what kind it is, and milliseconds since 1970
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


LARGEST_NUMBER = (1 << 63) - 1
"""Of LSNs and the like."""


def derive_kind(of_postgres: Sequence[object], of_others: Sequence[object]) -> str:
    """The kind of source that names transactions and places so; "" for a record that does not.

    of_postgres, of_others: what the record has in fields of PostgreSQL's words, and in those of any source; None: none.
    Raises NoEventError for a record that has both.
    """
    is_others = any(value is not None for value in of_others)
    if all(value is None for value in of_postgres):
        return "sql" if is_others else ""
    if is_others:
        raise NoEventError("it has fields of PostgreSQL and of another source")
    return POSTGRESQL


@lru_cache(maxsize=1 << 12)
def to_micros(text: str) -> int:
    """Microseconds since 1970 of a time in RFC 3339, as `2026-11-22T10:00:00.123456Z`. What is finer is cut off.

    Raises NoEventError. Rows of one transaction have one text.
    """
    try:
        moment = datetime.fromisoformat(_cut_to_micros(text))
    except ValueError:
        raise NoEventError("its time is not as RFC 3339 has it") from None
    if moment.tzinfo is None:
        raise NoEventError("its time has no zone")
    return require_moment(_count_micros(moment))


def require_moment(micros: int) -> int:
    """The same. Raises NoEventError for microseconds since 1970 that no time in RFC 3339 says in UTC."""
    if not _FIRST_MOMENT <= micros <= _LAST_MOMENT:
        raise NoEventError("its time is not in the years 1 to 9999 of UTC")
    return micros


def _count_micros(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")
_FIRST_MOMENT = _count_micros(datetime.min.replace(tzinfo=UTC))
_LAST_MOMENT = _count_micros(datetime.max.replace(tzinfo=UTC))


def _cut_to_micros(text: str) -> str:
    """Python reads at most six digits of a second."""
    point = text.find(".")
    if point < 0:
        return text
    end = point + 1
    while end < len(text) and text[end].isdigit():
        end += 1
    return text[: min(end, point + 7)] + text[end:]
