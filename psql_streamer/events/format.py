"""What a format is: made once for a sink, it encodes batch after batch: rows of one kind -> their values and keys."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.cells import Shape
from psql_streamer.events.addresses import Topics
from psql_streamer.events.digits import to_digits
from psql_streamer.events.identity import compute_checksums, convert_given_uuids, make_part_uuids, make_uuids
from psql_streamer.events.json.json_text import escape_one
from psql_streamer.events.json.objects import SingleWriter
from psql_streamer.events.json.row_json import RowJson
from psql_streamer.events.per_transaction import Fragment, cache_per_transaction
from psql_streamer.events.rows import Rows
from psql_streamer.events.source_fields import choose_fields
from psql_streamer.few_rows import FewTransaction
from psql_streamer.model import (
    Batch,
    Column,
    LogicalMessage,
    Marker,
    Relation,
    RowOp,
    TransactionMarks,
    Transactions,
    Truncate,
)
from psql_streamer.options import PartOptions

_BINARY = pa.binary()

KEYLESS_REMEDY = (
    "give it a primary key, name key columns under `key`, use another format, or leave it out with excludeTables"
)
"""What to do about a table without a key, for a format that needs one."""


class RowTexts:
    """JSON that the value, the key and the headers of a record share; made when first asked for."""

    def __init__(self, rows: Rows, json: RowJson) -> None:
        self._rows = rows
        self._json = json

    @cached_property
    def image(self) -> pa.Array:
        """The JSON of each row's image."""
        return self._json.render_images(self._rows.image, self._rows)

    @cached_property
    def old(self) -> pa.Array:
        """The JSON of each row's old image. For rows that have one."""
        assert self._rows.old is not None  # noqa: S101 - the caller looked
        return self._json.render_images(self._rows.old, self._rows)

    @cached_property
    def key(self) -> pa.Array:
        """The JSON of each row's key; null for a row that has none."""
        return self._json.render_keys(self._rows)

    @cached_property
    def checksum(self) -> pa.Array:
        """The checksum of each row's image, eight hexadecimal digits: a consumer compares it to tell a repeat."""
        return compute_checksums(self.image)


class OneRow(NamedTuple):
    """A row change that is written by itself. columns: of its images. seq, place: as CellTable has them.

    image: JSON of the row that the action left, or (delete) the one that it removed. old: of the old row of an update,
    if the source gave it. checksum: of the image, if the format has checksums.
    """

    relation: Relation
    columns: tuple[Column, ...]
    op: RowOp
    transaction: FewTransaction
    seq: int
    place: int
    image: bytes
    old: bytes | None
    checksum: bytes


@dataclass(frozen=True, slots=True)
class BoundaryRecords:
    """Records that say where transactions begin (BEGIN) or end (COMMIT); seq: of the change behind each."""

    op: Marker
    marks: TransactionMarks
    seq: NDArray[np.int64]
    keys: pa.Array
    values: pa.Array


class FormatProblem(NamedTuple):
    """What `check` says of a format. stops: whether no event could be written."""

    what: str
    remedy: str
    stops: bool


class FormatOptions(PartOptions):
    """The keys of `[sink.NAME.formatOptions]`; a format that has some extends it. `debezium-avro` does."""

    def list_topic_warnings(self, shared: Sequence[str]) -> Iterable[str]:  # noqa: ARG002 - for formats that look
        """As list_warnings. shared: topics that several tables may go to."""
        return ()


class Format(ABC):
    """How the events of one sink look. Made once, from its options, which does no I/O; `prepare` gives what a batch's
    events need.

    Options: what stands in `[sink.NAME.formatOptions]`. section_keys: options that stand in the sink's section itself,
    by their name in EventOptions -> the arguments of the constructor that they are.

    tombstones: whether a record without a value follows each delete that has a key. headers: whether its records
    need their headers, because the value does not say what happened. marks: whether a marker of its own stands for each
    value that an update left alone, but those that are to be left out. needs_key: whether it cannot take tables
    without a key; BatchFormat.render_keys raises SinkRefused for their rows. row_by_row: whether BatchFormat.render_row
    writes what `render_rows` does, with the keys that `make_singles` gives and no header of its own: then few rows are
    written so. It is not inherited: a format that extends another one says it for itself. checksums: whether images of
    `make_singles` are those that checksums are of. frames: whether keys and values depend on the topic: then
    BatchFormat's methods `frame_...` are called.

    A client connects with the first batch that needs it, and may raise SinkUnavailable: the batch comes again.
    """

    Options: ClassVar[type[FormatOptions]] = FormatOptions
    section_keys: ClassVar[Mapping[str, str]] = {}
    tombstones: ClassVar[bool] = False
    headers: ClassVar[bool] = False
    marks: ClassVar[bool] = False
    needs_key: ClassVar[bool] = False
    row_by_row: ClassVar[bool] = False
    checksums: ClassVar[bool] = True
    frames: ClassVar[bool] = False

    def __init__(self, options: FormatOptions) -> None:
        self.options = options

    @classmethod
    def tells_transactions(cls, options: FormatOptions, **section: bool) -> bool:  # noqa: ARG003 - for those that do
        """Whether a format of these options (the constructor's arguments) says where transactions begin and end, in
        records of their own. Batches then have transaction_metadata, and their changes a table_seq.
        """
        return False

    @abstractmethod
    def prepare(self, batch: Batch) -> BatchFormat:
        """What encodes this batch. Nothing is done by row here."""

    def find_readable(self) -> Format:
        """A format whose records say what those of this one say, and that people read without another program: of what
        `try` shows, and of rows that a rule puts aside. Itself, unless it has another one.
        """
        return self

    def find_problems(self) -> Iterable[FormatProblem]:
        """What `check` finds where the format's client would connect to. Changes nothing there."""
        return ()

    def describe_wait(self) -> str:
        """What a batch is waiting for at present, for /status; "" for nothing. From any thread."""
        return ""

    def interrupt(self) -> None:
        """Make a batch that waits raise SinkUnavailable soon, until `stop`. From any thread, at every stop."""

    def stop(self) -> None:
        """Release what it holds, such as a client. May be called twice; another batch may come after it."""


class BatchFormat(ABC):
    """A format at one batch, so that what all changes of a transaction say is made once.

    fields: what events say of their source. nulled, left_behind: as Records has them, so far.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.nulled = Counter[str]()
        self.left_behind = Counter[str]()
        self.fields = choose_fields(batch.source)

    @abstractmethod
    def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:
        """The values; null is a tombstone. They do not depend on what else the batch has."""

    def render_row(self, row: OneRow) -> bytes:
        """The value of one row, for a format that writes them so: as `render_rows` does. May raise WrittenByColumn."""
        raise NotImplementedError

    def make_singles(self, json: RowJson, shapes: Sequence[Shape]) -> tuple[SingleWriter, SingleWriter]:
        """What writes images and keys of single rows, for such a format."""
        return json.make_singles(shapes)

    @abstractmethod
    def render_truncate(self, truncate: Truncate) -> bytes | None:
        """The event of one truncated table."""

    @abstractmethod
    def render_message(self, message: LogicalMessage) -> bytes:
        """The event of a logical message."""

    def render_transactions(self, transactions: Transactions) -> pa.Array:
        """What every event of a transaction says of it, for each; nothing where its headers say all."""
        return pa.repeat(pa.scalar(b"", _BINARY), len(transactions))

    def render_snapshot(self, transactions: Transactions, tx: int) -> bytes | None:  # noqa: ARG002 - for those that do
        """What every event of a snapshot's rows says in place of that. tx: what the rows have for a transaction.
        None: the same.
        """
        return None

    def render_keys(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002 - for formats that look
        """The keys of the rows; null where the table has none. SinkRefused when the format cannot be without.

        Rows of one key have one, whatever happened to them, and rows of other keys have others.
        """
        return texts.key

    def render_extra_headers(self, rows: Rows) -> Mapping[str, pa.Array]:  # noqa: ARG002 - for formats that have some
        """Headers that records have in this format whether or not headers are wanted; null: a row lacks it.

        The service's own headers have other names.
        """
        return {}

    def render_boundaries(self) -> Iterable[BoundaryRecords]:
        """Ends first: with the same batch_order they come before begins. For formats that have such records."""
        return ()

    def truncate_key(self, truncate: Truncate) -> bytes | None:  # noqa: ARG002 - for formats that have one
        """The key of a truncate."""
        return None

    def render_message_key(self, message: LogicalMessage) -> bytes | None:  # noqa: ARG002 - for formats that have one
        """The key of a logical message."""
        return None

    def frame_rows(
        self,
        rows: Rows,  # noqa: ARG002 - for formats that look
        topics: Topics,  # noqa: ARG002 - for formats that look
        keys: pa.Array,
        values: pa.Array,
    ) -> tuple[pa.Array, pa.Array]:
        """Keys and values as they stand in the topics of these rows; keys that rows name themselves are among them."""
        return keys, values

    def frame_row(
        self,
        shapes: Sequence[Shape],  # noqa: ARG002 - for formats that look
        shape: int,  # noqa: ARG002 - for formats that look
        key_columns: tuple[int, ...],  # noqa: ARG002 - for formats that look
        topic: str,  # noqa: ARG002 - for formats that look
        key: bytes | None,
        value: bytes,
    ) -> tuple[bytes | None, bytes]:
        """The same of one row, which is of one of these shapes."""
        return key, value

    def frame_event(
        self,
        event: Truncate | LogicalMessage,  # noqa: ARG002 - for formats that look
        topic: str,  # noqa: ARG002 - for formats that look
        key: bytes | None,
        value: bytes | None,
    ) -> tuple[bytes | None, bytes | None]:
        """The same of an event that is no row's."""
        return key, value

    def frame_boundaries(
        self,
        topic: str,  # noqa: ARG002 - for formats that look
        keys: pa.Array,
        values: pa.Array,
    ) -> tuple[pa.Array, pa.Array]:
        """The same of records that say where transactions begin and end."""
        return keys, values

    def render_transaction_fragment(self, tx: NDArray[np.int32]) -> Fragment:
        """What each row's event says of its transaction; a constant when all rows are of one."""
        return self._transaction_texts.take(tx)

    def render_transaction_text(self, index: int) -> bytes:
        """What an event says of one of the batch's transactions."""
        return self._transaction_texts.get(index)

    def render_snapshot_ids(self, rows: Rows) -> Fragment:
        """The id of each row's snapshot. For rows of snapshots."""
        return self._snapshot_ids.take(rows.tx)

    def compute_uuids(self, rows: Rows) -> pa.Array:
        """The UUID of each row's change, or of the part of it that the row is; 36 characters."""
        old_key = rows.key_change and rows.op is RowOp.DELETE
        if rows.uuid is not None and not old_key:
            return convert_given_uuids(rows.uuid)
        found = make_uuids(self.batch.source, self.batch.transactions.commit[rows.tx], rows.seq, old_key)
        return found if rows.part is None else make_part_uuids(found, rows.part["number"])

    def render_headers_of_parts(self, rows: Rows) -> Mapping[str, pa.Array]:
        """What tells parts of a change apart, as headers; none where rows are whole changes."""
        if rows.part is None:
            return {}
        return {
            "part": to_digits(rows.part["number"]),
            "parts": to_digits(rows.part["of"]),
            "uuid": self.compute_uuids(rows),
        }

    @cache_per_transaction
    def _transaction_texts(self) -> pa.Array:
        """What events say of each transaction, and of what stands as one."""
        of = self.batch.transactions
        texts = self.render_transactions(of)
        said = {tx: text for tx in of.snapshots if (text := self.render_snapshot(of, tx)) is not None}
        if not said:
            return texts
        which = np.arange(len(of))
        which[list(said)] = len(of) + np.arange(len(said))
        return pa.concat_arrays([texts, pa.array(said.values(), _BINARY)]).take(pa.array(which))

    @cache_per_transaction
    def _snapshot_ids(self) -> pa.Array:
        of = self.batch.transactions
        ids = {tx: snapshot.id.encode() for tx, snapshot in of.snapshots.items()}
        return pa.array([ids.get(tx, b"") for tx in range(len(of))], _BINARY)


def render_part_members(rows: Rows, number: bytes, of: bytes) -> tuple[Fragment, ...]:
    """`,"part":0,"parts":3` of each row, under these names; nothing where rows are whole changes."""
    if rows.part is None:
        return ()
    return b',"%s":' % number, to_digits(rows.part["number"]), b',"%s":' % of, to_digits(rows.part["of"])


def list_truncate_options(truncate: Truncate) -> tuple[tuple[str, bool], ...]:
    """The options of the statement, and whether it had them."""
    return ("CASCADE", truncate.cascade), ("RESTART IDENTITY", truncate.restart_identity)


def find_commit(message: LogicalMessage, batch: Batch) -> int:
    """The commit number of a message's transaction; outside of one, its own place."""
    return message.place if message.tx < 0 else int(batch.transactions.commit[message.tx])


def render_content_member(content: bytes, field: bytes) -> bytes:
    """Text as it is; bytes that are not UTF-8 as base64, under another name so that nobody mistakes them."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return b'"%sBase64":"%s"' % (field, base64.b64encode(content))
    return b'"%s":"%s"' % (field, escape_one(content))
