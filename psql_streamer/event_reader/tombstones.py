"""Records without a value (tombstones): a key of which the topic shall have no row any more.

Behind the delete of its key, as Debezium writes it, a tombstone says nothing new. Others are all that is left of a
delete: a compacted topic has the tombstone of a key for a while, and no record of the key before it (Kafka's
delete.retention.ms); and some tools write nothing else. They are read as deletes of rows whose key alone is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from msgspec import Raw

from psql_streamer.event_reader.identity import make_uuid
from psql_streamer.event_reader.keys import members_of_key
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
    """What is kept of a record about a row. offset: where it is in its partition."""

    origin: Origin
    schema: str
    table: str
    commit: int | None
    moment: int
    place: int | None
    seq: int | None
    offset: int

    @property
    def full_name(self) -> tuple[Origin, str, str]:
        return self.origin, self.schema, self.table


@dataclass(slots=True)
class _Known:
    """What is known of a partition. last: its last row. by_key: the last row of some keys, None for one that is gone.
    several: whether it has rows of several tables. looked: whether nothing is behind what is known that matters.
    """

    last: _Row | None = None
    by_key: dict[bytes, _Row | None] = field(default_factory=dict)
    several: bool = False
    looked: bool = False

    def note(self, key: bytes | None, row: _Row, gone: bool) -> None:
        """The next row of the partition."""
        self.several = self.several or (self.last is not None and self.last.full_name != row.full_name)
        self.last = row
        if key is not None:
            self.looked = self.looked and len(self.by_key) < _MOST_KEYS
            self.note_key(key, None if gone else row)

    def note_key(self, key: bytes, row: _Row | None) -> None:
        """The last record of a key. The keys that were met last are kept."""
        self.by_key.pop(key, None)
        if len(self.by_key) == _MOST_KEYS:
            del self.by_key[next(iter(self.by_key))]
        self.by_key[key] = row

    def put_behind(self, seen: _Known) -> None:
        """What is known follows what was seen when somebody looked back."""
        since, self.by_key = self.by_key, seen.by_key
        for key, row in since.items():
            self.note_key(key, row)
        self.several = self.several or seen.several
        self.last = self.last or seen.last
        self.looked = True

    def find(self, key: bytes) -> _Row | Tombstone:
        """A row of the key's table."""
        if key in self.by_key and self.by_key[key] is None:
            return Tombstone.REPEATED
        found = self.by_key.get(key) if self.several else self.last
        return Tombstone.UNKNOWN if found is None else found


class TombstoneReader:
    """Reads tombstones among the records of topics. parse: for records that it looks back at. For one thread."""

    def __init__(self, parse: Callable[[Message], Parsed]) -> None:
        self._parse = parse
        self._partitions: dict[tuple[str, int], _Known] = {}

    def note(self, message: Message, parsed: Parsed) -> None:
        """The record in front of those that come."""
        if isinstance(parsed.kind, RowOp):
            self._of(message).note(message.key(), _row(message, parsed), parsed.kind is RowOp.DELETE)

    def forget(self) -> None:
        """Records that come are not behind those that were noted."""
        self._partitions.clear()

    def read(self, message: Message, look_back: LookBack) -> Parsed | Tombstone:
        """The delete that a record without a value stands for, if it is one."""
        key, known = message.key(), self._of(message)
        if key is None:
            return Tombstone.REPEATED
        found = known.find(key)
        if found is Tombstone.UNKNOWN and not known.looked:
            self._look_back(known, look_back(message))
            found = known.find(key)
        if isinstance(found, Tombstone):
            return found
        known.note_key(key, None)
        columns, _ = members_of_key(key)
        return _delete(found, message, columns)

    def _of(self, message: Message) -> _Known:
        return self._partitions.setdefault((message.topic(), message.partition()), _Known())

    def _look_back(self, known: _Known, before: Sequence[Message]) -> None:
        seen = _Known()
        for message in before:
            try:
                parsed = self._parse(message)
            except NoEventError:
                continue
            if isinstance(parsed.kind, RowOp):
                seen.note(message.key(), _row(message, parsed), parsed.kind is RowOp.DELETE)
        known.put_behind(seen)


def _row(message: Message, parsed: Parsed) -> _Row:
    return _Row(
        parsed.origin,
        parsed.schema,
        parsed.table,
        parsed.commit,
        parsed.moment,
        parsed.place,
        parsed.seq,
        message.offset(),
    )


def _delete(row: _Row, message: Message, key: Mapping[str, Raw]) -> Parsed:
    """A delete at the commit of a row in front of it. Consumers compare commit and Seq: those of the delete are larger
    than the row's, and the same whenever it is read.
    """
    _, milliseconds = message.timestamp()
    return Parsed(
        row.origin,
        row.schema,
        row.table,
        RowOp.DELETE,
        row.commit,
        max(row.moment, milliseconds * 1000),
        None,
        row.place,
        None if row.seq is None else row.seq + message.offset() - row.offset,
        make_uuid(message, message.offset() if row.commit is None else row.commit),
        None,
        key,
        (),
    )
