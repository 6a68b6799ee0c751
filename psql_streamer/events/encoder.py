"""A batch as records: routed, keyed, encoded, in commit order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.cells import CellTable, OfShapes, Shape, cells_of
from psql_streamer.errors import SinkRefused
from psql_streamer.events.digits import numbers
from psql_streamer.events.format import BatchFormat, Format, RowTexts, commit_of
from psql_streamer.events.json.objects import RowJson, unchanged_json
from psql_streamer.events.key_columns import KeyColumns
from psql_streamer.events.per_transaction import Part
from psql_streamer.events.records import Records
from psql_streamer.events.routing import Route, Router, SourceTopic
from psql_streamer.events.rows import Keys, Rows, split
from psql_streamer.events.schema_change import schema_change_json, schema_change_key
from psql_streamer.events.source_fields import fields_of
from psql_streamer.events.unchanged import Unchanged
from psql_streamer.model import (
    Batch,
    Index,
    Kind,
    LogicalMessage,
    Marker,
    Relation,
    RowOp,
    SchemaChange,
    SourceInfo,
    Truncate,
)
from psql_streamer.name_counts import shown

_Number = TypeVar("_Number", bound=np.generic)

HEADERS = (
    *("commit_lsn", "commit", "seq", "xid", "transaction", "op"),
    *("schema", "table", "checksum", "key_change", "unchanged"),
)
"""The headers that `headers = true` adds. key_change: on the two halves of an update that changed the key. unchanged:
names of the columns that a row lacks because an update left their TOASTed values alone."""


@dataclass(slots=True)
class _LeftOut:
    """What has no topic, by Records' names for it."""

    skipped: Counter[str] = field(default_factory=Counter)
    skipped_messages: Counter[str] = field(default_factory=Counter)
    excluded: int = 0


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Records on their way into Records. topics, tables: indexes into the names."""

    topic_names: Sequence[str]
    topics: NDArray[np.int32]
    table_names: Sequence[str]
    tables: NDArray[np.int32]
    ordinal: NDArray[np.int64]
    keys: pa.Array
    values: pa.Array
    commit: NDArray[np.uint64]
    seq: NDArray[np.int64]
    op: Kind
    headers: Mapping[str, pa.Array]

    def take(self, at: Index) -> _Encoded:
        """Some of the records."""
        if len(at) == len(self.ordinal):
            return self
        arrow = pa.array(at)
        return replace(
            self,
            topics=self.topics[at],
            tables=self.tables[at],
            ordinal=self.ordinal[at],
            keys=self.keys.take(arrow),
            values=self.values.take(arrow),
            commit=self.commit[at],
            seq=self.seq[at],
            headers={name: texts.take(arrow) for name, texts in self.headers.items()},
        )


@dataclass(frozen=True, slots=True)
class _Way:
    """One way of a relation's rows to topics: the columns that key them, and the topics."""

    key: tuple[int, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What becomes of the rows of one shape. table: as records name it. refusal: why it can have none."""

    table: str
    ways: tuple[_Way, ...]
    refusal: SinkRefused | None = None


class _Ways:
    """One way of each shape. topics: for each place in a way, names, and for each shape which it is or -1."""

    def __init__(self, ways: Sequence[_Way]) -> None:
        self.keys = Keys([way.key for way in ways])
        most = max((len(way.topics) for way in ways), default=0)
        self.topics = [
            _numbers_of([way.topics[place] if place < len(way.topics) else None for way in ways])
            for place in range(most)
        ]


class _Plans:
    """What becomes of the rows of all shapes of a list, as it was. of_way: the first way of each shape, the second."""

    def __init__(self, plans: Sequence[_Plan]) -> None:
        self.tables = [plan.table for plan in plans]
        self.ways = np.array([len(plan.ways) for plan in plans], np.int64)
        self._refused = {number: plan.refusal for number, plan in enumerate(plans) if plan.refusal is not None}
        self.of_way = [
            _Ways([plan.ways[number] if number < len(plan.ways) else _NO_WAY for plan in plans])
            for number in range(int(self.ways.max(initial=0)))
        ]

    def refuse_rows(self, table: CellTable) -> None:
        """Raise for a shape that cannot be written, if it has rows. A table that has none may be as it likes."""
        if not self._refused:
            return
        there = set(np.flatnonzero(np.bincount(table.shape)).tolist())
        for number, refusal in self._refused.items():
            if number in there:
                raise SinkRefused(refusal.what, refusal.remedy)


_NO_WAY = _Way((), ())


class _SourcePlans:
    """Plans for the shapes of one source's batches."""

    def __init__(self, make: Callable[[Shape], _Plan]) -> None:
        self._of_shapes = OfShapes(make)
        self._last: tuple[Sequence[Shape], int, _Plans] | None = None

    def of(self, shapes: Sequence[Shape]) -> _Plans:
        """For the shapes that the list has now."""
        if self._last is None or self._last[0] is not shapes or self._last[1] != len(shapes):
            plans = self._of_shapes.of(shapes)
            self._last = shapes, len(plans), _Plans(plans)
        return self._last[2]


class Encoder:
    """Encodes batches for one sink.

    format: what makes keys and values. key: which columns key the events of a table in place of the replica
    identity's, as KeyColumns takes it. headers: whether every record carries its identity as headers, too.
    unchanged: what becomes of TOASTed values that an update left alone. transaction_topic: where the records go that
    say where transactions begin and end, in a format that has them. schema_topic: where new shapes of tables go. In
    both topics `{source}` stands for the source's name.
    """

    def __init__(
        self,
        format: Format,  # noqa: A002 - the option's name
        router: Router,
        key: Mapping[str, tuple[str, ...]],
        headers: bool = False,
        unchanged: Unchanged | None = None,
        transaction_topic: str = "",
        schema_topic: str = "",
    ) -> None:
        self._format = format
        self._router = router
        self._key = KeyColumns(key)
        self._headers = headers or format.headers
        self._transaction_topic = SourceTopic("transactionTopic", transaction_topic) if transaction_topic else None
        self._schema_topic = SourceTopic("schemaTopic", schema_topic) if schema_topic else None
        self._json = RowJson()
        self._plans: dict[str, _SourcePlans] = {}
        policy = unchanged or Unchanged()
        self._unchanged = policy.marked() if format.marks else policy

    def encode(self, batch: Batch) -> Records:
        """Records of everything in the batch that a rule gives a topic. SinkRefused: a key column is missing."""
        form = self._format.of(batch)
        left_out = _LeftOut()
        parts = list(
            chain(
                self._boundaries(form, self._transaction_topic) if self._transaction_topic else (),
                self._schema_changes(batch, self._schema_topic) if self._schema_topic else (),
                self._rows(form, batch, left_out),
                self._truncates(form, batch.truncates, left_out),
                self._messages(form, batch.messages, left_out),
            )
        )
        return replace(
            _records(parts, batch.source),
            skipped=left_out.skipped,
            skipped_messages=left_out.skipped_messages,
            excluded=left_out.excluded,
            nulled=form.nulled,
        )

    def stop(self) -> None:
        """Release what the format holds. May be called twice; another batch may come after it."""
        self._format.stop()

    def _boundaries(self, form: BatchFormat, topic: SourceTopic) -> Iterable[_Encoded]:
        for records in form.boundaries():
            transactions, tx = form.batch.transactions, records.marks.tx
            headers = {
                **form.fields.headers(transactions, tx),
                "op": pa.repeat(pa.scalar(records.op.action.encode(), pa.binary()), len(tx)),
            }
            none = np.zeros(len(tx), np.int32)
            yield _Encoded(
                (topic.of(form.batch.source.name),),
                none,
                ("transaction",),
                none,
                records.marks.ordinal,
                records.keys,
                records.values,
                transactions.commit[tx],
                records.seq,
                records.op,
                headers if self._headers else {},
            )

    def _rows(self, form: BatchFormat, batch: Batch, left_out: _LeftOut) -> Iterable[_Encoded]:
        """Records of the row changes, in each of the ways that their relations have."""
        table = cells_of(batch.changes)
        if not table.rows:
            return
        plans = self._plans_of(batch.source.name).of(table.shapes)
        plans.refuse_rows(table)
        if len(plans.of_way) != 1 or not plans.ways.all():
            self._leave_out_rows(table, plans, left_out)
        for number, ways in enumerate(plans.of_way):
            for rows in split(_having(table, plans.ways > number), ways.keys, self._unchanged):
                yield from self._to_topics(form, rows, plans.tables, ways)

    def _plans_of(self, source: str) -> _SourcePlans:
        if source not in self._plans:
            self._plans[source] = _SourcePlans(partial(self._plan, source))
        return self._plans[source]

    def _plan(self, source: str, shape: Shape) -> _Plan:
        topics: dict[tuple[int, ...], list[str]] = {}
        try:
            for route in self._router.topics(source, shape.relation.schema, shape.relation.table):
                topics.setdefault(self._key_columns(shape, route.key), []).append(route.topic)
        except SinkRefused as refusal:
            return _Plan(str(shape.relation), (), refusal)
        return _Plan(str(shape.relation), tuple(_Way(key, tuple(names)) for key, names in topics.items()))

    def _routes(self, batch: Batch, relation: Relation) -> Sequence[Route]:
        return self._router.topics(batch.source.name, relation.schema, relation.table)

    def _leave_out_rows(self, table: CellTable, plans: _Plans, left_out: _LeftOut) -> None:
        """Count the rows that have no topic."""
        counts = np.bincount(table.shape, minlength=len(plans.ways))
        for at in np.flatnonzero((plans.ways == 0) & (counts > 0)).tolist():
            self._leave_out(table.shapes[at].relation, int(counts[at]), left_out)

    def _leave_out(self, relation: Relation, rows: int, left_out: _LeftOut) -> None:
        if self._router.excludes(relation.schema, relation.table):
            left_out.excluded += rows
        else:
            left_out.skipped[str(relation)] += rows

    def _to_topics(self, form: BatchFormat, rows: Rows, tables: Sequence[str], ways: _Ways) -> Iterable[_Encoded]:
        """The same records in every topic of their way."""
        texts = RowTexts(rows, self._json)
        headers = {**(_headers(rows, form.batch, texts) if self._headers else {}), **form.extra_headers(rows)}
        keys, values = form.keys(rows, texts), form.rows(rows, texts)
        for names, number in ways.topics:
            encoded = _Encoded(
                names,
                number[rows.shape],
                tables,
                rows.shape,
                rows.ordinal,
                keys,
                values,
                form.batch.transactions.commit[rows.tx],
                rows.seq,
                rows.op,
                headers,
            )
            if len(ways.topics) > 1:
                encoded = encoded.take(np.flatnonzero(encoded.topics >= 0))
            yield encoded
            if self._format.tombstones and rows.op is RowOp.DELETE:
                keyed = encoded.take(np.flatnonzero(encoded.keys.is_valid().to_numpy(zero_copy_only=False)))
                yield replace(keyed, values=pa.nulls(len(keyed.ordinal), pa.binary()))

    def _key_columns(self, shape: Shape, names: tuple[str, ...] | None) -> tuple[int, ...]:
        """Indexes of the columns to key by; names: those that the route asks for."""
        relation, columns = shape
        if names is None:
            names = self._key.of(relation)
        if names is None:
            return tuple(index for index, column in enumerate(columns) if column.key)
        places = {column.name: index for index, column in enumerate(columns)}
        missing = [column for column in names if column not in places]
        if missing:
            raise SinkRefused(
                f'key of {relation} names the column "{missing[0]}", which the table does not have',
                f"its columns are {', '.join(places)}",
            )
        return tuple(places[column] for column in names)

    def _schema_changes(self, batch: Batch, topic: SourceTopic) -> Iterable[_Encoded]:
        """Those of the tables whose events go somewhere."""
        for change in batch.schema_changes:
            if not self._routes(batch, change.relation):
                continue
            key, value = schema_change_key(change), schema_change_json(change, batch)
            yield self._of_table(topic.of(batch.source.name), change, Marker.RELATION, batch, key, value)

    def _truncates(self, form: BatchFormat, truncates: Iterable[Truncate], left_out: _LeftOut) -> Iterable[_Encoded]:
        for truncate in truncates:
            routes = self._routes(form.batch, truncate.relation)
            if not routes:
                self._leave_out(truncate.relation, 1, left_out)
                continue
            key, value = form.truncate_key(truncate), form.truncate(truncate)
            for route in routes:
                yield self._of_table(route.topic, truncate, Marker.TRUNCATE, form.batch, key, value)

    def _of_table(
        self,
        topic: str,
        what: Truncate | SchemaChange,
        op: Marker,
        batch: Batch,
        key: bytes | None,
        value: bytes | None,
    ) -> _Encoded:
        """The record of something that happened to a whole table."""
        relation, transactions, tx = what.relation, batch.transactions, what.tx
        headers = {**_headers_of_one(batch, tx), "schema": relation.schema, "table": relation.table}
        one = _Single(topic, str(relation), what.ordinal, int(transactions.commit[tx]), what.seq, op)
        return one.encoded(key, value, headers if self._headers else None)

    def _messages(
        self, form: BatchFormat, messages: Iterable[LogicalMessage], left_out: _LeftOut
    ) -> Iterable[_Encoded]:
        for message in messages:
            topic = self._router.message_topic(form.batch.source.name, message.prefix)
            if topic is None:
                left_out.skipped_messages[shown(message.prefix)] += 1
                continue
            commit, tx = commit_of(message, form.batch), message.tx
            headers = form.fields.headers_outside(commit) if tx < 0 else _headers_of_one(form.batch, tx)
            key, value = form.message_key(message), form.message(message)
            one = _Single(topic, shown(message.prefix), message.ordinal, commit, message.seq, Marker.MESSAGE)
            yield one.encoded(key, value, headers if self._headers else None)


@dataclass(frozen=True, slots=True)
class _Single:
    """A record of its own: a truncate or a logical message."""

    topic: str
    table: str
    ordinal: int
    commit: int
    seq: int
    op: Marker

    def encoded(self, key: bytes | None, value: bytes | None, headers: Mapping[str, str] | None) -> _Encoded:
        """headers: what is known of it beyond its identity; None: no headers are wanted."""
        wanted: dict[str, str] = {}
        if headers is not None:
            wanted = {"seq": str(self.seq), "op": self.op.action, **headers}
        return _Encoded(
            (self.topic,),
            np.zeros(1, np.int32),
            (self.table,),
            np.zeros(1, np.int32),
            np.array([self.ordinal], np.int64),
            pa.array([key], pa.binary()),
            pa.array([value], pa.binary()),
            np.array([self.commit], np.uint64),
            np.array([self.seq], np.int64),
            self.op,
            {name: pa.array([text.encode()], pa.binary()) for name, text in wanted.items()},
        )


def _headers_of_one(batch: Batch, tx: int) -> dict[str, str]:
    """What names one transaction."""
    named = fields_of(batch.source).headers(batch.transactions, np.array([tx], np.int32))
    return {header: texts[0].as_py().decode() for header, texts in named.items() if texts[0].is_valid}


def _headers(rows: Rows, batch: Batch, texts: RowTexts) -> dict[str, pa.Array]:
    count = len(rows)
    of_each = {
        "op": rows.op.action.encode(),
        "schema": rows.of_relations(lambda schema, _: schema.encode()),
        "table": rows.of_relations(lambda _, table: table.encode()),
        "key_change": b"true" if rows.key_change else None,
    }
    return {
        **fields_of(batch.source).headers(batch.transactions, rows.tx),
        "seq": numbers(rows.seq),
        "checksum": texts.checksum,
        **{header: _repeated(text, count) for header, text in of_each.items()},
        **({"unchanged": unchanged_json(rows)} if rows.unchanged is not None else {}),
    }


def _having(table: CellTable, has_it: NDArray[np.bool_]) -> CellTable:
    """The rows of shapes of which this is true."""
    return table if has_it.all() else table.without(~has_it)


def _repeated(text: Part | None, count: int) -> pa.Array:
    return text if isinstance(text, pa.Array) else pa.repeat(pa.scalar(text, pa.binary()), count)


def _numbers_of(names: Sequence[str | None]) -> tuple[Sequence[str], NDArray[np.int32]]:
    """Each name once, and for each of those given its number; -1 for none."""
    numbers = _numbered(name for name in names if name is not None)
    return list(numbers), np.array([-1 if name is None else numbers[name] for name in names], np.int32)


def _records(parts: list[_Encoded], source: SourceInfo) -> Records:
    """All parts as one, sorted by ordinal: the order in which they were committed."""
    parts = [part for part in parts if len(part.ordinal)]
    topic_names, topics = _joined_names([(part.topic_names, part.topics) for part in parts])
    table_names, tables = _joined_names([(part.table_names, part.tables) for part in parts])
    sizes = [len(part.ordinal) for part in parts]
    ordinal = _concat([part.ordinal for part in parts], np.int64)
    # A stable sort keeps the delete of an old key before the insert of the new one: they share an ordinal. A begin has
    # that of its transaction's first change, and an end that of the change behind it.
    order = np.argsort(ordinal, kind="stable") if len(parts) > 1 else None
    held = {header for part in parts for header in part.headers}
    headers = [*(header for header in HEADERS if header in held), *sorted(held.difference(HEADERS))]
    return Records(
        source=source,
        topic_names=topic_names,
        topics=_sorted(topics, order),
        keys=_sorted_arrow([part.keys for part in parts], order),
        values=_sorted_arrow([part.values for part in parts], order),
        commit=_sorted(_concat([part.commit for part in parts], np.uint64), order),
        seq=_sorted(_concat([part.seq for part in parts], np.int64), order),
        op=_sorted(np.repeat([int(part.op) for part in parts], sizes).astype(np.uint8), order),
        table_names=table_names,
        tables=_sorted(tables, order),
        headers={
            header: _sorted_arrow(
                [part.headers.get(header, pa.nulls(len(part.ordinal), pa.binary())) for part in parts], order
            )
            for header in headers
        },
    )


def _joined_names(
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


def _numbered(names: Iterable[str]) -> dict[str, int]:
    """Each name once, in the order in which they come, with its place."""
    return {name: place for place, name in enumerate(dict.fromkeys(names))}


def _concat(arrays: list[NDArray[_Number]], kind: type[_Number]) -> NDArray[_Number]:
    return np.concatenate(arrays) if arrays else np.empty(0, kind)


def _sorted(array: NDArray[_Number], order: NDArray[np.int64] | None) -> NDArray[_Number]:
    return array if order is None else array[order]


def _sorted_arrow(arrays: list[pa.Array], order: NDArray[np.int64] | None) -> pa.Array:
    if not arrays:
        return pa.array([], pa.binary())
    if order is None:
        return arrays[0]
    return pa.concat_arrays(arrays).take(pa.array(order))
