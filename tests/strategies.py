"""Hypothesis strategies of whole replication histories, and the server that would send them.

A history is what happened in a database, in WAL order: transactions, messages outside of them, and keepalives.
`session` gives what one replication session sends of it from a start LSN on, as PostgreSQL does: whole
transactions that commit at or after the start, and a Relation message before the first use of each shape of a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hypothesis import strategies as st

from tests import pgoutput_wire as wire
from tests.pgoutput_wire import UNCHANGED, Cell, WireColumn, WireRelation

USER_TYPE = 16384
"""The first OID of what is not built in (FirstNormalObjectId); such a type is announced by a Type message."""


@dataclass(frozen=True)
class RowChange:
    """An insert, update or delete of a table in the shape that it has at this moment."""

    shape: WireRelation
    lsn: int
    new: tuple[Cell, ...] | None
    old: tuple[Cell, ...] | None
    old_kind: str = "K"

    def __repr__(self) -> str:
        old, new = (row if row is None else wire.few(row) for row in (self.old, self.new))
        return f"<{self.shape!r} at {self.lsn}: {self.old_kind}{old} -> {new}>"


@dataclass(frozen=True)
class Truncation:
    """A TRUNCATE of several tables."""

    shapes: tuple[WireRelation, ...]
    lsn: int
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True)
class Emitted:
    """pg_logical_emit_message."""

    lsn: int
    prefix: str
    content: bytes


@dataclass(frozen=True)
class Invalidation:
    """Something made the server forget that it described the table: it will do so again, perhaps the same."""

    oid: int


@dataclass(frozen=True)
class Alive:
    """A keepalive; inside a transaction it tells of a WAL end before the transaction's."""

    wal_end: int


Step = RowChange | Truncation | Emitted | Invalidation | Alive


@dataclass(frozen=True)
class Transaction:
    """A committed transaction; origin: name of the replication origin, empty for none."""

    xid: int
    commit_lsn: int
    end_lsn: int
    commit_ts: int
    steps: tuple[Step, ...]
    origin: str = ""


T = TypeVar("T")

Happening = Transaction | Emitted | Alive


@dataclass
class History:
    """What happened, in the order of the WAL."""

    happenings: list[Happening] = field(default_factory=list)

    def session(self, start: int = 0) -> list[bytes]:
        """The CopyData frames of a replication session that starts at this LSN."""
        session = _Session()
        payloads = [payload for happening in self.happenings for payload in session.send(happening, start)]
        return [wire.copy_data(payload) for payload in payloads]


class _Session:
    """One walsender: which shapes it has described so far."""

    def __init__(self) -> None:
        self._described: dict[int, WireRelation] = {}

    def send(self, happening: Happening, start: int) -> Iterator[bytes]:
        if isinstance(happening, Alive):
            yield wire.keepalive(happening.wal_end)
        elif isinstance(happening, Emitted):
            # Its LSN is where its record ends; the server skips a record that begins before the start point
            # (PostgreSQL source, logicalmsg_decode).
            if happening.lsn > start:
                yield self._emitted(happening, transactional=False)
        elif happening.commit_lsn >= start:
            yield from self._transaction(happening)

    def _transaction(self, tx: Transaction) -> Iterator[bytes]:
        yield wire.xlog_data(wire.begin(tx.commit_lsn, tx.commit_ts, tx.xid), tx.commit_lsn)
        if tx.origin:
            yield wire.xlog_data(wire.origin(tx.commit_lsn // 2, tx.origin), tx.commit_lsn)
        for step in tx.steps:
            yield from self._step(step)
        yield wire.xlog_data(wire.commit(tx.commit_lsn, tx.end_lsn, tx.commit_ts), tx.end_lsn)

    def _step(self, step: Step) -> Iterator[bytes]:
        if isinstance(step, Alive):
            yield wire.keepalive(step.wal_end)
        elif isinstance(step, Emitted):
            yield self._emitted(step, transactional=True)
        elif isinstance(step, Invalidation):
            self._described.pop(step.oid, None)
        elif isinstance(step, Truncation):
            for shape in step.shapes:
                yield from self._describe(shape)
            message = wire.truncate(
                [shape.oid for shape in step.shapes], cascade=step.cascade, restart_identity=step.restart_identity
            )
            yield wire.xlog_data(message, step.lsn)
        else:
            yield from self._describe(step.shape)
            yield wire.xlog_data(_row_message(step), step.lsn)

    def _describe(self, shape: WireRelation) -> Iterator[bytes]:
        if self._described.get(shape.oid) == shape:
            return
        self._described[shape.oid] = shape
        for oid in dict.fromkeys(column.type_oid for column in shape.columns if column.type_oid >= USER_TYPE):
            yield wire.xlog_data(wire.type_(oid, "public", f"type{oid}"))
        yield wire.xlog_data(wire.relation(shape))

    def _emitted(self, message: Emitted, *, transactional: bool) -> bytes:
        body = wire.message(message.lsn, message.prefix, message.content, transactional=transactional)
        return wire.xlog_data(body, message.lsn)


def _row_message(change: RowChange) -> bytes:
    if change.new is None:
        assert change.old is not None
        return wire.delete(change.shape.oid, change.old, change.old_kind)
    if change.old is None and change.old_kind == "":
        return wire.insert(change.shape.oid, change.new)
    return wire.update(change.shape.oid, change.new, change.old, change.old_kind)


_names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
_texts = st.one_of(
    st.sampled_from([b"", b"0", b"n", b"t", b"NULL", "żółć 🐘".encode(), b"t\0\0\0\1x", b"d\0\0\0\x05k"]),
    st.binary(max_size=12),
)
_cells: st.SearchStrategy[Cell] = st.one_of(_texts, st.none())
_new_cells: st.SearchStrategy[Cell] = st.one_of(_texts, st.none(), st.just(UNCHANGED))
_columns = st.builds(
    WireColumn,
    name=_names,
    type_oid=st.sampled_from([16, 20, 25, 1700, 3802, USER_TYPE, USER_TYPE + 7]),
    typmod=st.sampled_from([-1, 4, 786438]),
    key=st.booleans(),
)


@st.composite
def histories(draw: st.DrawFn, max_happenings: int = 8, max_width: int = 200) -> History:
    """Several tables, several transactions, shapes that change in between."""
    tables = [draw(_shapes(16400 + index, max_width)) for index in range(draw(st.integers(1, 4)))]
    history = History()
    lsn = draw(st.integers(1, 1 << 48))
    for _ in range(draw(st.integers(0, max_happenings))):
        kind = draw(st.sampled_from(["transaction", "transaction", "transaction", "message", "alive"]))
        if kind == "transaction":
            transaction = draw(_transactions(tables, lsn))
            history.happenings.append(transaction)
            lsn = transaction.end_lsn
        elif kind == "message":
            lsn += draw(st.integers(8, 500))
            history.happenings.append(draw(_emitted(lsn)))
        else:
            # After a commit a keepalive may still tell of the WAL end before it.
            lsn += draw(st.sampled_from([0, 0, 56]))
            history.happenings.append(Alive(draw(st.sampled_from([lsn, max(0, lsn - 100)]))))
    return history


@st.composite
def _transactions(draw: st.DrawFn, tables: list[WireRelation], after: int) -> Transaction:
    """A transaction whose commit record begins at this LSN or later; what it alters stays altered in `tables`."""
    commit_lsn = after + draw(st.sampled_from([0, draw(st.integers(1, 5000))]))
    steps: list[Step] = []
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["row"] * 6 + ["alter", "truncate", "message", "alive", "invalidation"]))
        which = draw(st.integers(0, len(tables) - 1))
        # The row LSNs of transactions that ran side by side interleave, and COPY writes many rows in one record.
        lsn = draw(st.sampled_from([commit_lsn - 1, max(0, after - 40), after]))
        if kind == "row":
            steps += [draw(_row_changes(tables[which], lsn)) for _ in range(draw(st.sampled_from([1, 1, 3])))]
        elif kind == "alter":
            tables[which] = draw(_alterations(tables[which]))
        elif kind == "truncate":
            some = draw(st.lists(st.sampled_from(tables), min_size=1, unique_by=lambda shape: shape.oid))
            steps.append(Truncation(tuple(some), lsn, draw(st.booleans()), draw(st.booleans())))
        elif kind == "message":
            steps.append(draw(_emitted(lsn)))
        elif kind == "alive":
            steps.append(Alive(after))
        else:
            steps.append(Invalidation(tables[which].oid))
    return Transaction(
        xid=draw(st.integers(3, 2**32 - 1)),
        commit_lsn=commit_lsn,
        end_lsn=commit_lsn + draw(st.integers(1, 100)),
        commit_ts=draw(st.integers(-(2**50), 2**50)),
        steps=tuple(steps),
        origin=draw(st.sampled_from(["", "", "node_b"])),
    )


@st.composite
def _shapes(draw: st.DrawFn, oid: int, max_width: int) -> WireRelation:
    width = min(draw(st.sampled_from([1, 0, 2, 3, 4, 5] * 4 + [200])), max_width)
    few = draw(st.lists(_columns, min_size=min(width, 1), max_size=5))
    columns = tuple(_cycle(few, width))
    return _with_identity(WireRelation(oid, draw(_names), draw(_names), columns), draw(st.sampled_from("dnfi")))


@st.composite
def _alterations(draw: st.DrawFn, shape: WireRelation) -> WireRelation:
    """ADD, DROP, RENAME COLUMN, RENAME TO, or another replica identity."""
    kind = draw(st.sampled_from(["add", "drop", "rename column", "rename", "identity"]))
    columns = shape.columns
    if kind == "add":
        return _with_identity(replace(shape, columns=(*columns, draw(_columns))), shape.identity)
    if kind == "drop":
        return replace(shape, columns=columns[:-1])
    if kind == "rename column" and columns:
        return replace(shape, columns=(replace(columns[0], name=draw(_names)), *columns[1:]))
    if kind == "identity":
        return _with_identity(shape, draw(st.sampled_from("dnfi")))
    return replace(shape, table=draw(_names))


def _with_identity(shape: WireRelation, identity: str) -> WireRelation:
    """FULL flags every column as key, NOTHING none (logicalrep_write_attrs in PostgreSQL's source)."""
    forced = {"f": True, "n": False}.get(identity)
    columns = shape.columns
    if forced is not None:
        columns = tuple(replace(column, key=forced) for column in columns)
    return replace(shape, identity=identity, columns=columns)


@st.composite
def _row_changes(draw: st.DrawFn, shape: WireRelation, lsn: int) -> RowChange:
    width = len(shape.columns)
    full = shape.identity == "f"
    op = draw(st.sampled_from("IUD" if full or any(column.key for column in shape.columns) else "IU"))
    if op == "I":
        return RowChange(shape, lsn, draw(_rows(width, _cells)), None, old_kind="")
    old = None
    if full:
        old = draw(_rows(width, _cells))
    elif op == "D" or (any(column.key for column in shape.columns) and draw(st.booleans())):
        cells = draw(_rows(width, _cells))
        old = tuple(cell if column.key else None for cell, column in zip(cells, shape.columns, strict=True))
    new = draw(_rows(width, _new_cells)) if op == "U" else None
    return RowChange(shape, lsn, new, old, "O" if full else "K")


@st.composite
def _rows(draw: st.DrawFn, width: int, cells: st.SearchStrategy[Cell]) -> tuple[Cell, ...]:
    """A row; of a wide table a few cells over and over."""
    return tuple(_cycle(draw(st.lists(cells, min_size=min(width, 1), max_size=min(width, 7))), width))


def _cycle(few: Sequence[T], count: int) -> Iterator[T]:
    return (few[index % len(few)] for index in range(count))


@st.composite
def _emitted(draw: st.DrawFn, lsn: int) -> Emitted:
    return Emitted(lsn, draw(_names), draw(st.binary(max_size=20)))
