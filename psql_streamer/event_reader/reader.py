"""Records of a topic to batches: the columns of all records lie in one table of cells, as a decoder's do.

A record is parsed by itself, which tells what it is about; its values stay JSON until all of the batch's are there.
A batch is of one origin, because it says of its changes where they were made: records of several origins give several
batches, in the order that `order` says. In a batch, changes stand in the order of the records. So the commit numbers of
an origin increase within a partition of the topic, as far as its writer did not write again what it was not sure of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import methodcaller
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw
from numpy.typing import NDArray

from psql_streamer.cells import NO_PLACE, CellTable, Tuples
from psql_streamer.event_reader import kinds
from psql_streamer.event_reader.alike import Alike, AlikeReader
from psql_streamer.event_reader.documents import BrokenJsonError, Shallow, cut_out, require_json
from psql_streamer.event_reader.forms import FORMS, NOT_OF_THE_FORMAT, Parse, name_snapshot
from psql_streamer.event_reader.identity import make_uuid
from psql_streamer.event_reader.order import Order
from psql_streamer.event_reader.parsed import Image, Message, NoEventError, Origin, Parsed, Transaction
from psql_streamer.event_reader.plain import Plain, read_plain
from psql_streamer.event_reader.tables import Layout, Names, Table, Tables, id_of
from psql_streamer.model import (
    PART,
    Batch,
    Index,
    LogicalMessage,
    Marker,
    Position,
    Relation,
    RowOp,
    SchemaChange,
    SourceInfo,
    Transactions,
    Truncate,
    batch_overhead,
)

_NULL = b"null"
_NO_NAMES: Names = ()
_UNSAID = int(NO_PLACE)
_DELETE = int(RowOp.DELETE)


class Refused(NamedTuple):
    """A record that is no event. reason: without values."""

    message: Message
    reason: str


class Read(NamedTuple):
    """What records gave. batches: all but the last have the position before these records. records: how many were
    read. tombstones: those without a value, which say nothing that the delete before them does not say.
    """

    batches: Sequence[Batch]
    refused: Sequence[Refused]
    records: int
    tombstones: int


class EventReader:
    """Reads records of the formats in `forms`. name: of the source. For one thread.

    What a table looks like is remembered from batch to batch.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tables = Tables()
        self._alike = AlikeReader()
        self._form_of_topic: dict[str, Parse] = {}
        self._kinds: dict[tuple[str, str], str] = {}

    def remember(self, relations: Iterable[Relation]) -> None:
        """See Source.remember."""
        self._tables.remember(relations)

    def read(
        self,
        messages: Sequence[Message],
        before: Position,
        behind: Callable[[int], Position],
        received_at: float,
        stops: bool,
    ) -> Read:
        """The batches of some records. before: the position in front of them. behind: the one behind so many of them.
        stops: whether nothing is read from the first record on that is no event.
        """
        try:
            if len(messages) >= _MANY and (part := self._read_many(messages)) is not None:
                batch = part.finish(self._name, behind(len(messages)), received_at)
                return Read([batch], (), len(messages), 0)
            return self._read_each(messages, before, behind, received_at, stops, self._parse)
        except BrokenJsonError:
            return self._read_each(messages, before, behind, received_at, stops, self._parse_strictly)

    def _read_each(
        self,
        messages: Sequence[Message],
        before: Position,
        behind: Callable[[int], Position],
        received_at: float,
        stops: bool,
        parse: Callable[[str, bytes], Parsed],
    ) -> Read:
        order, parts = Order(), list[_Part]()
        refused: list[Refused] = []
        count = tombstones = 0
        for message in messages:
            value = message.value()
            try:
                if value is None:
                    tombstones += 1
                else:
                    parsed = self._name_kind(_parse_whole(parse, message.topic(), value))
                    if parsed.snapshot is not None and not parsed.snapshot.id:
                        parsed = name_snapshot(parsed, message.headers() or ())
                    number = order.place(parsed, message)
                    if number == len(parts):
                        parts.append(_Part(parsed.origin, self._tables))
                    parts[number].add(parsed, message)
            except NoEventError as error:
                refused.append(Refused(message, str(error)))
                if stops:
                    break
            count += 1
        held = [part for part in parts if part.count]
        for part in held:  # before any of them tells of shapes
            part.look()
        batches = [part.finish(self._name, before, received_at) for part in held[:-1]]
        last = held[-1] if held else _Part(_NOWHERE, self._tables)
        return Read([*batches, last.finish(self._name, behind(count), received_at)], refused, count, tombstones)

    def _read_many(self, messages: Sequence[Message]) -> _Part | None:
        """By columns, or else by fields; None for records of which some must be read one by one."""
        parts: list[_Part] = []
        for first in range(0, len(messages), _COLUMN_RECORDS):
            some = messages[first : first + _COLUMN_RECORDS]
            if self._read_alike(some, parts):
                continue
            for begin in range(0, len(some), _FIELD_RECORDS):
                if not self._read_plain(some[begin : begin + _FIELD_RECORDS], parts):
                    return None
        return parts[0]

    def _read_alike(self, messages: Sequence[Message], parts: list[_Part]) -> bool:
        values = [message.value() for message in messages]
        if None in values:
            return False
        alike = self._alike.read(values)  # type: ignore[arg-type]  # no None is there
        if alike is None:
            return False
        part = self._part_of(alike.origin, parts)
        return part is not None and part.fill_alike(alike, [message.key() for message in messages])

    def _read_plain(self, messages: Sequence[Message], parts: list[_Part]) -> bool:
        plain = read_plain(messages)
        if plain is None:
            return False
        part = self._part_of(plain.origin, parts)
        return part is not None and part.fill(plain, messages)

    def _part_of(self, origin: Origin, parts: list[_Part]) -> _Part | None:
        """The part that holds all of the records; None for a record of another origin. parts: that one, or none yet."""
        if not parts:
            parts.append(_Part(origin, self._tables))
            self._kinds[origin.host, origin.database] = origin.kind
        return parts[0] if parts[0].origin == origin else None

    def _name_kind(self, parsed: Parsed) -> Parsed:
        """A record that does not name its transaction is of the kind of those from the same database before it."""
        origin = parsed.origin
        if origin.kind:
            self._kinds[origin.host, origin.database] = origin.kind
            return parsed
        kind = self._kinds.get((origin.host, origin.database), _KIND_UNSAID)
        return parsed._replace(origin=origin._replace(kind=kind))

    def _parse(self, topic: str, value: bytes) -> Parsed:
        """By the format of the topic's record before, or any other."""
        try:
            return self._form_of_topic[topic](value)
        except (KeyError, NoEventError, *NOT_OF_THE_FORMAT):
            return self._parse_as_any(topic, value)

    def _parse_strictly(self, topic: str, value: bytes) -> Parsed:
        """With a look into the values, too."""
        try:
            require_json(value)
        except BrokenJsonError:
            raise NoEventError("it is no JSON") from None
        return self._parse(topic, value)

    def _parse_as_any(self, topic: str, value: bytes) -> Parsed:
        reason = ""
        for _, parse in FORMS:
            try:
                parsed = parse(value)
            except NOT_OF_THE_FORMAT:
                continue
            except NoEventError as error:
                reason = reason or str(error)
            else:
                self._form_of_topic[topic] = parse
                return parsed
        raise NoEventError(reason or "it is none of the formats event, envelope and debezium")


def _parse_whole(parse: Callable[[str, bytes], Parsed], topic: str, value: bytes) -> Parsed:
    """What a record says, however deep its values are. Raises nothing but NoEventError: it is one of many records."""
    try:
        try:
            return parse(topic, value)
        except RecursionError:
            shallow = cut_out(value, _DEPTH_OF_VALUES)
            parsed = parse(topic, shallow.text)
            return parsed._replace(new=_restore(shallow, parsed.new), old=_restore(shallow, parsed.old))
    except BrokenJsonError:
        raise NoEventError("it is no JSON") from None
    except (RecursionError, OverflowError, ValueError):
        raise NoEventError("a field of it has a value that no event has") from None


def _restore(shallow: Shallow, image: Image | None) -> Image | None:
    return None if image is None else {name: Raw(shallow.restore(bytes(value))) for name, value in image.items()}


_DEPTH_OF_VALUES = 3
"""The objects that values lie in: the event, its block of columns, and around both that of a schema and its payload."""

_NOWHERE = Origin("kafka", "", "")

_KIND_UNSAID = "sql"
"""Such a source need not name transactions."""

_MANY = 32
"""Records from which on it pays to read them by fields."""

_FIELD_RECORDS = 250
"""Records of which Python's objects are there at a time: a processor's cache holds those of some hundred."""

_COLUMN_RECORDS = 1000
"""Records whose bytes are looked at together: they and what is found in them fit into a processor's cache."""


class KeyNames:
    """Finds the columns of records' keys, most of which have those of the key before."""

    def __init__(self) -> None:
        self._begin = b""
        self._names = _NO_NAMES

    def find(self, key: bytes | None) -> Names:
        """See key_names. A key of one column that is a number has two quotation marks, around the column's name."""
        if key is not None and self._begin and key.startswith(self._begin) and key.count(b'"') == _QUOTES_OF_ONE:
            return self._names
        names = key_names(key)
        self._begin = b'{"%s":' % names[0].encode() if len(names) == 1 else b""
        self._names = names
        return names


_QUOTES_OF_ONE = 2


def names_of_all(keys: Sequence[bytes | None]) -> Names | None:
    """The columns of records' keys, if they are the same."""
    names = key_names(keys[0])
    if len(names) != 1 or None in keys:
        find = KeyNames().find
        return names if all(find(key) == names for key in keys) else None
    begin = b'{"%s":' % names[0].encode()
    joined = b"".join(keys)  # type: ignore[arg-type]  # no None is there
    same = all(map(methodcaller("startswith", begin), keys)) and joined.count(b'"') == _QUOTES_OF_ONE * len(keys)
    return names if same or all(key_names(key) == names for key in keys) else None


def key_names(key: bytes | None) -> Names:
    """The columns of a record's key; none for a key that is no JSON object."""
    if not key:
        return _NO_NAMES
    try:
        held = _decode_members(key)
        names = tuple(held)
        return tuple(_decode_members(bytes(held["payload"]))) if names == ("schema", "payload") else names
    except (BrokenJsonError, *NOT_OF_THE_FORMAT):
        return _NO_NAMES


def _decode_members(key: bytes) -> dict[str, Raw]:
    try:
        return _decode_key(key)
    except RecursionError:
        return _decode_key(cut_out(key, _DEPTH_OF_VALUES).text)


_decode_key = msgspec.json.Decoder(dict[str, Raw]).decode


@dataclass(slots=True)
class _Images:
    """One image of rows: raw JSON, cell by cell. arrays: the cells in front of `values`."""

    arrays: list[pa.Array] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=lambda: [0])
    absent: list[int] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def add(self, row: int, image: Image, layout: Layout) -> None:
        """The image of a row."""
        values = self.values
        if layout.places is None:
            values.extend(map(bytes, image.values()))
        else:
            first = len(values)
            values.extend([_NULL] * layout.width)
            lacking = set(range(layout.width)).difference(layout.places)
            self.absent.extend(self.begins[-1] + place for place in lacking)
            for place, value in zip(layout.places, image.values(), strict=True):
                values[first + place] = bytes(value)
        self.rows.append(row)
        self.begins.append(self.begins[-1] + layout.width)
        self.tables.append(layout.table)

    def add_all(self, first: int, images: Sequence[Image], layout: Layout) -> None:
        """The images of rows from the first on, whose values are the columns of one table."""
        self.values.extend(map(bytes, chain.from_iterable(image.values() for image in images)))
        self._count_rows(first, len(images), layout)

    def add_cells(self, first: int, cells: pa.Array, layout: Layout) -> None:
        """The same of an array of their values, row after row."""
        self._close()
        self.arrays.append(cells)
        self._count_rows(first, len(cells) // layout.width, layout)

    def cells(self) -> pa.Array:
        """All values: one array, `binary`."""
        self._close()
        return pa.concat_arrays(self.arrays) if self.arrays else pa.array([], pa.binary())

    def _close(self) -> None:
        if self.values:
            self.arrays.append(pa.array(self.values, pa.binary()))
            self.values = []

    def _count_rows(self, first: int, count: int, layout: Layout) -> None:
        begin = self.begins[-1]
        self.rows += range(first, first + count)
        self.begins += range(begin + layout.width, begin + count * layout.width + 1, layout.width)
        self.tables += [layout.table] * count


class _Part:
    """The changes of one origin, until they are a batch."""

    def __init__(self, origin: Origin, tables: Tables) -> None:
        self.count = 0
        self.origin = origin
        self._tables = tables
        self._of_rows: list[Table] = []
        self._order: list[int] = []
        self._op: list[int] = []
        self._seq: list[int] = []
        self._tx: list[int] = []
        self._place: list[int] = []
        self._uuid: list[bytes] = []
        self._parts: dict[int, tuple[int, int]] = {}
        self._after, self._before = _Images(), _Images()
        self._held: kinds.Held | None = None
        self._transactions: list[Transaction] = []
        self._truncates: list[tuple[Table, Truncate]] = []
        self._messages: list[LogicalMessage] = []

    def add(self, parsed: Parsed, message: Message) -> None:
        """A change. NoEventError when it is not whole."""
        kind = parsed.kind
        if isinstance(kind, RowOp):
            self._add_row(parsed, kind, message)
        elif kind is Marker.TRUNCATE:
            self._add_truncate(parsed, message)
        else:
            self._add_message(parsed, message)
        self.count += 1

    def _add_row(self, parsed: Parsed, op: RowOp, message: Message) -> None:
        new, old = parsed.new, parsed.old
        if (old if op is RowOp.DELETE else new) is None:
            raise NoEventError("it says no row")
        if new is not None and old is not None and not old.keys() <= new.keys() | set(parsed.unchanged):
            raise NoEventError("its old row has columns that the new one does not have")
        key, row = key_names(message.key()), len(self._order)
        find = self._tables.find
        if new is not None:
            unchanged = parsed.unchanged
            if unchanged:
                new = {name: value for name, value in new.items() if name not in unchanged}
            layout = find(parsed.origin, parsed.schema, parsed.table, tuple(new), key, unchanged, True)
            self._after.add(row, new, layout)
        if old is not None:
            layout = find(parsed.origin, parsed.schema, parsed.table, tuple(old), key, _NO_NAMES, False)
            self._before.add(row, old, layout)
        self._of_rows.append(layout.table)
        self._order.append(self.count)
        self._op.append(op)
        self._seq.append(_seq(parsed, message))
        self._tx.append(self._transaction(parsed, message))
        self._place.append(_UNSAID if parsed.place is None else parsed.place)
        self._uuid.append(_uuid(parsed, message))
        if parsed.part is not None:
            self._parts[row] = parsed.part

    def fill(self, plain: Plain, messages: Sequence[Message]) -> bool:
        """Put these changes behind the others. False, and the part is of no use, for rows that are not whole."""
        if not self._add_alike(plain, messages) and not self._add_each(plain, messages):
            return False
        self._note(plain)
        return True

    def _note(self, rows: Plain | Alike) -> None:
        """What is said of rows beside their values."""
        count = len(rows.op)
        self._order += range(self.count, self.count + count)
        self._op += rows.op
        self._seq += rows.seq
        self._place += rows.place
        self._uuid += rows.uuid
        # The first transaction may be the last one of those before.
        shift = len(self._transactions) - (self._transactions[-1:] == rows.transactions[:1])
        self._tx += [shift + tx for tx in rows.tx]
        self._transactions[shift:] = rows.transactions
        self.count += count

    def fill_alike(self, alike: Alike, keys: Sequence[bytes | None]) -> bool:
        """Put these rows behind the others. False, and nothing has changed, for rows whose columns are not the table's.
        keys: of their records.
        """
        key = names_of_all(keys)
        if key is None:
            return False
        layout = self._tables.find(self.origin, alike.schema, alike.table, alike.columns, key, _NO_NAMES, True)
        if layout.places is not None:
            return False
        self._after.add_cells(len(self._of_rows), alike.cells, layout)
        self._of_rows += [layout.table] * len(keys)
        self._note(alike)
        return True

    def _add_alike(self, plain: Plain, messages: Sequence[Message]) -> bool:
        """The images of new rows of one table with the same columns, at once; False for others."""
        events = plain.events
        images = [event.Columns for event in events if event.Before is None and event.Columns is not None]
        tables = {(event.Schema, event.Table) for event in events}
        names = set(map(tuple, images))
        if len(images) < len(events) or len(tables) > 1 or len(names) > 1 or _DELETE in plain.op:
            return False
        key_of = KeyNames()
        keys = {key_of.find(message.key()) for message in messages}
        if len(keys) > 1:
            return False
        [(schema, table)], [columns], [key] = tables, names, keys
        layout = self._tables.find(plain.origin, schema, table, columns, key, _NO_NAMES, True)
        if layout.places is not None or not columns:
            return False
        self._after.add_all(self.count, images, layout)
        self._of_rows += [layout.table] * len(images)
        return True

    def _add_each(self, plain: Plain, messages: Sequence[Message]) -> bool:
        """The images one by one. False for rows that are not whole."""
        origin, find = plain.origin, self._tables.find
        after, before, of_rows = self._after, self._before, self._of_rows
        key_of = KeyNames()
        for row, (event, op, message) in enumerate(zip(plain.events, plain.op, messages, strict=True), self.count):
            columns, old = event.Columns, event.Before
            if columns is None or (old is not None and not old.keys() <= columns.keys()):
                return False
            key = key_of.find(message.key())
            is_delete = op == _DELETE
            layout = find(origin, event.Schema, event.Table, tuple(columns), key, _NO_NAMES, not is_delete)
            (before if is_delete else after).add(row, columns, layout)
            if old is not None and not is_delete:
                layout = find(origin, event.Schema, event.Table, tuple(old), key, _NO_NAMES, False)
                before.add(row, old, layout)
            of_rows.append(layout.table)
        return True

    def _add_truncate(self, parsed: Parsed, message: Message) -> None:
        assert parsed.details is not None  # noqa: S101 - forms gives them for markers
        table = self._tables.find_current(parsed.origin, parsed.schema, parsed.table)
        options = parsed.details.options
        truncate = Truncate(
            Relation(id_of(table.name), parsed.schema, parsed.table, ()),
            self.count,
            _seq(parsed, message),
            parsed.place or 0,
            self._transaction(parsed, message),
            cascade="CASCADE" in options,
            restart_identity="RESTART IDENTITY" in options,
            uuid=_uuid(parsed, message),
        )
        self._truncates.append((table, truncate))

    def _add_message(self, parsed: Parsed, message: Message) -> None:
        assert parsed.details is not None  # noqa: S101 - forms gives them for markers
        tx = -1 if parsed.seq == -1 else self._transaction(parsed, message)
        place = _commit(parsed, message) if tx < 0 else parsed.place or 0
        details = parsed.details
        self._messages.append(
            LogicalMessage(
                details.prefix,
                details.content,
                self.count,
                _seq(parsed, message),
                place,
                tx,
                parsed.moment,
                uuid=_uuid(parsed, message),
            )
        )

    def _transaction(self, parsed: Parsed, message: Message) -> int:
        """The number of its transaction: that of the change before it, or a new one."""
        transaction = _commit(parsed, message), parsed.moment, parsed.id, parsed.snapshot
        if not self._transactions or self._transactions[-1] != transaction:
            self._transactions.append(Transaction(*transaction))
        return len(self._transactions) - 1

    def look(self) -> kinds.Held:
        """What the values are, of both images. Raises BrokenJsonError."""
        if self._held is None:
            self._held = kinds.look(pa.concat_arrays([self._after.cells(), self._before.cells()]))
        return self._held

    def finish(self, name: str, position: Position, received_at: float) -> Batch:
        """The batch. Raises BrokenJsonError, before anything has changed."""
        values = _texts_of(self.look(), (self._after, self._before), self._tables)
        after, before = (
            _tuples(images, texts) for images, texts in zip((self._after, self._before), values.texts, strict=True)
        )
        of_rows = self._of_rows
        if values.now:
            of_rows = [values.now.get(table.number, table) for table in of_rows]
        self._truncates = [(self._tables.widen(table), truncate) for table, truncate in self._truncates]
        changed = self._settle(of_rows)
        cells = CellTable(
            self._tables.shapes,
            np.array([table.number for table in of_rows], np.int32),
            np.array(self._order, np.int64),
            np.array(self._op, np.uint8),
            np.array(self._seq, np.int64),
            np.array(self._tx, np.int32),
            after,
            before,
            place=_places(self._place),
            uuid=_uuids(self._uuid),
            part=_parts(self._parts, len(of_rows)),
        )
        size = sum(texts.nbytes for texts in values.texts) + _ROW_BYTES * self.count
        return Batch(
            SourceInfo(self.origin.kind, name, self.origin.host, self.origin.database, log_name=self.origin.log_name),
            position,
            self._describe_transactions(),
            cells,
            tuple(_of_table(truncate, table) for table, truncate in self._truncates),
            tuple(self._messages),
            changed,
            nbytes=size + batch_overhead(cells),
            received_at=received_at,
        )

    def _settle(self, of_rows: Sequence[Table]) -> tuple[SchemaChange, ...]:
        """Tell of the shapes that are new, each with the first change in it."""
        rows = {table: -row for row, table in enumerate(reversed(of_rows), 1 - len(of_rows))}
        first = {table: (self._order[row], self._seq[row], self._tx[row]) for table, row in rows.items()}
        for table, truncate in self._truncates:
            found = truncate.batch_order, truncate.seq, truncate.tx
            first[table] = min(first.get(table, found), found)
        used = sorted(first, key=lambda table: first[table])
        changes = []
        for table, before in self._tables.settle(used):
            assert table.relation is not None  # noqa: S101 - settle gives it one
            order, seq, tx = first[table]
            changes.append(SchemaChange(table.relation, before, order, seq, tx))
        return tuple(changes)

    def _describe_transactions(self) -> Transactions:
        found = self._transactions
        named = any(one.id is not None for one in found)
        ids = [None if one.id is None else one.id.encode() for one in found]
        return Transactions(
            np.array([one.commit for one in found], np.uint64),
            np.array([one.moment for one in found], np.int64),
            pa.array(ids, pa.binary()) if named else None,
            snapshots={tx: one.snapshot for tx, one in enumerate(found) if one.snapshot is not None},
        )


_ROW_BYTES = 100
"""Bytes that a row takes beside its values: its identity, its UUID, its place."""


class _Texts(NamedTuple):
    """Text forms of both images' cells, and the tables that have got another shape, by the number of the old one."""

    texts: Sequence[pa.Array]
    now: dict[int, Table]


def _texts_of(held: kinds.Held, images: Sequence[_Images], tables: Tables) -> _Texts:
    """All cells at once: what they hold widens the kinds of their columns, which say how they are written."""
    if not len(held.values):
        return _Texts((held.values, held.values), {})
    of_tables = {table.number: table for image in images for table in image.tables}
    firsts, width = _number_columns(of_tables)
    columns = np.concatenate([_columns_of(image, firsts) for image in images])
    bits = np.zeros(width, np.uint8)
    np.bitwise_or.at(bits, columns, held.bits)
    now = {}
    own = {number: slice(firsts[number], firsts[number] + len(table.columns)) for number, table in of_tables.items()}
    for number, table in of_tables.items():
        tables.note(table, bits[own[number]].tolist())
    for number, table in of_tables.items():
        widened = tables.widen(table)
        bits[own[number]] = widened.bits
        if widened is not table:
            now[number] = widened
    texts = kinds.to_text_forms(held, bits[columns])
    new = images[0].begins[-1]
    return _Texts((texts[:new], texts[new:]), now)


def _number_columns(of_tables: dict[int, Table]) -> tuple[dict[int, int], int]:
    """The columns of all tables one behind the other: where those of each begin, and how many there are."""
    firsts, total = {}, 0
    for number, table in of_tables.items():
        firsts[number] = total
        total += len(table.columns)
    return firsts, total


def _columns_of(image: _Images, firsts: dict[int, int]) -> Index:
    """For each cell which column it is of."""
    begins = np.array(image.begins, np.int64)
    first = np.array([firsts[table.number] for table in image.tables], np.int64)
    found: Index = np.repeat(first - begins[:-1], np.diff(begins)) + np.arange(int(begins[-1]))
    return found


def _tuples(image: _Images, texts: pa.Array) -> Tuples:
    absent = None
    if image.absent:
        absent = np.zeros(len(texts), np.bool_)
        absent[image.absent] = True
    return Tuples(np.array(image.rows, np.int64), np.array(image.begins, np.int64), texts, absent)


def _of_table(truncate: Truncate, table: Table) -> Truncate:
    assert table.relation is not None  # noqa: S101 - every table that is used has been settled
    return replace(truncate, relation=table.relation)


def _commit(parsed: Parsed, message: Message) -> int:
    return message.offset() if parsed.commit is None else parsed.commit


def _seq(parsed: Parsed, message: Message) -> int:
    """A record that does not say it is told from others of its transaction by its offset."""
    return message.offset() if parsed.seq is None else parsed.seq


def _uuid(parsed: Parsed, message: Message) -> bytes:
    """Records of several partitions that do not say their place in the transaction may have one offset."""
    return parsed.uuid if parsed.uuid or parsed.seq is not None else make_uuid(message, _commit(parsed, message))


def _places(given: Sequence[int]) -> NDArray[np.uint64] | None:
    places = np.array(given, np.uint64)
    return None if (places == NO_PLACE).all() else places


def _uuids(given: Sequence[bytes]) -> NDArray[np.bytes_] | None:
    return np.array(given, "S36") if any(given) else None


def _parts(given: Mapping[int, tuple[int, int]], rows: int) -> NDArray[np.void] | None:
    """given: by row."""
    if not given:
        return None
    found = np.zeros(rows, PART)
    found[list(given)] = list(given.values())
    return found
