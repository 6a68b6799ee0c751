"""Records without a value (tombstones): a key of which the topic shall have no row any more.

Behind the delete of its key, as Debezium writes it, a tombstone says nothing new. Others are all that is left of a
delete: a compacted topic has the tombstone of a key for a while, and no record of the key before it (Kafka's
delete.retention.ms); and some tools write nothing else. They are read as deletes of rows whose key alone is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from msgspec import Raw

from psql_streamer.event_reader.identity import make_uuid
from psql_streamer.event_reader.keys import decode_key_columns, find_schema_name
from psql_streamer.event_reader.parsed import Message, NoEventError, Origin, Parsed
from psql_streamer.model import RowOp

LookBack = Callable[[Message], Sequence[Message]]
"""The last records of its partition in front of a record, in their order. Some may have been removed by the brokers."""

_MOST_KEYS = 1_000
"""Keys of a partition whose last record is known. One that is forgotten may be deleted twice, which changes nothing."""


class Tombstone(Enum):
    """Tombstones that are no deletes. REPEATED: the key is gone already, or there is none. UNKNOWN: no record in front
    of it says of which table it is.
    """

    REPEATED = auto()
    UNKNOWN = auto()


class _Row(NamedTuple):
    """What is kept of a record about a row. key: the record's. offset: where it is in its partition."""

    origin: Origin
    schema: str
    table: str
    commit: int | None
    moment: int
    place: int | None
    seq: int | None
    key: bytes | None
    offset: int

    @property
    def full_name(self) -> tuple[tuple[str, str], str, str]:
        """Which table it is of."""
        return self.origin.home, self.schema, self.table


@dataclass(slots=True)
class _Known:
    """What is known of a partition. last: its last row. several: whether it has rows of several tables. by_key: the
    last row of some keys, None for one that is gone; in a partition of one table, of those alone that are gone. looked:
    whether the records in front of those that were noted add nothing to it.
    """

    last: _Row | None = None
    several: bool = False
    by_key: dict[bytes, _Row | None] = field(default_factory=dict)
    looked: bool = False

    def note(self, row: _Row, gone: bool) -> None:
        """The next row of the partition."""
        last, self.last = self.last, row
        if not self.several and last is not None and last.full_name != row.full_name:
            self.several, self.looked = True, False
        if row.key is None:
            return
        if gone or self.several:
            self.note_key(row.key, None if gone else row)
        else:
            self.by_key.pop(row.key, None)

    def note_key(self, key: bytes, row: _Row | None) -> None:
        """The last record of a key. The keys that were met last are kept: more than there are where somebody looks."""
        self.by_key.pop(key, None)
        if len(self.by_key) == _MOST_KEYS:
            del self.by_key[next(iter(self.by_key))]
        self.by_key[key] = row

    def note_last(self, rows: Sequence[tuple[_Row, bool]]) -> None:
        """The last rows of the partition, each with whether it is gone. Some of them, or all, were noted before."""
        known = self.last
        tables = {row.full_name for row in (*(row for row, _ in rows), known) if row is not None}
        self.several = self.several or len(tables) > 1
        for row, gone in rows:
            self.note(row, gone)
        if known is not None and self.last is not None and known.offset > self.last.offset:
            self.last = known
        self.looked = True

    def find(self, key: bytes) -> _Row | Tombstone:
        """A row of the key's table."""
        if key in self.by_key:
            return self.by_key[key] or Tombstone.REPEATED
        if self.several or not self.looked or self.last is None or _is_of_another_table(key, self.last.key):
            return Tombstone.UNKNOWN
        return self.last


def _is_of_another_table(key: bytes, known: bytes | None) -> bool:
    """Whether two keys are of two tables: the names of their columns tell, or those of their schemas, which have a
    table's name.
    """
    columns, others = decode_key_columns(key).keys(), decode_key_columns(known or b"").keys()
    name, other = find_schema_name(key), find_schema_name(known or b"")
    return bool(name and other and name != other) or bool(columns and others and columns != others)


class TombstoneReader:
    """Reads tombstones among the records of topics. parse: for records that it looks back at. For one thread."""

    def __init__(self, parse: Callable[[Message], Parsed]) -> None:
        self._parse = parse
        self._partitions: dict[tuple[str, int], _Known] = {}

    def note(self, message: Message, parsed: Parsed) -> None:
        """The record in front of those that come."""
        if isinstance(parsed.kind, RowOp):
            self._look_up_partition(message).note(_make_row(message, parsed), parsed.kind is RowOp.DELETE)

    def forget(self) -> None:
        """Records that come are not behind those that were noted."""
        self._partitions.clear()

    def forget_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """The same of these alone."""
        for partition in partitions:
            self._partitions.pop(partition, None)

    def read(self, message: Message, look_back: LookBack) -> Parsed | Tombstone:
        """The delete that a record without a value stands for, if it is one."""
        key, known = message.key(), self._look_up_partition(message)
        if key is None:
            return Tombstone.REPEATED
        found = known.find(key)
        if found is Tombstone.UNKNOWN and not known.looked:
            self._look_back(known, look_back(message))
            found = known.find(key)
        if isinstance(found, Tombstone):
            return found
        known.note_key(key, None)
        return _delete(found, message, decode_key_columns(key))

    def _look_up_partition(self, message: Message) -> _Known:
        place = message.topic(), message.partition()
        known = self._partitions.get(place)
        if known is None:
            known = self._partitions[place] = _Known()
        return known

    def _look_back(self, known: _Known, before: Sequence[Message]) -> None:
        rows = []
        for message in before:
            try:
                parsed = self._parse(message)
            except NoEventError:
                continue
            if isinstance(parsed.kind, RowOp):
                rows.append((_make_row(message, parsed), parsed.kind is RowOp.DELETE))
        known.note_last(rows)


def _make_row(message: Message, parsed: Parsed) -> _Row:
    return _Row(
        parsed.origin,
        parsed.schema,
        parsed.table,
        parsed.commit,
        parsed.moment,
        parsed.place,
        parsed.seq,
        message.key(),
        message.offset(),
    )


def _delete(row: _Row, message: Message, key: Mapping[str, Raw]) -> Parsed:
    """A delete at the commit of a row in front of it. Consumers compare commit and Seq: those of the delete are larger
    than the row's, and the same whenever it is read.
    """
    return Parsed(
        row.origin,
        row.schema,
        row.table,
        RowOp.DELETE,
        row.commit,
        _compute_moment(row, message),
        None,
        row.place,
        None if row.seq is None else row.seq + message.offset() - row.offset,
        make_uuid(message, message.offset() if row.commit is None else row.commit),
        None,
        key,
        (),
    )


def _compute_moment(row: _Row, message: Message) -> int:
    """When it was written, which any producer says as it likes: in microseconds, for one."""
    _, milliseconds = message.timestamp()
    return max(row.moment, milliseconds * 1000) if milliseconds <= _LAST_MILLISECOND else row.moment


_LAST_MILLISECOND = 253_402_300_799_999
"""Of the year 9999."""
