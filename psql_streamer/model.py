"""The values that flow: Lsn, Position, Column, Relation, Changes, Batch.

Nothing here does I/O. Arrays are numpy or Arrow, one element a row; the naming follows PostgreSQL's
protocol documentation ("Logical Replication Message Formats").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.pgtype import PgType


class Lsn(int):
    """A position in the write-ahead log: bytes since its beginning, shown as PostgreSQL does (`16/B374D848`)."""

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn({self})"

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Read `16/B374D848` or a plain number; ValueError for anything else."""
        high, slash, low = text.partition("/")
        value = (int(high, 16) << 32) | int(low, 16) if slash else int(text)
        if not 0 <= value < 1 << 64 or (slash and int(low, 16) >> 32):
            raise ValueError(f"{text!r} is not an LSN such as 16/B374D848")
        return cls(value)


NO_LSN = Lsn(0)
"""PostgreSQL's InvalidXLogRecPtr: no position."""


@dataclass(frozen=True, slots=True)
class Position:
    """What a source resumes from.

    lsn: end LSN of the last committed transaction that lies wholly behind.
    commit_lsn, changes: of the transaction after it, how many changes are durable already (0, 0: none).
    """

    lsn: Lsn
    commit_lsn: Lsn = NO_LSN
    changes: int = 0

    def __str__(self) -> str:
        inside = f"+{self.changes} of {self.commit_lsn}" if self.changes else ""
        return f"{self.lsn}{inside}"


class Op(IntEnum):
    """What happened to a row, to a transaction (BEGIN, COMMIT) or to a table (RELATION); the numbers are pgoutput's
    message bytes.
    """

    INSERT = ord("I")
    UPDATE = ord("U")
    DELETE = ord("D")
    TRUNCATE = ord("T")
    MESSAGE = ord("M")
    BEGIN = ord("B")
    COMMIT = ord("C")
    RELATION = ord("R")

    @property
    def action(self) -> str:
        """The name in events, metrics and logs: `insert`."""
        return self.name.lower()


class ReplicaIdentity(IntEnum):
    """pg_class.relreplident: which columns an old row image holds."""

    DEFAULT = ord("d")
    NOTHING = ord("n")
    FULL = ord("f")
    INDEX = ord("i")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation: its type is pg_attribute's atttypid and atttypmod.

    key: part of the replica identity, or (FULL) of the primary key.
    type_oid 0: made by a handler, and of no type of PostgreSQL's; arrow: its Arrow type.
    type: what the OID stands for, where the source could say; it takes no part in comparisons.
    """

    name: str
    type_oid: int
    typmod: int = -1
    key: bool = False
    type: PgType | None = field(default=None, compare=False, repr=False)
    arrow: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """A table in one shape; a Relation message with another shape makes another Relation.

    version: counts the shapes of this oid in the order in which the stream showed them, from 1.
    keyed: under FULL, whether the columns flagged as key are the primary key's. pgoutput flags them all.
    """

    oid: int
    schema: str
    table: str
    replica_identity: ReplicaIdentity
    columns: tuple[Column, ...]
    version: int = 1
    keyed: bool = False

    @property
    def key_columns(self) -> tuple[int, ...]:
        """Indexes of the columns that tell the rows apart; none under FULL where no primary key is known."""
        if self.replica_identity is ReplicaIdentity.FULL and not self.keyed:
            return ()
        return tuple(i for i, column in enumerate(self.columns) if column.key)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class ReplicationOrigin:
    """Where a transaction comes from that was replayed: the origin's name, and the LSN of the commit there (0: nobody
    said).
    """

    name: str
    commit_lsn: int


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions that the changes of a batch belong to, in commit order; rows point in by index.

    origins: index -> the replication origin of those that have one.
    """

    commit_lsn: NDArray[np.uint64]
    xid: NDArray[np.uint32]
    commit_ts: NDArray[np.int64]  # microseconds since 1970-01-01 UTC
    origins: Mapping[int, ReplicationOrigin] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.xid)


@dataclass(frozen=True, slots=True)
class Image:
    """One image (old or new) of rows: an Arrow array a column, all of one length.

    columns: from the wire these are `binary` arrays of PostgreSQL's text form; a handler may give any
        Arrow type. Null is SQL NULL, or a column that the image lacks, or unchanged TOAST.
    rows: index into the Changes' rows, strictly increasing: which row each element belongs to.
    absent: column index -> True where the image lacks the column (a key-only old row, unchanged TOAST).
    """

    columns: tuple[pa.Array, ...]
    rows: NDArray[np.int64]
    absent: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Changes:
    """Row changes of one Relation (one shape), columnar. All arrays have one element a row.

    ordinal: place in the batch, over all relations: sorting by it gives commit order.
    seq: which change of its transaction this is, from 0. With commit_lsn it is the change's identity.
    lsn: where the change's WAL record starts. Several rows may share one (COPY).
    tx: index into Batch.transactions.
    tally: which change of its table in its transaction this is, from 0. Truncates count, too. 0 throughout where no
        sink wants transaction metadata.
    after: new rows of inserts and updates. before: old rows of deletes and (where the replica identity
        gives them) updates; Image.rows says which.
    columns: what the images' arrays are. The relation's own, unless a handler made others.
    """

    relation: Relation
    columns: tuple[Column, ...]
    ordinal: NDArray[np.int64]
    op: NDArray[np.uint8]
    seq: NDArray[np.int64]
    lsn: NDArray[np.uint64]
    tx: NDArray[np.int32]
    tally: NDArray[np.int64]
    after: Image
    before: Image

    def __len__(self) -> int:
        return len(self.op)


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
    ordinal: int
    seq: int
    lsn: int
    tx: int
    cascade: bool
    restart_identity: bool
    tally: int = 0  # as Changes.tally


OUTSIDE = -1
"""The seq of a logical message outside a transaction. Its LSN is where its record ends, where the commit record of a
transaction may begin: that transaction's first change is (the same LSN, 0)."""


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """pg_logical_emit_message. Outside a transaction tx is -1, seq is OUTSIDE, and commit_lsn the message's own LSN.

    moment: of the commit, microseconds since 1970-01-01 UTC. Outside a transaction, where the WAL says none, of the
        commit before it, or of its sending if the session has seen none; a repeat may have another.
    tally: which of its transaction's messages this is, as Changes.tally.
    """

    prefix: str
    content: bytes
    ordinal: int
    seq: int
    lsn: int
    tx: int
    moment: int = 0
    tally: int = 0


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A table in a shape that the stream has not shown before, or not last.

    before: its shape until now; None for a table that the source has not met yet.
    ordinal, seq, tx: of the change that follows, the first in the new shape.
    """

    relation: Relation
    before: Relation | None
    ordinal: int
    seq: int
    tx: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where transactions begin in a batch, or where they end, in commit order.

    tx: index into Batch.transactions. ordinal: of the change before which they begin, or have ended.
    """

    tx: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    ordinal: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.tx)


@dataclass(frozen=True, slots=True)
class Tallies:
    """How many changes transactions have in all, by table; those of one transaction stand together.

    tx: index into Batch.transactions. table: index into tables, of which None stands for logical messages.
    """

    tx: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    table: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    count: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    tables: tuple[Relation | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where changes come from: the source's name and what events say of the server."""

    source: str
    host: str
    database: str
    system_identifier: str = ""


# Measured as resident memory of batches with few rows in 1 to 5 tables of 4 to 20 columns: two arrays a column, each an
# object of Python's, one of Arrow's and its buffers.
_BATCH_OBJECTS, _CHANGES_OBJECTS, _COLUMN_OBJECTS = 2048, 1024, 1300


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: changes of several relations, and the position reached when all of them are durable.

    A batch without rows is a mere move of the position (an idle server, transactions of other tables).
    begins: the transactions whose first change it has. ends: those whose commit it has; tallies is of these.
        Transactions without changes are in neither, and an end may come in a batch without rows. All three are empty
        where no sink wants transaction metadata.
    rejections: what handlers put aside; the position counts only when they are durable as well.
    nbytes: what it holds in memory, roughly, `overhead` included; queues are bounded by it.
    """

    origin: Origin
    position: Position
    transactions: Transactions
    changes: tuple[Changes, ...] = ()
    truncates: tuple[Truncate, ...] = ()
    messages: tuple[LogicalMessage, ...] = ()
    schema_changes: tuple[SchemaChange, ...] = ()
    begins: Bounds = field(default_factory=Bounds)
    ends: Bounds = field(default_factory=Bounds)
    tallies: Tallies = field(default_factory=Tallies)
    rejections: tuple[Rejection, ...] = ()
    nbytes: int = 0
    received_at: float = 0.0  # time.monotonic() when its last byte arrived

    @property
    def idle(self) -> bool:
        """Whether there is nothing in it that a sink could write."""
        return not (len(self) or self.schema_changes or len(self.begins) or len(self.ends) or self.rejections)

    @property
    def overhead(self) -> int:
        """Bytes of the batch's objects, whatever its rows hold: most of a small batch."""
        return _BATCH_OBJECTS + sum(_CHANGES_OBJECTS + len(one.columns) * _COLUMN_OBJECTS for one in self.changes)

    def __len__(self) -> int:
        """Changes, truncates and messages; not what was put aside."""
        return sum(map(len, self.changes)) + len(self.truncates) + len(self.messages)

    def counts(self) -> Iterator[tuple[str, str, Op, int]]:
        """(schema, table, op, rows) for every table and op in the batch; a message counts under its prefix."""
        for change in self.changes:
            ops, rows = np.unique(change.op, return_counts=True)
            for op, count in zip(ops.tolist(), rows.tolist(), strict=True):
                yield change.relation.schema, change.relation.table, Op(op), count
        for truncate in self.truncates:
            yield truncate.relation.schema, truncate.relation.table, Op.TRUNCATE, 1
        for message in self.messages:
            yield "", message.prefix, Op.MESSAGE, 1


Stats = Mapping[str, Any]
