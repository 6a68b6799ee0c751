"""Records of many kinds as those of one batch, in the order in which they were committed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.binary_columns import pack_values
from psql_streamer.cells import join_arrays
from psql_streamer.events.plans import number_names
from psql_streamer.events.records import WHOLE, Records
from psql_streamer.events.timestamps import Timestamps, choose_timestamps
from psql_streamer.model import NO_RECORD_TIME, Index, Kind, Marker, RowOp, SourceInfo

_Number = TypeVar("_Number", bound=np.generic)

HEADERS = (
    *("commit_lsn", "commit", "seq", "part", "parts", "xid", "transaction", "gtid", "op"),
    *("schema", "table", "checksum", "key_change", "unchanged", "snapshot", "uuid"),
)
"""The headers that `headers = true` adds. key_change: on the two halves of an update that changed the key. unchanged:
names of the columns that a row lacks because an update left their TOASTed values alone. part, parts: on rows that are
one of several of their change. snapshot: on rows of snapshots, its id. uuid: on both, what tells the row from others:
rows that are read again have other commit numbers."""

_OURS = re.compile(r"(?:dead_letter_|__debezium\.).*", re.DOTALL)

MOST_HEADER_NAMES = 100
"""Names of headers that rows of one batch have of their own. A sink lays a batch out with a place for each of them."""


def is_ours(header: str) -> bool:
    """Whether the service gives a header of this name, or may."""
    return header in HEADERS or _OURS.fullmatch(header) is not None


@dataclass(frozen=True, slots=True)
class Encoded:
    """Records on their way into Records. topics, tables: indexes into the names. snapshot, part, timestamps: of all of
    them, as Records has them. addressed: whether rows say where they go.
    """

    topic_names: Sequence[str]
    topics: NDArray[np.int32]
    table_names: Sequence[str]
    tables: NDArray[np.int32]
    batch_order: NDArray[np.int64]
    keys: pa.Array
    values: pa.Array
    commit: NDArray[np.uint64]
    seq: NDArray[np.int64]
    op: Kind
    headers: Mapping[str, pa.Array]
    snapshot: pa.Array | None = None
    part: Index | None = None
    timestamps: Index | None = None
    addressed: bool = False

    def take(self, at: Index) -> Encoded:
        """Some of the records."""
        if len(at) == len(self.batch_order):
            return self
        arrow = pa.array(at)
        return replace(
            self,
            topics=self.topics[at],
            tables=self.tables[at],
            batch_order=self.batch_order[at],
            keys=self.keys.take(arrow),
            values=self.values.take(arrow),
            commit=self.commit[at],
            seq=self.seq[at],
            headers={name: texts.take(arrow) for name, texts in self.headers.items()},
            snapshot=None if self.snapshot is None else self.snapshot.take(arrow),
            part=None if self.part is None else self.part[at],
            timestamps=None if self.timestamps is None else self.timestamps[at],
        )


@dataclass(frozen=True, slots=True)
class Single:
    """A record of its own: of a truncate, a logical message or a table's shape.

    headers: what is known of it beyond its identity; None: no headers are wanted. moment: when it was committed, in
    microseconds since 1970-01-01 UTC.
    """

    topic: str
    table: str
    batch_order: int
    commit: int
    seq: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str] | None
    moment: int


def encode_singles(op: Marker, singles: Iterable[Single], timestamps: Timestamps) -> Iterator[Encoded]:
    """Singles of one kind together: an array for each of thousands would take longer than all else."""
    each = list(singles)
    if not each:
        return
    topic_names, topics = number_names(one.topic for one in each)
    table_names, tables = number_names(one.table for one in each)
    wanted = [{} if one.headers is None else {"seq": str(one.seq), "op": op.action, **one.headers} for one in each]
    yield Encoded(
        topic_names,
        topics,
        table_names,
        tables,
        np.array([one.batch_order for one in each], np.int64),
        pack_values([one.key for one in each]),
        pack_values([one.value for one in each]),
        np.array([one.commit for one in each], np.uint64),
        np.array([one.seq for one in each], np.int64),
        op,
        {
            name: pa.array(
                [None if (text := held.get(name)) is None else text.encode() for held in wanted], pa.binary()
            )
            for name in dict.fromkeys(chain.from_iterable(wanted))
        },
        timestamps=choose_timestamps(timestamps, np.array([one.moment for one in each], np.int64)),
    )


def assemble(parts: list[Encoded], source: SourceInfo) -> Records:
    """All parts as one, sorted by batch_order: the order in which they were committed."""
    parts = [part for part in parts if len(part.batch_order)]
    topic_names, topics = join_names([(part.topic_names, part.topics) for part in parts])
    table_names, tables = join_names([(part.table_names, part.tables) for part in parts])
    sizes = [len(part.batch_order) for part in parts]
    batch_order = _concat([part.batch_order for part in parts], np.int64)
    part = join_arrays([(one.part, size) for one, size in zip(parts, sizes, strict=True)], WHOLE)
    timestamps = join_arrays([(one.timestamps, size) for one, size in zip(parts, sizes, strict=True)], NO_RECORD_TIME)
    order = _order(parts, batch_order, part)
    held = {header for part in parts for header in part.headers}
    headers = order_headers(held)
    of_snapshots = any(part.snapshot is not None for part in parts)
    return Records(
        source=source,
        topic_names=topic_names,
        topics=_sort_numbers(topics, order),
        keys=_sort_arrow([part.keys for part in parts], order),
        values=_sort_arrow([part.values for part in parts], order),
        commit=_sort_numbers(_concat([part.commit for part in parts], np.uint64), order),
        seq=_sort_numbers(_concat([part.seq for part in parts], np.int64), order),
        op=_sort_numbers(np.repeat([int(part.op) for part in parts], sizes).astype(np.uint8), order),
        table_names=table_names,
        tables=_sort_numbers(tables, order),
        headers={
            header: _sort_arrow(
                [part.headers.get(header, pa.nulls(len(part.batch_order), pa.binary())) for part in parts], order
            )
            for header in headers
        },
        snapshot=_sort_arrow([_fill_snapshot(part) for part in parts], order) if of_snapshots else None,
        part=None if part is None else _sort_numbers(part, order),
        timestamps=None if timestamps is None else _sort_numbers(timestamps, order),
    )


def _order(parts: Sequence[Encoded], batch_order: Index, part: Index | None) -> Index | None:
    """How to sort the records; None: they are sorted.

    A stable sort keeps the delete of an old key before the insert of the new one: they share their place. A begin has
    that of its transaction's first change, and an end that of the change behind it. Of the parts of a change all
    deletes come first: the key of one that is gone may be that of another one now. So do those of rows that leave a
    topic, which are not encoded with those that come there.
    """
    if part is None and not any(one.addressed for one in parts):
        return np.argsort(batch_order, kind="stable") if len(parts) > 1 else None
    turns = [(0 if not isinstance(one.op, RowOp) else 1 if one.op is RowOp.DELETE else 2) for one in parts]
    turn = np.repeat(turns, [len(one.batch_order) for one in parts])
    return np.lexsort((turn, batch_order) if part is None else (part, turn, batch_order))


def _fill_snapshot(part: Encoded) -> pa.Array:
    return pa.nulls(len(part.batch_order), pa.binary()) if part.snapshot is None else part.snapshot


def order_headers(held: set[str]) -> list[str]:
    """These headers as records have them: ours, and behind them those of formats."""
    if not held:
        return []
    return [*(header for header in HEADERS if header in held), *sorted(held.difference(HEADERS))]


def join_names(
    parts: Sequence[tuple[Sequence[str], NDArray[np.int32]]],
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """The names that some record has, and by record which of them it is."""
    numbers: dict[str, int] = {}
    found = []
    for names, which in parts:
        there = np.flatnonzero(np.bincount(which))
        place = np.empty(len(names), np.int32)
        place[there] = [numbers.setdefault(names[at], len(numbers)) for at in there.tolist()]
        found.append(place[which])
    return tuple(numbers), _concat(found, np.int32)


def _concat(arrays: list[NDArray[_Number]], kind: type[_Number]) -> NDArray[_Number]:
    return np.concatenate(arrays) if arrays else np.empty(0, kind)


def _sort_numbers(array: NDArray[_Number], order: NDArray[np.int64] | None) -> NDArray[_Number]:
    return array if order is None else array[order]


def _sort_arrow(arrays: list[pa.Array], order: NDArray[np.int64] | None) -> pa.Array:
    if not arrays:
        return pa.array([], pa.binary())
    if order is None:
        return arrays[0]
    return pa.concat_arrays(arrays).take(pa.array(order))
