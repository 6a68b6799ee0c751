"""A batch as records: routed, keyed, encoded, in commit order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer import batching
from psql_streamer.cells import CellTable, Shape, convert_to_cells
from psql_streamer.errors import SinkRefused
from psql_streamer.events.addresses import Topics, collect_headers, collect_topics, merge_keys
from psql_streamer.events.assembling import Encoded, Single, assemble, encode_singles
from psql_streamer.events.digits import to_digits
from psql_streamer.events.excluded_columns import KEY_LEFT_OUT_REMEDY, ExcludedColumns, describe_key_left_out
from psql_streamer.events.few import FewRecords
from psql_streamer.events.format import BatchFormat, Format, OneRow, RowTexts, find_commit
from psql_streamer.events.json.json_text import decode_dictionary
from psql_streamer.events.json.objects import count_by_column
from psql_streamer.events.json.row_json import RowJson, render_unchanged
from psql_streamer.events.key_columns import KeyColumns
from psql_streamer.events.per_transaction import Fragment
from psql_streamer.events.plans import Plan, Plans, SourcePlans, Way, Ways
from psql_streamer.events.records import Records
from psql_streamer.events.routing import Route, Router, SourceTopic
from psql_streamer.events.rows import Keys, Rows, split, take
from psql_streamer.events.schema_change import render_schema_change, render_schema_change_key, render_table_statement
from psql_streamer.events.source_fields import SourceFields
from psql_streamer.events.timestamps import Timestamps, choose_timestamps
from psql_streamer.events.unchanged import Unchanged
from psql_streamer.few_rows import FewRows
from psql_streamer.model import (
    Batch,
    Marker,
    Relation,
    RowOp,
    SchemaChange,
    TableStatement,
    Truncate,
)
from psql_streamer.name_counts import show_name


@dataclass(slots=True)
class _LeftOut:
    """What has no topic, by Records' names for it."""

    skipped: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    skipped_messages: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    excluded: int = 0

    def __bool__(self) -> bool:
        return bool(self.skipped or self.skipped_messages or self.excluded)


class Encoder:
    """Encodes batches for one sink.

    format: what makes keys and values. key: which columns key the events of a table in place of the replica
    identity's, as KeyColumns takes it. headers: whether every record carries its identity as headers, too.
    unchanged: what becomes of TOASTed values that an update left alone. transaction_topic: where the records go that
    say where transactions begin and end, in a format that has them. schema_topic: where new shapes of tables go. In
    both topics `{source}` stands for the source's name. timestamps: which ones records get. excluded_columns: those
    that no event has.
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
        timestamps: Timestamps = "write",
        excluded_columns: ExcludedColumns | None = None,
    ) -> None:
        self._format = format
        self._router = router
        self._key = KeyColumns(key)
        self._headers = headers or format.headers
        self._transaction_topic = SourceTopic("transactionTopic", transaction_topic) if transaction_topic else None
        self._schema_topic = SourceTopic("schemaTopic", schema_topic) if schema_topic else None
        self._timestamps = timestamps
        own = vars(type(format)).get("row_by_row", False)
        self._excluded_columns = excluded_columns or ExcludedColumns()
        by_columns = transaction_topic or self._excluded_columns or (self._headers and not format.checksums)
        self._row_by_row = own and timestamps == "write" and not by_columns
        self._json = RowJson()
        self._plans: dict[str, SourcePlans] = {}
        policy = unchanged or Unchanged()
        self._unchanged = policy.with_markers() if format.marks else policy

    def encode(self, batch: Batch) -> Records:
        """Records of everything in the batch that a rule gives a topic. SinkRefused: a key column is missing."""
        form = self._format.prepare(batch)
        left_out = _LeftOut()
        few = self._encode_few(form, batch, left_out)
        if few is None:
            return self._encode_any(form, batch, left_out)
        return _add_left_out(few, left_out) if left_out else few

    def _encode_few(self, form: BatchFormat, batch: Batch, left_out: _LeftOut) -> Records | None:
        """Records of few rows and nothing else, if the format writes them one by one and they are ordinary."""
        rows = batch.changes
        if not (isinstance(rows, FewRows) and rows.rows == len(batch) <= batching.FEW_ROWS):
            return None
        transactions = batch.transactions
        if not self._row_by_row or transactions is not rows.batch_transactions or transactions.snapshots:
            return None
        if batch.schema_changes or batch.statements:
            return None
        return FewRecords(
            self._format,
            form,
            self._look_up_plans(batch.source.name).list_plans(rows.shapes),
            *form.make_singles(self._json, rows.shapes),
            partial(_render_row_headers, form.fields) if self._headers else None,
            lambda relation: self._leave_out(relation, 1, left_out),
        ).encode(batch, rows)

    def _encode_any(self, form: BatchFormat, batch: Batch, left_out: _LeftOut) -> Records:
        headers = _TransactionHeaders(form) if self._headers else None
        of_shapes = self._list_shape_records(batch, self._schema_topic, headers) if self._schema_topic else ()
        truncates = self._list_truncate_records(form, headers, left_out)
        messages = self._list_message_records(form, headers, left_out)
        parts = list(
            chain(
                self._encode_boundaries(form, self._transaction_topic) if self._transaction_topic else (),
                encode_singles(Marker.RELATION, of_shapes, self._timestamps),
                self._encode_changes(form, batch, left_out),
                encode_singles(Marker.TRUNCATE, truncates, self._timestamps),
                encode_singles(Marker.MESSAGE, messages, self._timestamps),
            )
        )
        encoded = _add_left_out(assemble(parts, batch.source), left_out)
        return replace(encoded, nulled=form.nulled, left_behind=form.left_behind)

    def make_readable(self) -> Encoder:
        """What makes the same records in a format that people read: see Format.find_readable. For the same thread."""
        found = self._format.find_readable()
        if found is self._format:
            return self
        made = copy(self)
        made._format = found
        return made

    def describe_wait(self) -> str:
        """As Format.describe_wait."""
        return self._format.describe_wait()

    def interrupt(self) -> None:
        """As Format.interrupt."""
        self._format.interrupt()

    def stop(self) -> None:
        """Release what the format holds. May be called twice; another batch may come after it."""
        self._format.stop()

    def _encode_boundaries(self, form: BatchFormat, topic: SourceTopic) -> Iterable[Encoded]:
        for records in form.render_boundaries():
            transactions, tx = form.batch.transactions, records.marks.tx
            name = topic.render(form.batch.source.name)
            keys, values = form.frame_boundaries(name, records.keys, records.values)
            headers = {
                **form.fields.render_headers(transactions, tx),
                "op": pa.repeat(pa.scalar(records.op.action.encode(), pa.binary()), len(tx)),
            }
            none = np.zeros(len(tx), np.int32)
            yield Encoded(
                (name,),
                none,
                ("transaction",),
                none,
                records.marks.batch_order,
                keys,
                values,
                transactions.commit[tx],
                records.seq,
                records.op,
                headers if self._headers else {},
                timestamps=choose_timestamps(self._timestamps, transactions.commit_ts[tx]),
            )

    def _encode_changes(self, form: BatchFormat, batch: Batch, left_out: _LeftOut) -> Iterable[Encoded]:
        """Records of the row changes, in each of the ways that their relations have."""
        table = convert_to_cells(batch.changes)
        if not table.rows:
            return
        if self._excluded_columns:
            table = self._excluded_columns.leave_out(table)
        plans = self._look_up_plans(batch.source.name).collect_plans(table.shapes)
        plans.refuse_rows(table)
        if len(plans.of_way) != 1 or not plans.ways.all():
            self._leave_out_rows(table, plans, left_out)
        snapshots = batch.transactions.snapshots
        if _is_addressed(table):
            yield from self._encode_addressed_changes(form, table, plans, snapshots)
        for number, ways in enumerate(plans.of_way):
            some = table.drop_shapes(plans.ways <= number)
            for rows in split(some, ways.keys, self._unchanged, snapshots):
                if (routed := _select_unaddressed(rows)) is not None:
                    yield from self._encode_rows(form, routed, plans.tables, ways)

    def _encode_addressed_changes(
        self, form: BatchFormat, table: CellTable, plans: Plans, snapshots: Collection[int]
    ) -> Iterable[Encoded]:
        """Records of the rows that name their topic, which go there and nowhere else."""
        some = table.drop_shapes(plans.excluded)
        each = self._look_up_plans(form.batch.source.name).list_plans(table.shapes)
        there = np.bincount(some.shape, minlength=len(each)) > 0
        # The list of shapes may grow meanwhile, behind those of these rows.
        planned = zip(each, table.shapes, there, strict=False)
        keys = [self._choose_addressed_key(shape, plan) if is_there else () for plan, shape, is_there in planned]
        for rows in split(some, Keys(keys), self._unchanged, snapshots):
            if rows.addresses is not None:
                yield from self._encode_addressed(form, rows, plans.tables, collect_topics(rows.addresses))

    def _look_up_plans(self, source: str) -> SourcePlans:
        if source not in self._plans:
            self._plans[source] = SourcePlans(partial(self._plan, source))
        return self._plans[source]

    def _plan(self, source: str, shape: Shape) -> Plan:
        topics: dict[tuple[int, ...], list[str]] = {}
        relation = shape.relation
        try:
            for route in self._router.find_routes(source, relation.schema, relation.table):
                topics.setdefault(self._resolve_key_columns(shape, route.key), []).append(route.topic)
        except SinkRefused as refusal:
            return Plan(str(relation), (), refusal)
        ways = tuple(Way(key, tuple(names)) for key, names in topics.items())
        return Plan(str(relation), ways, None, self._router.excludes(relation.schema, relation.table))

    def _choose_addressed_key(self, shape: Shape, plan: Plan) -> tuple[int, ...]:
        """The columns that key records of a shape in topics which its rows name: as in its first one."""
        return plan.ways[0].key if plan.ways else self._resolve_key_columns(shape, None)

    def _find_routes(self, batch: Batch, relation: Relation) -> Sequence[Route]:
        return self._router.find_routes(batch.source.name, relation.schema, relation.table)

    def _leave_out_rows(self, table: CellTable, plans: Plans, left_out: _LeftOut) -> None:
        """Count the rows that have no topic."""
        shape = (
            table.shape
            if not _is_addressed(table)
            else table.shape[~_find_addressed(table) | plans.excluded[table.shape]]
        )
        counts = np.bincount(shape, minlength=len(plans.ways))
        for at in np.flatnonzero((plans.ways == 0) & (counts > 0)).tolist():
            self._leave_out(table.shapes[at].relation, int(counts[at]), left_out)

    def _leave_out(self, relation: Relation, rows: int, left_out: _LeftOut) -> None:
        if self._router.excludes(relation.schema, relation.table):
            left_out.excluded += rows
        else:
            left_out.skipped[str(relation)] += rows

    def _encode_rows(self, form: BatchFormat, rows: Rows, tables: Sequence[str], ways: Ways) -> Iterable[Encoded]:
        """The same records in every topic of their way."""
        encoded = self._encode_unrouted(form, rows, tables)
        for names, number in ways.topics:
            routed, some = replace(encoded, topic_names=names, topics=number[rows.shape]), rows
            if len(ways.topics) > 1:
                at = np.flatnonzero(routed.topics >= 0)
                routed, some = routed.take(at), take(rows, at) if self._format.frames else rows
            yield from self._with_tombstones(self._frame(form, some, routed))

    def _encode_addressed(
        self, form: BatchFormat, rows: Rows, tables: Sequence[str], topics: Topics
    ) -> Iterable[Encoded]:
        """The records of those rows that name their topic."""
        at = np.flatnonzero(topics.named)
        if len(at):
            some = take(rows, at)
            encoded = self._encode_unrouted(form, some, tables)
            routed = replace(encoded, topic_names=topics.names, topics=topics.number[at])
            yield from self._with_tombstones(self._frame(form, some, routed))

    def _frame(self, form: BatchFormat, rows: Rows, routed: Encoded) -> Encoded:
        """The records of rows as they stand in their topics."""
        if not self._format.frames or not len(routed.topics):
            return routed
        topics = Topics(tuple(routed.topic_names), routed.topics)
        keys, values = form.frame_rows(rows, topics, routed.keys, routed.values)
        return replace(routed, keys=keys, values=values)

    def _encode_unrouted(self, form: BatchFormat, rows: Rows, tables: Sequence[str]) -> Encoded:
        """The records of rows, which have no topic yet."""
        form.left_behind.update(_count_left_behind(rows))
        texts = RowTexts(rows, self._json)
        headers = {**(_render_headers(rows, form, texts) if self._headers else {}), **form.render_extra_headers(rows)}
        keys, values, addresses = form.render_keys(rows, texts), form.render_rows(rows, texts), rows.addresses
        return Encoded(
            (),
            np.full(len(rows), -1, np.int32),
            tables,
            rows.shape,
            rows.batch_order,
            keys if addresses is None else merge_keys(addresses, keys),
            values,
            form.batch.transactions.commit[rows.tx],
            rows.seq,
            rows.op,
            headers if addresses is None else {**collect_headers(addresses), **headers},
            _repeat_text(form.render_snapshot_ids(rows), len(rows)) if rows.of_snapshot else None,
            None if rows.part is None else rows.part["number"],
            choose_timestamps(self._timestamps, form.batch.transactions.commit_ts[rows.tx], rows.record_time),
            addresses is not None,
        )

    def _with_tombstones(self, encoded: Encoded) -> Iterable[Encoded]:
        yield encoded
        if self._format.tombstones and encoded.op is RowOp.DELETE:
            keyed = encoded.take(np.flatnonzero(encoded.keys.is_valid().to_numpy(zero_copy_only=False)))
            yield replace(keyed, values=pa.nulls(len(keyed.batch_order), pa.binary()))

    def _resolve_key_columns(self, shape: Shape, names: tuple[str, ...] | None) -> tuple[int, ...]:
        """Indexes of the columns to key by; names: those that the route asks for."""
        relation, columns = shape
        if names is None:
            names = self._key.find(relation)
        if names is None:
            self._require_key_columns(relation)
            return tuple(index for index, column in enumerate(columns) if column.key)
        places = {column.name: index for index, column in enumerate(columns)}
        missing = [column for column in names if column not in places]
        if missing:
            raise SinkRefused(
                f'key of {relation} names the column "{missing[0]}", which the table does not have',
                f"its columns are {', '.join(places)}",
            )
        return tuple(places[column] for column in names)

    def _require_key_columns(self, relation: Relation) -> None:
        if lost := self._excluded_columns.list_excluded_keys(relation):
            raise SinkRefused(describe_key_left_out(relation, lost[0]), KEY_LEFT_OUT_REMEDY)

    def _list_shape_records(
        self, batch: Batch, topic: SourceTopic, headers: _TransactionHeaders | None
    ) -> Iterator[Single]:
        """Statements, and new shapes, of the tables whose events go somewhere."""
        excluded = self._excluded_columns
        for one in batch.statements:
            if self._find_routes(batch, one.relation):
                statement = replace(one, relation=excluded.narrow_relation(one.relation)) if excluded else one
                key, value = render_schema_change_key(statement), render_table_statement(statement, batch)
                yield _make_table_record(topic.render(batch.source.name), statement, batch, key, value, headers)
        for new in batch.schema_changes:
            if self._find_routes(batch, new.relation):
                change = excluded.narrow(new) if excluded else new
                key, value = render_schema_change_key(change), render_schema_change(change, batch)
                yield _make_table_record(topic.render(batch.source.name), change, batch, key, value, headers)

    def _list_truncate_records(
        self, form: BatchFormat, headers: _TransactionHeaders | None, left_out: _LeftOut
    ) -> Iterator[Single]:
        excluded = self._excluded_columns
        for given in form.batch.truncates:
            routes = self._find_routes(form.batch, given.relation)
            if not routes:
                self._leave_out(given.relation, 1, left_out)
                continue
            truncate = replace(given, relation=excluded.narrow_relation(given.relation)) if excluded else given
            key, value = form.truncate_key(truncate), form.render_truncate(truncate)
            for route in routes:
                framed = form.frame_event(truncate, route.topic, key, value)
                yield _make_table_record(route.topic, truncate, form.batch, *framed, headers)

    def _list_message_records(
        self, form: BatchFormat, headers: _TransactionHeaders | None, left_out: _LeftOut
    ) -> Iterator[Single]:
        for message in form.batch.messages:
            topic = self._router.find_message_topic(form.batch.source.name, message.prefix)
            if topic is None:
                left_out.skipped_messages[show_name(message.prefix)] += 1
                continue
            commit, tx = find_commit(message, form.batch), message.tx
            key, value = form.render_message_key(message), form.render_message(message)
            yield Single(
                topic,
                show_name(message.prefix),
                message.batch_order,
                commit,
                message.seq,
                *form.frame_event(message, topic, key, value),
                None if headers is None else headers.render_outside(commit) if tx < 0 else headers.render(tx),
                message.moment if tx < 0 else int(form.batch.transactions.commit_ts[tx]),
            )


class _TransactionHeaders:
    """What names the transactions of a batch in the headers of records that stand alone; made when one does."""

    def __init__(self, form: BatchFormat) -> None:
        self._form = form

    def render(self, tx: int) -> dict[str, str]:
        """Of one transaction."""
        return {header: texts[tx].decode() for header, texts in self._texts.items() if texts[tx] is not None}

    def render_outside(self, commit: int) -> dict[str, str]:
        """Of a message outside of any transaction."""
        return self._form.fields.render_headers_outside(commit)

    @cached_property
    def _texts(self) -> dict[str, list[bytes]]:
        of = self._form.batch.transactions
        named = self._form.fields.render_headers(of, np.arange(len(of), dtype=np.int32))
        return {header: texts.to_pylist() for header, texts in named.items()}


def _make_table_record(
    topic: str,
    what: Truncate | SchemaChange | TableStatement,
    batch: Batch,
    key: bytes | None,
    value: bytes | None,
    headers: _TransactionHeaders | None,
) -> Single:
    """The record of something that happened to a whole table."""
    relation, transactions, tx = what.relation, batch.transactions, what.tx
    told = None
    if headers is not None:
        told = {**headers.render(tx), "schema": relation.schema, "table": relation.table}
    commit, moment = int(transactions.commit[tx]), int(transactions.commit_ts[tx])
    return Single(topic, str(relation), what.batch_order, commit, what.seq, key, value, told, moment)


def _count_left_behind(rows: Rows) -> Mapping[str, int]:
    """schema.table.column -> rows under a new key that lack a value of the column, because the update that changed
    their key left it alone: consumers have it under the old key, which is deleted.
    """
    if rows.unchanged is None or rows.new is None or not (rows.key_change and rows.op is RowOp.INSERT):
        return {}
    return count_by_column(np.flatnonzero(rows.unchanged), rows.new, rows)


def _is_addressed(table: CellTable) -> bool:
    return table.after.addresses is not None or table.before.addresses is not None


def _find_addressed(table: CellTable) -> NDArray[np.bool_]:
    """Which rows name the topic that they are in, or leave."""
    found = np.zeros(table.rows, np.bool_)
    for image in (table.before, table.after):
        if image.addresses is not None:
            found[image.rows] = collect_topics(image.addresses).named
    return found


def _select_unaddressed(rows: Rows) -> Rows | None:
    """The rows that do not name their topic."""
    if rows.addresses is None:
        return rows
    at = np.flatnonzero(~collect_topics(rows.addresses).named)
    return take(rows, at) if len(at) else None


def _add_left_out(records: Records, left_out: _LeftOut) -> Records:
    return replace(
        records,
        skipped=left_out.skipped,
        skipped_messages=left_out.skipped_messages,
        excluded=left_out.excluded,
    )


def _render_row_headers(fields: SourceFields, row: OneRow) -> dict[str, str | None]:
    """As _headers, of one row."""
    return {
        **fields.render_transaction_headers(row.transaction),
        "seq": str(row.seq),
        "op": row.op.action,
        "schema": row.relation.schema,
        "table": row.relation.table,
        "checksum": row.checksum.decode(),
        "key_change": None,
    }


def _render_headers(rows: Rows, form: BatchFormat, texts: RowTexts) -> dict[str, pa.Array]:
    count = len(rows)
    of_each = {
        "op": rows.op.action.encode(),
        "schema": rows.render_by_relation(lambda schema, _: schema.encode()),
        "table": rows.render_by_relation(lambda _, table: table.encode()),
        "key_change": b"true" if rows.key_change else None,
    }
    return {
        **form.fields.render_headers(form.batch.transactions, rows.tx),
        "seq": to_digits(rows.seq),
        "checksum": texts.checksum,
        **{header: _repeat_text(text, count) for header, text in of_each.items()},
        **({"unchanged": render_unchanged(rows)} if rows.unchanged is not None else {}),
        **form.render_headers_of_parts(rows),
        **(_render_snapshot_headers(rows, form) if rows.of_snapshot else {}),
    }


def _render_snapshot_headers(rows: Rows, form: BatchFormat) -> dict[str, pa.Array]:
    return {"snapshot": _repeat_text(form.render_snapshot_ids(rows), len(rows)), "uuid": form.compute_uuids(rows)}


def _repeat_text(text: Fragment | None, count: int) -> pa.Array:
    return decode_dictionary(text) if isinstance(text, pa.Array) else pa.repeat(pa.scalar(text, pa.binary()), count)
