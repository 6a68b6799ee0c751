"""The changes of one origin, which become a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.cells import CellTable
from psql_streamer.event_reader import kinds
from psql_streamer.event_reader.addresses import AddressesByRow
from psql_streamer.event_reader.alike import Alike
from psql_streamer.event_reader.forms import UUID_LENGTH
from psql_streamer.event_reader.growing import Growing, GrowingTables
from psql_streamer.event_reader.identity import make_uuid
from psql_streamer.event_reader.images import Images, convert_cells, make_tuples
from psql_streamer.event_reader.keys import KeyReader, find_key_columns
from psql_streamer.event_reader.parsed import Image, Message, NoEventError, Origin, Parsed, RowNotes, Transaction
from psql_streamer.event_reader.plain import Plain
from psql_streamer.event_reader.tables import NO_NAMES, Names, Table, Tables, make_id
from psql_streamer.model import (
    NO_PLACE,
    NO_RECORD_TIME,
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
    measure_batch_overhead,
)

_UNSAID = int(NO_PLACE)
_DELETE = int(RowOp.DELETE)


class Part:
    """The changes of one origin, until they are a batch."""

    def __init__(self, origin: Origin, tables: Tables) -> None:
        self.count = 0
        self.origin = origin
        self._tables = tables
        self._of_rows = GrowingTables()
        self._order = Growing(np.int64)
        self._op = Growing(np.uint8)
        self._seq = Growing(np.int64)
        self._tx = Growing(np.int32)
        self._place = Growing(np.uint64)
        self._uuid = Growing(f"S{UUID_LENGTH}")
        self._record_time = Growing(np.int64)
        self._parts: dict[int, tuple[int, int]] = {}
        self._after, self._before = Images(), Images()
        self._held: kinds.Held | None = None
        self._transactions: list[Transaction] = []
        self._truncates: list[tuple[Table, Truncate]] = []
        self._messages: list[LogicalMessage] = []
        self._keys = KeyReader()
        self._addresses = AddressesByRow()

    @property
    def headers_left_out(self) -> int:
        """See HeaderReader.left_out."""
        return self._addresses.headers_left_out

    def add(self, parsed: Parsed, message: Message) -> None:
        """A change. NoEventError when it is not whole."""
        kind = parsed.kind
        if isinstance(kind, RowOp):
            self._add_row(parsed, kind, message)
        elif kind is Marker.TRUNCATE:
            self._add_truncate(parsed, message)
            self._addresses.pass_over(message)
        else:
            self._add_message(parsed, message)
            self._addresses.pass_over(message)
        self.count += 1

    def _add_row(self, parsed: Parsed, op: RowOp, message: Message) -> None:
        new, old = parsed.new, parsed.old
        if (old if op is RowOp.DELETE else new) is None:
            raise NoEventError("it says no row")
        if new is not None and old is not None and not old.keys() <= new.keys() | set(parsed.unchanged):
            raise NoEventError("its old row has columns that the new one does not have")
        unchanged, row, find = parsed.unchanged, len(self._of_rows), self._tables.find
        if new is not None and unchanged:
            new = {name: value for name, value in new.items() if name not in unchanged}
        key = self._read_key(row, message, cast(Image, old if new is None else new))
        if new is not None:
            layout = find(parsed.origin, parsed.schema, parsed.table, tuple(new), key, unchanged, True)
            self._after.add(row, new, layout)
        if old is not None:
            layout = find(parsed.origin, parsed.schema, parsed.table, tuple(old), key, NO_NAMES, False)
            self._before.add(row, old, layout)
        self._of_rows.append(layout.table)
        self._order.append(self.count)
        self._op.append(op)
        self._seq.append(_choose_seq(parsed, message))
        self._tx.append(self._number_transaction(parsed, message))
        self._place.append(_UNSAID if parsed.place is None else parsed.place)
        self._uuid.append(_choose_uuid(parsed, message))
        self._addresses.add_headers(row, [message])
        self._record_time.append(_choose_time(*message.timestamp()))
        if parsed.part is not None:
            self._parts[row] = parsed.part

    def fill(self, plain: Plain, messages: Sequence[Message]) -> bool:
        """Put these changes behind the others. False, and the part is of no use, for rows that are not whole."""
        if not self._add_alike(plain, messages) and not self._add_each(plain, messages):
            return False
        self._note(plain.notes, messages)
        return True

    def _note(self, rows: RowNotes, messages: Sequence[Message]) -> None:
        """What is said of rows beside their values."""
        count = len(rows.op)
        self._addresses.add_headers(self.count, messages)
        self._record_time.extend(_read_timestamps(messages))
        self._order.extend(np.arange(self.count, self.count + count))
        self._op.extend(rows.op)
        self._seq.extend(rows.seq)
        self._place.extend(rows.place)
        self._uuid.extend(rows.uuid)
        # The first transaction may be the last one of those before.
        shift = len(self._transactions) - (self._transactions[-1:] == rows.transactions[:1])
        self._tx.extend(rows.tx + shift)
        self._transactions[shift:] = rows.transactions
        self.count += count

    def fill_alike(self, alike: Alike, messages: Sequence[Message]) -> bool:
        """Put these rows behind the others. False, and nothing has changed, for rows whose columns are not the table's.
        messages: their records.
        """
        key = find_key_columns([message.key() for message in messages], alike.columns, alike.cells)
        if key is None:
            return False
        layout = self._tables.find(self.origin, alike.schema, alike.table, alike.columns, key, NO_NAMES, True)
        if layout.places is not None:
            return False
        self._after.add_cells(len(self._of_rows), alike.cells, layout)
        self._of_rows.append(layout.table, len(messages))
        self._note(alike.notes, messages)
        return True

    def _add_alike(self, plain: Plain, messages: Sequence[Message]) -> bool:
        """The images of new rows of one table with the same columns, at once; False for others."""
        events = plain.events
        images = [event.Columns for event in events if event.Before is None and event.Columns is not None]
        tables = {(event.Schema, event.Table) for event in events}
        names = set(map(tuple, images))
        if len(images) < len(events) or len(tables) > 1 or len(names) > 1 or _DELETE in plain.notes.op:
            return False
        read = self._keys.read
        keys = {read(message.key(), image) for message, image in zip(messages, images, strict=True)}
        if len(keys) > 1 or any(key.own is not None for key in keys):
            return False
        [(schema, table)], [columns], [key] = tables, names, keys
        layout = self._tables.find(plain.origin, schema, table, columns, key.names, NO_NAMES, True)
        if layout.places is not None or not columns:
            return False
        self._after.add_all(self.count, images, layout)
        self._of_rows.append(layout.table, len(images))
        return True

    def _add_each(self, plain: Plain, messages: Sequence[Message]) -> bool:
        """The images one by one. False for rows that are not whole."""
        origin, find = plain.origin, self._tables.find
        after, before, of_rows = self._after, self._before, self._of_rows
        for row, (event, op, message) in enumerate(
            zip(plain.events, plain.notes.op.tolist(), messages, strict=True), self.count
        ):
            columns, old = event.Columns, event.Before
            if columns is None or (old is not None and not old.keys() <= columns.keys()):
                return False
            key = self._read_key(row, message, columns)
            is_delete = op == _DELETE
            layout = find(origin, event.Schema, event.Table, tuple(columns), key, NO_NAMES, not is_delete)
            (before if is_delete else after).add(row, columns, layout)
            if old is not None and not is_delete:
                layout = find(origin, event.Schema, event.Table, tuple(old), key, NO_NAMES, False)
                before.add(row, old, layout)
            of_rows.append(layout.table)
        return True

    def _read_key(self, row: int, message: Message, image: Image) -> Names:
        """The columns that its key names. One that they do not make is noted."""
        names, own = self._keys.read(message.key(), image)
        if own is not None:
            self._addresses.add_key(row, own)
        return names

    def _add_truncate(self, parsed: Parsed, message: Message) -> None:
        assert parsed.details is not None  # noqa: S101 - forms gives them for markers
        table = self._tables.find_current(parsed.origin, parsed.schema, parsed.table)
        options = parsed.details.options
        truncate = Truncate(
            Relation(make_id(table.name), parsed.schema, parsed.table, ()),
            self.count,
            _choose_seq(parsed, message),
            parsed.place or 0,
            self._number_transaction(parsed, message),
            cascade="CASCADE" in options,
            restart_identity="RESTART IDENTITY" in options,
            uuid=_choose_uuid(parsed, message),
        )
        self._truncates.append((table, truncate))

    def _add_message(self, parsed: Parsed, message: Message) -> None:
        assert parsed.details is not None  # noqa: S101 - forms gives them for markers
        tx = -1 if parsed.seq == -1 else self._number_transaction(parsed, message)
        place = _find_commit(parsed, message) if tx < 0 else parsed.place or 0
        details = parsed.details
        self._messages.append(
            LogicalMessage(
                details.prefix,
                details.content,
                self.count,
                _choose_seq(parsed, message),
                place,
                tx,
                parsed.moment,
                uuid=_choose_uuid(parsed, message),
            )
        )

    def _number_transaction(self, parsed: Parsed, message: Message) -> int:
        """The number of its transaction: that of the change before it, or a new one."""
        transaction = _find_commit(parsed, message), parsed.moment, parsed.id, parsed.snapshot, parsed.thread
        if not self._transactions or self._transactions[-1] != transaction:
            self._transactions.append(Transaction(*transaction))
        return len(self._transactions) - 1

    def look(self) -> kinds.Held:
        """What the values are, of both images. Raises BrokenJsonError."""
        if self._held is None:
            self._held = kinds.look(pa.concat_arrays([self._after.join_cells(), self._before.join_cells()]))
        return self._held

    def finish(self, name: str, position: Position, received_at: float) -> Batch:
        """The batch. Raises BrokenJsonError, before anything has changed."""
        values = convert_cells(self.look(), (self._after, self._before), self._tables)
        after, before = (
            make_tuples(images, texts, self._addresses.find(images.rows))
            for images, texts in zip((self._after, self._before), values.texts, strict=True)
        )
        self._of_rows.replace(values.now)
        self._truncates = [(self._tables.widen(table), truncate) for table, truncate in self._truncates]
        changed = self._settle()
        cells = CellTable(
            self._tables.shapes,
            self._of_rows.spread(lambda table: table.shape).astype(np.int32),
            self._order.join(),
            self._op.join(),
            self._seq.join(),
            self._tx.join(),
            after,
            before,
            place=_make_places(self._place.join()),
            uuid=_make_uuids(self._uuid.join()),
            part=_make_parts(self._parts, len(self._of_rows)),
            record_time=_make_times(self._record_time.join()),
        )
        size = sum(texts.nbytes for texts in values.texts) + _ROW_BYTES * self.count
        size += sum(image.addresses.nbytes for image in (after, before) if image.addresses is not None)
        origin = self.origin
        return Batch(
            SourceInfo(
                origin.kind,
                name,
                origin.host,
                origin.database,
                server_id=origin.server_id,
                log_name=origin.log_name,
                encoded=origin.encoded,
            ),
            position,
            self._describe_transactions(),
            cells,
            tuple(_complete_truncate(truncate, table) for table, truncate in self._truncates),
            tuple(self._messages),
            changed,
            nbytes=size + measure_batch_overhead(cells),
            received_at=received_at,
        )

    def _settle(self) -> tuple[SchemaChange, ...]:
        """Tell of the shapes that are new, each with the first change in it."""
        orders, seqs, txs = self._order.join(), self._seq.join(), self._tx.join()
        rows = self._of_rows.find_first_rows()
        first = {table: (int(orders[row]), int(seqs[row]), int(txs[row])) for table, row in rows.items()}
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
            threads=np.array([one.thread for one in found]) if any(one.thread for one in found) else None,
        )


_ROW_BYTES = 100
"""Bytes that a row takes beside its values: its identity, its UUID, its place."""


def _complete_truncate(truncate: Truncate, table: Table) -> Truncate:
    assert table.relation is not None  # noqa: S101 - every table that is used has been settled
    return replace(truncate, relation=table.relation)


_TIME_UNKNOWN = 0
"""The kind of time of a record without one: confluent_kafka's TIMESTAMP_NOT_AVAILABLE."""


def _choose_time(kind: int, time: int) -> int:
    return NO_RECORD_TIME if kind == _TIME_UNKNOWN else time


def _read_timestamps(messages: Sequence[Message]) -> Index:
    # No list of the pairs: Python looks for garbage whenever some hundred more objects are kept.
    found = np.fromiter(chain.from_iterable(message.timestamp() for message in messages), np.int64, 2 * len(messages))
    kinds, times = found[::2], found[1::2]
    return np.where(kinds == _TIME_UNKNOWN, NO_RECORD_TIME, times)


def _find_commit(parsed: Parsed, message: Message) -> int:
    return message.offset() if parsed.commit is None else parsed.commit


def _choose_seq(parsed: Parsed, message: Message) -> int:
    """A record that does not say it is told from others of its transaction by its offset."""
    return message.offset() if parsed.seq is None else parsed.seq


def _choose_uuid(parsed: Parsed, message: Message) -> bytes:
    """Records of several partitions that do not say their place in the transaction may have one offset."""
    return parsed.uuid if parsed.uuid or parsed.seq is not None else make_uuid(message, _find_commit(parsed, message))


def _make_places(given: NDArray[np.uint64]) -> NDArray[np.uint64] | None:
    return None if (given == NO_PLACE).all() else given


def _make_uuids(given: NDArray[np.bytes_]) -> NDArray[np.bytes_] | None:
    return given if (given != b"").any() else None


def _make_times(given: Index) -> Index | None:
    return None if (given == NO_RECORD_TIME).all() else given


def _make_parts(given: Mapping[int, tuple[int, int]], rows: int) -> NDArray[np.void] | None:
    """given: by row."""
    if not given:
        return None
    found = np.zeros(rows, PART)
    found[list(given)] = list(given.values())
    return found
