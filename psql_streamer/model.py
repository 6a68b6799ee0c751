"""The values that flow: Position, Column, Relation, Changes, Batch.

Nothing here does I/O. Arrays are numpy or Arrow, one element a row; the naming follows PostgreSQL's
protocol documentation ("Logical Replication Message Formats"). What holds arrays is equal to itself alone: two of them
have no single answer to whether they are equal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, assert_never, cast, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.binary_columns import measure_lengths
from psql_streamer.pgtype import PostgresType

Index: TypeAlias = NDArray[np.int64]
"""Integers that point into something: rows, cells, columns."""

_Rows: TypeAlias = Index | slice


@dataclass(frozen=True, slots=True)
class Position:
    """How far a source has got. Only the source that made it can read, compare and continue it.

    data: JSON values, stored as they are. shown: the same for people: `16/B374D848`, `orders.id=4711`.
    """

    data: Mapping[str, Any] = field(hash=False)
    shown: str

    def __str__(self) -> str:
        return self.shown


class _Named(IntEnum):
    action: str
    """The name in events, metrics and logs: `insert`."""

    def __init__(self, _number: int) -> None:
        self.action = self._name_.lower()


class RowOp(_Named):
    """What happened to a row. READ: nothing, it was there when a snapshot was taken. The others' numbers are pgoutput's
    message bytes.
    """

    INSERT = ord("I")
    UPDATE = ord("U")
    DELETE = ord("D")
    READ = ord("r")


class Marker(_Named):
    """What is no row's: something that happened to a table (TRUNCATE, RELATION: it has another shape), a transaction's
    begin and end, a logical message. The numbers are pgoutput's message bytes, and none is a RowOp's.
    """

    TRUNCATE = ord("T")
    RELATION = ord("R")
    BEGIN = ord("B")
    COMMIT = ord("C")
    MESSAGE = ord("M")


Kind: TypeAlias = RowOp | Marker
"""What a record, or a count, is about."""


class ReplicaIdentity(IntEnum):
    """pg_class.relreplident: which columns an old row image holds."""

    DEFAULT = ord("d")
    NOTHING = ord("n")
    FULL = ord("f")
    INDEX = ord("i")


@dataclass(frozen=True, slots=True)
class ArrowType:
    """The type of a column whose values are Arrow's own. native: what its source calls it, in a schema's words."""

    arrow: pa.DataType
    native: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class TextType:
    """The type of a column of another source than PostgreSQL, whose values are in the text form of a PostgreSQL type,
    as `binary`.

    native: what the source calls it (`bigint unsigned`). like: a built-in PostgreSQL type. Where its JSON is no string,
        every value must be in its text form; where it is one, another text stands there as it is.
    """

    native: str
    like: PostgresType


ColumnType: TypeAlias = PostgresType | TextType | ArrowType
"""What a column's values are, and with it how its arrays are written."""


def find_text_form(kind: ColumnType) -> PostgresType | None:
    """The PostgreSQL type in whose text form the values are; None where they are Arrow's own."""
    match kind:
        case PostgresType():
            return kind
        case TextType():
            return kind.like
        case ArrowType():
            return None
        case _:
            assert_never(kind)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation. key: one of those that tell the rows apart."""

    name: str
    type: ColumnType
    key: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A table in one shape; another shape makes another Relation.

    id: what its source knows it by, whatever it is called (PostgreSQL: its OID).
    replica_identity: PostgreSQL's; None for other sources. Under FULL the key is the primary key.
    version: counts the shapes of this id in the order in which the stream showed them, from 1.
    """

    id: str
    schema: str
    table: str
    columns: tuple[Column, ...]
    replica_identity: ReplicaIdentity | None = None
    version: int = 1

    @property
    def key_columns(self) -> tuple[int, ...]:
        """Indexes of the columns that tell the rows apart; none where there are none, or nobody knows them."""
        return tuple(i for i, column in enumerate(self.columns) if column.key)

    @property
    def old_rows_are_whole(self) -> bool:
        """Whether an old image holds every column, and not the key alone."""
        return self.replica_identity in (None, ReplicaIdentity.FULL)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class ReplicationOrigin:
    """Where a transaction comes from that was replayed: the origin's name, and the LSN of the commit there (0: nobody
    said).
    """

    name: str
    commit_lsn: int


class SnapshotRows(NamedTuple):
    """The snapshot that rows are of: its id, and whether an operator asked for it while the stream ran. The rows are
    READ, or DELETE for a key that no row has: its old image is the key.
    """

    id: str
    on_demand: bool


class Shift(NamedTuple):
    """What stands before a batch when it is put behind others: so many places, and transactions."""

    rows: int
    transactions: int


@dataclass(frozen=True, slots=True, eq=False)
class Transactions:
    """The transactions that the changes of a batch belong to, in commit order; rows point in by index.

    commit: a number that increases from commit to commit, and is unique in the source (PostgreSQL: the commit's LSN).
    commit_ts: microseconds since 1970-01-01 UTC. ids: what the source calls each, integers (PostgreSQL: xid) or
    `binary` texts; None where it has no ids. origins: index -> the replication origin of those that have one.
    snapshots: index -> the snapshot of those that are none: rows that were read together stand as one, which has no id.
    threads: the server's sessions that made them, 0 where that is not known; None where the source never knows.
    """

    commit: NDArray[np.uint64]
    commit_ts: NDArray[np.int64]
    ids: pa.Array | None = None
    origins: Mapping[int, ReplicationOrigin] = field(default_factory=dict)
    snapshots: Mapping[int, SnapshotRows] = field(default_factory=dict)
    threads: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.commit)

    def find_id(self, tx: int) -> str | None:
        """What the source calls a transaction."""
        found = None if self.ids is None else self.ids[tx].as_py()
        if found is None:
            return None
        return found.decode() if isinstance(found, bytes) else str(found)

    def list_id_texts(self) -> pa.Array:
        """The id of each transaction, as `binary` text; null where there is none."""
        return pa.nulls(len(self), pa.binary()) if self.ids is None else _convert_to_texts(self.ids)

    def select_id_texts(self, tx: NDArray[np.int32]) -> pa.Array:
        """The same of these transactions."""
        return pa.nulls(len(tx), pa.binary()) if self.ids is None else _convert_to_texts(self.ids.take(pa.array(tx)))

    @classmethod
    def concat(cls, pieces: Sequence[Transactions], shifts: Sequence[Shift]) -> Transactions:
        """One behind the other."""
        return cls(
            np.concatenate([piece.commit for piece in pieces]),
            np.concatenate([piece.commit_ts for piece in pieces]),
            _join_ids(pieces),
            {
                by.transactions + tx: origin
                for piece, by in zip(pieces, shifts, strict=True)
                for tx, origin in piece.origins.items()
            },
            {
                by.transactions + tx: snapshot
                for piece, by in zip(pieces, shifts, strict=True)
                for tx, snapshot in piece.snapshots.items()
            },
            _join_threads(pieces),
        )


def _join_ids(pieces: Sequence[Transactions]) -> pa.Array | None:
    """Null for those of pieces without ids: a batch may hold nothing that has one, and the next one may."""
    kind = next((piece.ids.type for piece in pieces if piece.ids is not None), None)
    if kind is None:
        return None
    return pa.concat_arrays([pa.nulls(len(piece), kind) if piece.ids is None else piece.ids for piece in pieces])


def _join_threads(pieces: Sequence[Transactions]) -> NDArray[np.int64] | None:
    if all(piece.threads is None for piece in pieces):
        return None
    return np.concatenate(
        [np.zeros(len(piece), np.int64) if piece.threads is None else piece.threads for piece in pieces]
    )


def _convert_to_texts(ids: pa.Array) -> pa.Array:
    return ids.cast(pa.string()).view(pa.binary()) if pa.types.is_integer(ids.type) else ids


NO_TRANSACTIONS = Transactions(np.empty(0, np.uint64), np.empty(0, np.int64))


ADDRESS = pa.struct([("topic", pa.binary()), ("key", pa.binary()), ("headers", pa.map_(pa.binary(), pa.binary()))])
"""Where a handler sends the event of a row, and what it adds to it.

topic, key: of the event, in place of what the sink's options say; null where they are to say it. headers: further ones;
a null value is no header. The service's own headers have other names.
"""

PART = np.dtype([("number", np.int64), ("of", np.int64)])
"""Which part of its change a row is, and how many rows a handler made of the change. of: 0 for a change that is one
row, and number 0 with it.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """One image (old or new) of rows: an Arrow array a column, all of one length.

    columns: as the types of the Changes' columns say: `binary` arrays of PostgreSQL's text form, or Arrow's own; those
        that nobody asks for may never be made. Null is SQL NULL, or a column that the image lacks, or unchanged TOAST.
    rows: index into the Changes' rows, strictly increasing: which row each element belongs to.
    absent: column index -> True where the image lacks the column (a key-only old row, unchanged TOAST).
    addresses: of type ADDRESS, where a handler sends the events of these rows; of an old image those of its delete.
        None: the sink's options say it of all of them.
    """

    columns: Sequence[pa.Array]
    rows: NDArray[np.int64]
    absent: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)
    addresses: pa.StructArray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Index, of: int) -> Image:
        """The elements of these rows, which are numbered anew. rows: strictly increasing. of: how many there were."""
        if len(self) == len(rows) and np.array_equal(self.rows, rows):
            return Image(self.columns, np.arange(len(rows)), self.absent, self.addresses)
        number = np.full(of, -1, np.int64)
        number[rows] = np.arange(len(rows))
        renumbered = number[self.rows]
        kept = np.flatnonzero(renumbered >= 0)
        arrow = pa.array(kept)
        absent = {column: gone[kept] for column, gone in self.absent.items()}
        addresses = None if self.addresses is None else self.addresses.take(arrow)
        return Image(
            tuple(array.take(arrow) for array in self.columns), renumbered[kept], _select_absent(absent), addresses
        )

    def slice(self, begin: int, end: int) -> Image:
        """The elements of the rows in [begin, end), without a copy."""
        first, last = np.searchsorted(self.rows, (begin, end)).tolist()
        absent = {column: gone[first:last] for column, gone in self.absent.items()}
        return Image(
            tuple(array[first:last] for array in self.columns),
            self.rows[first:last] - begin,
            _select_absent(absent),
            None if self.addresses is None else self.addresses[first:last],
        )


def _select_absent(absent: Mapping[int, NDArray[np.bool_]]) -> dict[int, NDArray[np.bool_]]:
    return {column: gone for column, gone in absent.items() if gone.any()}


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Row changes of one Relation (one shape), columnar. All arrays have one element a row.

    batch_order: place in the batch, over all relations: sorting by it gives commit order. Parts of a change share it.
    seq: which change of its transaction this is, from 0. With the commit number it is the change's identity.
    place: where in its source each change lies, which several may share (PostgreSQL: where its WAL record starts); None
        where that is not known.
    tx: index into Batch.transactions.
    table_seq: which change of its table in its transaction this is, from 0; truncates count, too. None where no sink
        wants transaction metadata.
    uuid: the UUID that each row has already, 36 characters, empty for one that has none; None: nobody gave any.
    part: of type PART, where several rows were made of a change; with the identity of the change it is that of the row.
        Those that a handler made stand together. None: each row is a change.
    record_time: the timestamp of the Kafka record that each row was read from, milliseconds since 1970-01-01 UTC, -1
        for none; None: no row was read from one that has a timestamp.
    after: new rows of inserts and updates. before: old rows of deletes and (where the replica identity
        gives them) updates; Image.rows says which.
    columns: what the images' arrays are. The relation's own, unless a handler made others.
    """

    relation: Relation
    columns: tuple[Column, ...]
    batch_order: NDArray[np.int64]
    op: NDArray[np.uint8]
    seq: NDArray[np.int64]
    tx: NDArray[np.int32]
    after: Image
    before: Image
    place: NDArray[np.uint64] | None = None
    table_seq: NDArray[np.int64] | None = None
    uuid: NDArray[np.bytes_] | None = None
    part: NDArray[np.void] | None = None
    record_time: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.op)

    @classmethod
    def from_new_rows(
        cls, relation: Relation, arrays: Sequence[pa.Array], tx: NDArray[np.int32], op: RowOp = RowOp.INSERT
    ) -> Changes:
        """Rows without old images, the first changes of a batch. arrays: of the relation's columns. tx: ascending."""
        rows = np.arange(len(tx))
        return cls(
            relation,
            relation.columns,
            batch_order=rows,
            op=np.full(len(tx), op, np.uint8),
            seq=rows - np.searchsorted(tx, tx),
            tx=tx,
            after=Image(tuple(arrays), rows),
            before=Image(tuple(array[:0] for array in arrays), rows[:0]),
        )

    def take(self, rows: Index) -> Changes:
        """These rows. rows: indexes, strictly increasing."""
        if len(rows) == len(self):
            return self
        return self._select_rows(rows, lambda image: image.take(rows, len(self)))

    def slice(self, begin: int, end: int) -> Changes:
        """The rows in [begin, end), without a copy."""
        if begin == 0 and end == len(self):
            return self
        return self._select_rows(slice(begin, end), lambda image: image.slice(begin, end))

    def _select_rows(self, rows: _Rows, choose: Callable[[Image], Image]) -> Changes:
        return replace(
            self,
            op=self.op[rows],
            **select_row_fields(self, rows),
            after=choose(self.after),
            before=choose(self.before),
        )


NO_PLACE, UNCOUNTED, NO_UUID, UNPARTED = np.uint64(2**64 - 1), -1, b"", np.zeros((), PART)[()]
NO_RECORD_TIME = -1

UNKNOWN_OF_ROW: Mapping[str, Any] = {
    "place": NO_PLACE,
    "table_seq": np.int64(UNCOUNTED),
    "uuid": np.bytes_(NO_UUID),
    "part": UNPARTED,
    "record_time": np.int64(NO_RECORD_TIME),
}
"""The fields of Changes that hold an element a row, or are None: what stands there for a row, where others of the batch
have one. Kafka means by a timestamp of -1 that there is none.
"""

_SAID_OF_ROW = ("batch_order", "seq", "tx", *UNKNOWN_OF_ROW)

PER_ROW = ("op", *_SAID_OF_ROW)
"""The fields of Changes that hold an element a row."""


def select_row_fields(held: object, rows: _Rows) -> dict[str, Any]:
    """The fields of PER_ROW but `op`, for these rows. held: Changes, or what else has such fields."""
    arrays = {name: getattr(held, name) for name in _SAID_OF_ROW}
    return {name: array[rows] for name, array in arrays.items() if array is not None}


@dataclass(frozen=True, slots=True)
class Rejection:
    """Row changes that a handler cannot take and puts aside, for a dead-letter topic.

    changes: as they were before the rule. reason: a sentence without values. column: whose value it is about, if it is
    one column's. rule: the name of the handler's rule.
    """

    changes: Changes
    reason: str
    column: str | None
    rule: str


@dataclass(frozen=True, slots=True)
class Truncate:
    """A TRUNCATE of one table; one statement over several tables gives several, each with its own seq."""

    relation: Relation
    batch_order: int
    seq: int
    place: int
    tx: int
    cascade: bool
    restart_identity: bool
    table_seq: int = 0  # as Changes.table_seq
    uuid: bytes = b""  # as Changes.uuid


OUTSIDE = -1
"""The seq of a logical message outside a transaction. Its place is where its record ends, where the commit record of a
transaction may begin: that transaction's first change is (the same number, 0)."""


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """pg_logical_emit_message. Outside a transaction tx is -1, seq is OUTSIDE, and its place is its commit number.

    moment: of the commit, microseconds since 1970-01-01 UTC. Outside a transaction, where the WAL says none, of the
        commit before it, or of its sending if the session has seen none; a repeat may have another.
    table_seq: which of its transaction's messages this is, as Changes.table_seq. uuid: as Changes.uuid.
    """

    prefix: str
    content: bytes
    batch_order: int
    seq: int
    place: int
    tx: int
    moment: int = 0
    table_seq: int = 0
    uuid: bytes = b""


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A table in a shape that the stream has not shown before, or not last.

    before: its shape until now; None for a table that the source has not met yet.
    batch_order, seq, tx: of the change that follows, the first in the new shape.
    """

    relation: Relation
    before: Relation | None
    batch_order: int
    seq: int
    tx: int


@dataclass(frozen=True, slots=True)
class TableStatement:
    """A statement that made a table, altered, renamed or dropped it. A SchemaChange says later what the table is like
    now: the stream shows it with the table's next row.

    relation: the table as the stream has shown it until then; without columns where it has not.
    text: what the statement is and which tables it names, `RENAME TABLE shop.a TO shop.b`; no values.
    batch_order, seq, tx: of the change that follows.
    """

    relation: Relation
    text: str
    batch_order: int
    seq: int
    tx: int


@dataclass(frozen=True, slots=True, eq=False)
class TransactionMarks:
    """Where transactions begin in a batch, or where they end, in commit order.

    tx: index into Batch.transactions. batch_order: of the change before which they begin, or have ended.
    """

    tx: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    batch_order: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.tx)

    def take(self, chosen: NDArray[np.bool_]) -> TransactionMarks:
        """Those of the marks that are chosen."""
        return TransactionMarks(self.tx[chosen], self.batch_order[chosen])

    @classmethod
    def concat(cls, pieces: Sequence[TransactionMarks], shifts: Sequence[Shift]) -> TransactionMarks:
        """One behind the other, each moved by its shift."""
        return cls(
            np.concatenate([piece.tx + np.int32(by.transactions) for piece, by in zip(pieces, shifts, strict=True)]),
            np.concatenate([piece.batch_order + by.rows for piece, by in zip(pieces, shifts, strict=True)]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class TransactionCounts:
    """How many changes transactions have in all, by table; those of one transaction stand together.

    tx: index into Batch.transactions. table: index into tables, of which None stands for logical messages.
    """

    tx: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    table: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    count: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    tables: tuple[Relation | None, ...] = ()

    def take(self, chosen: NDArray[np.bool_]) -> TransactionCounts:
        """Those of the counts that are chosen."""
        return TransactionCounts(self.tx[chosen], self.table[chosen], self.count[chosen], self.tables)

    @classmethod
    def concat(cls, pieces: Sequence[TransactionCounts], shifts: Sequence[Shift]) -> TransactionCounts:
        """One behind the other, each moved by its shift."""
        before = np.cumsum([0, *(len(piece.tables) for piece in pieces[:-1])]).tolist()
        return cls(
            np.concatenate([piece.tx + np.int32(by.transactions) for piece, by in zip(pieces, shifts, strict=True)]),
            np.concatenate([piece.table + tables for piece, tables in zip(pieces, before, strict=True)]),
            np.concatenate([piece.count for piece in pieces]),
            tuple(chain.from_iterable(piece.tables for piece in pieces)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class TransactionMetadata:
    """What a batch says of its transactions beside their changes.

    begins: the transactions whose first change the batch has. ends: those whose commit it has; counts is of these.
    Transactions without changes are in neither, and an end may come in a batch without rows.
    """

    begins: TransactionMarks = field(default_factory=TransactionMarks)
    ends: TransactionMarks = field(default_factory=TransactionMarks)
    counts: TransactionCounts = field(default_factory=TransactionCounts)

    def __len__(self) -> int:
        return len(self.begins) + len(self.ends)

    @classmethod
    def concat(cls, pieces: Sequence[TransactionMetadata], shifts: Sequence[Shift]) -> TransactionMetadata:
        """One behind the other, each moved by its shift."""
        return cls(
            TransactionMarks.concat([piece.begins for piece in pieces], shifts),
            TransactionMarks.concat([piece.ends for piece in pieces], shifts),
            TransactionCounts.concat([piece.counts for piece in pieces], shifts),
        )

    def slice(self, first: int, last: int) -> TransactionMetadata:
        """What belongs to changes of [first, last) in batch order. An end goes with the change before it, if any."""
        begins, ends = self.begins.batch_order, np.maximum(self.ends.batch_order - 1, 0)
        ended = self.ends.take((ends >= first) & (ends < last))
        return TransactionMetadata(
            self.begins.take((begins >= first) & (begins < last)),
            ended,
            self.counts.take(np.isin(self.counts.tx, ended.tx)),
        )


POSTGRESQL = "postgresql"
"""The kind of PostgreSQL sources."""

MYSQL, MARIADB = "mysql", "mariadb"
OF_BINARY_LOGS = (MYSQL, MARIADB)
"""The kinds of sources that read a binary log."""


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Where changes come from, as events say it.

    kind: what the source reads from (`postgresql`, `mysql`, `sql`), in Debezium's word for the connector; events name
    transactions and places in its words. name: of the source's section. identity: what tells this server or file from
    others that have the same host and database (PostgreSQL: the system identifier; MySQL: the uuid of the server that
    made the transactions; MariaDB: their domain). server_id, log_name: of a server with a binary log: @@server_id, 0
    where it is not known, and what the names of the log's files begin with (`binlog`). encoded: whether the values are
    in Debezium's encoding already, because they were read from its events.
    """

    kind: str
    name: str
    host: str
    database: str
    identity: str = ""
    server_id: int = 0
    log_name: str = ""
    encoded: bool = False


# Measured as resident memory of batches with few rows in 1 to 5 tables of 4 to 20 columns: two arrays a column, each an
# object of Python's, one of Arrow's and its buffers.
_BATCH_OBJECTS, _CHANGES_OBJECTS, _COLUMN_OBJECTS = 2048, 1024, 1300


class Counted(NamedTuple):
    """Rows of a relation with one op, and the bytes of their values, old and new."""

    relation: Relation
    op: RowOp
    rows: int
    size: int


class BatchChanges(Sequence[Changes], ABC):
    """The row changes of a batch, by relation: a sequence of Changes, each of which has rows.

    Sources that have them otherwise make these views when somebody asks.
    """

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many there are, of all relations."""

    @property
    @abstractmethod
    def overhead(self) -> int:
        """Bytes of the objects that hold them."""

    @property
    @abstractmethod
    def next_batch_order(self) -> int:
        """The batch_order behind the last one."""

    @abstractmethod
    def count_rows(self) -> Iterator[Counted]:
        """Rows by relation and op."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = object.__hash__


class ByRelation(BatchChanges):
    """Changes as a source or a handler made them."""

    def __init__(self, changes: tuple[Changes, ...]) -> None:
        self._changes = changes

    @overload
    def __getitem__(self, index: int) -> Changes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Changes]: ...
    def __getitem__(self, index: int | slice) -> Changes | Sequence[Changes]:
        return self._changes[index]

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def rows(self) -> int:
        return sum(map(len, self._changes))

    @property
    def overhead(self) -> int:
        return sum(_CHANGES_OBJECTS + len(changes.columns) * _COLUMN_OBJECTS for changes in self._changes)

    @property
    def next_batch_order(self) -> int:
        return max((int(changes.batch_order.max(initial=-1)) + 1 for changes in self._changes), default=0)

    def count_rows(self) -> Iterator[Counted]:
        for changes in self._changes:
            sizes = np.zeros(len(changes), np.int64)
            for image in (changes.after, changes.before):
                for column in image.columns:
                    sizes[image.rows] += measure_lengths(column)
            rows, held = np.bincount(changes.op), np.bincount(changes.op, weights=sizes)
            for op in np.flatnonzero(rows).tolist():
                yield Counted(changes.relation, RowOp(op), int(rows[op]), int(held[op]))


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A micro-batch: changes of several relations, and the position reached when all of them are durable.

    A batch without rows is a mere move of the position (an idle server, transactions of other tables).
    continues: whether this is a piece of a batch, behind which others come. All have the position of the whole, which
        the last one reaches; so a sink keeps no position of a piece. Pieces come to handlers and sinks; a source makes
        none.
    changes: by relation; a BatchChanges, whatever it was made with.
    transaction_metadata: None where no sink wants it.
    rejections: what handlers put aside; the position counts only when they are durable as well.
    nbytes: what it holds in memory, roughly, `overhead` included; queues are bounded by it.
    """

    source: SourceInfo
    position: Position
    transactions: Transactions
    changes: Sequence[Changes] = ()
    truncates: tuple[Truncate, ...] = ()
    messages: tuple[LogicalMessage, ...] = ()
    schema_changes: tuple[SchemaChange, ...] = ()
    statements: tuple[TableStatement, ...] = ()
    transaction_metadata: TransactionMetadata | None = None
    rejections: tuple[Rejection, ...] = ()
    nbytes: int = 0
    received_at: float = 0.0  # time.monotonic() when its last byte arrived
    continues: bool = False

    def __post_init__(self) -> None:
        # isinstance asks the metaclass of an abstract class, which takes a microsecond for each of many small batches.
        if BatchChanges not in type(self.changes).__mro__:
            object.__setattr__(self, "changes", ByRelation(tuple(self.changes)))

    @property
    def rows(self) -> BatchChanges:
        """The changes with what may be asked of all of them at once."""
        return cast(BatchChanges, self.changes)  # __post_init__ made it one

    @property
    def idle(self) -> bool:
        """Whether there is nothing in it that a sink could write."""
        beside = self.schema_changes or self.statements or self.transaction_metadata or self.rejections
        return not (len(self) or beside)

    @property
    def overhead(self) -> int:
        """Bytes of the batch's objects, whatever its rows hold: most of a small batch."""
        return measure_batch_overhead(self.rows)

    def with_only(self, changes: Sequence[Changes]) -> Batch:
        """These changes, and nothing else of the batch but its transactions and its position."""
        return Batch(
            self.source, self.position, self.transactions, changes, nbytes=self.nbytes, received_at=self.received_at
        )

    def without_rows(self) -> Batch:
        """The same without its changes, which take most of its memory."""
        return replace(self, changes=())

    def __len__(self) -> int:
        """Changes, truncates and messages; not what was put aside."""
        return self.rows.rows + len(self.truncates) + len(self.messages)

    def count_changes(self) -> Iterator[tuple[str, str, Kind, int]]:
        """(schema, table, kind, rows) for every table and kind in the batch; a message counts under its prefix."""
        for found in self.rows.count_rows():
            yield found.relation.schema, found.relation.table, found.op, found.rows
        for truncate in self.truncates:
            yield truncate.relation.schema, truncate.relation.table, Marker.TRUNCATE, 1
        for message in self.messages:
            yield "", message.prefix, Marker.MESSAGE, 1


def measure_batch_overhead(changes: BatchChanges) -> int:
    """Bytes of the objects of a batch with these changes."""
    return _BATCH_OBJECTS + changes.overhead


Stats = Mapping[str, Any]
