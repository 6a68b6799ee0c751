"""Debezium's events of one batch in Avro, without the frame of a registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.cells import OfShapes, Shape
from psql_streamer.events.addresses import Topics, names_key
from psql_streamer.events.avro.columns import NULL, VALUE, encode_text
from psql_streamer.events.avro.images import Images, OneByOne
from psql_streamer.events.avro.record_schemas import (
    RecordSchema,
    find_envelope_schema,
    find_key_schema,
    find_message_schemas,
    find_transaction_schemas,
)
from psql_streamer.events.avro.source import encode_blocks, encode_times_of_one, make_source_records
from psql_streamer.events.avro.values import encode_value
from psql_streamer.events.debezium.connect_type import Schema
from psql_streamer.events.debezium.format import CODES, DebeziumBatch, Structs
from psql_streamer.events.debezium.schemas import (
    make_envelope_schema,
    make_message_key_schema,
    make_message_schema,
    make_transaction_key_schema,
    make_transaction_schema,
)
from psql_streamer.events.debezium.transactions import render_ids
from psql_streamer.events.format import BatchFormat, BoundaryRecords, OneRow, RowTexts
from psql_streamer.events.json.json_text import join
from psql_streamer.events.json.objects import Lost, count_by_column
from psql_streamer.events.json.row_json import RowJson, render_keyed
from psql_streamer.events.per_transaction import Fragment
from psql_streamer.events.rows import Cells, Rows
from psql_streamer.model import Batch, Index, LogicalMessage, Relation, RowOp, SourceInfo, Truncate

_Frames: TypeAlias = dict[tuple[str, tuple[int, ...]], tuple[bytes, bytes]]
"""By topic and key columns: what stands before the keys of a shape, and before its values."""


class Writers:
    """What stays from batch to batch. images, keys: write rows. structs: write the JSON of what is no row.
    frames_of_tables: by source, table and topic, what stood before the values of the newest shape. For one thread.
    """

    def __init__(self) -> None:
        self.images = Images()
        self.keys = Images(of_keys=True)
        self.structs = Structs(flat=True)
        self.frames_of_tables: dict[tuple[SourceInfo, str, str], bytes] = {}
        self._frames: dict[SourceInfo, OfShapes[_Frames]] = {}

    def find_frames(self, source: SourceInfo) -> OfShapes[_Frames]:
        """What is known of the frames of a source's shapes."""
        if source not in self._frames:
            self._frames[source] = OfShapes(lambda _: {})
        return self._frames[source]


FrameSchema: TypeAlias = Callable[[str, bool, RecordSchema], bytes]
"""What stands before every key (True) or value of a topic that has this schema."""


class AvroBatch(BatchFormat):
    """The events of DebeziumBatch as Avro's records. transactions: as there. frame: see FrameSchema.

    Events that are no row's are few: their JSON is read, and encoded by its schema.
    """

    def __init__(self, batch: Batch, writers: Writers, transactions: bool, frame: FrameSchema) -> None:
        super().__init__(batch)
        self._writers = writers
        self._transactions = transactions
        self._frame = frame
        self._source = make_source_records(batch)
        self._as_json = DebeziumBatch(batch, writers.structs, False, transactions)

    def render_keys(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002 - keys are written otherwise here
        return render_keyed(rows, lambda: self._writers.keys.write(rows.select_key_cells(rows.image), rows))

    def render_extra_headers(self, rows: Rows) -> Mapping[str, pa.Array]:
        """Headers are the same in both formats: they have no schema."""
        return self._as_json.render_extra_headers(rows)

    def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002 - values are written otherwise here
        return join(
            *self._encode_image(rows.old, rows),
            *self._encode_image(None if rows.new is None else _mark_lacking(rows.new), rows),
            *self._source.encode_rows(rows),
            *self._encode_blocks(rows),
            encode_text(CODES[rows.op]),
            self._source.encode_times(rows.tx),
            nulls=b"",
        )

    def make_singles(
        self,
        json: RowJson,  # noqa: ARG002 - images are written otherwise here
        shapes: Sequence[Shape],
    ) -> tuple[OneByOne, OneByOne]:
        return self._writers.images.make_singles(shapes), self._writers.keys.make_singles(shapes)

    def render_row(self, row: OneRow) -> bytes:
        old, new = NULL if row.old is None else VALUE + row.old, VALUE + row.image
        if row.op is RowOp.DELETE:
            old, new = new, NULL
        times = encode_times_of_one(row.transaction.moment)
        return b"".join((old, new, self._source.encode_row(row), NULL, encode_text(CODES[row.op]), times))

    def render_truncate(self, truncate: Truncate) -> bytes:
        relation = truncate.relation
        schema = make_envelope_schema(self.batch.source, relation, relation.columns)
        return _encode_json(schema, self._as_json.render_truncate(truncate))

    def render_message(self, message: LogicalMessage) -> bytes:
        return _encode_json(make_message_schema(self.batch.source), self._as_json.render_message(message))

    def render_message_key(self, message: LogicalMessage) -> bytes:
        return _encode_json(make_message_key_schema(self.batch.source), self._as_json.render_message_key(message))

    def render_boundaries(self) -> Iterable[BoundaryRecords]:
        for records in self._as_json.render_boundaries():
            yield replace(
                records,
                keys=_encode_each(make_transaction_key_schema(), records.keys),
                values=_encode_each(make_transaction_schema(), records.values),
            )

    def frame_rows(self, rows: Rows, topics: Topics, keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """A key that a row names itself is no record, and has no frame."""
        of_keys, of_values = self._find_frames(rows, topics)
        framed = join(of_keys, keys, nulls=None)
        if rows.addresses is not None:
            framed = pc.if_else(pa.array(names_key(rows.addresses)), keys, framed)
        return framed, join(of_values, values, nulls=b"")

    def frame_row(
        self,
        shapes: Sequence[Shape],
        shape: int,
        key_columns: tuple[int, ...],
        topic: str,
        key: bytes | None,
        value: bytes,
    ) -> tuple[bytes | None, bytes]:
        known = self._writers.find_frames(self.batch.source).make_each(shapes)[shape]
        of_key, of_value = self._look_up_frames(known, topic, shapes[shape], key_columns)
        return _put(of_key, key), of_value + value

    def frame_event(
        self, event: Truncate | LogicalMessage, topic: str, key: bytes | None, value: bytes | None
    ) -> tuple[bytes | None, bytes | None]:
        match event:
            case Truncate():
                return key, _put(self._find_truncate_frame(event.relation, topic), value)
            case LogicalMessage():
                of_key, of_value = find_message_schemas(self.batch.source)
                return _put(self._frame(topic, True, of_key), key), _put(self._frame(topic, False, of_value), value)

    def frame_boundaries(self, topic: str, keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        of_key, of_value = find_transaction_schemas()
        return (
            join(self._frame(topic, True, of_key), keys, nulls=None),
            join(self._frame(topic, False, of_value), values, nulls=None),
        )

    def _find_truncate_frame(self, relation: Relation, topic: str) -> bytes:
        """That of the table's rows there, which a rule may have given other columns: the event has no row, and is the
        same by the schema of any. Before the first row the columns are the table's own.
        """
        known = self._writers.frames_of_tables.get((self.batch.source, str(relation), topic))
        if known is None:
            shape = Shape(relation, relation.columns)
            known = self._frame(topic, False, find_envelope_schema(self.batch.source, shape))
        return known

    def _find_frames(self, rows: Rows, topics: Topics) -> tuple[Fragment, Fragment]:
        """The frame of each row's key, and of its value. They are looked up once for each shape in each topic."""
        code: NDArray[np.int64] = rows.shape.astype(np.int64) * len(topics.names) + topics.number
        distinct, which = np.unique(code, return_inverse=True)
        known = self._writers.find_frames(self.batch.source).make_each(rows.shapes)
        pairs = [divmod(one, len(topics.names)) for one in distinct.tolist()]
        found = [
            self._look_up_frames(known[shape], topics.names[topic], rows.shapes[shape], rows.keys[shape])
            for shape, topic in pairs
        ]
        if len(found) == 1:
            return found[0]
        of_keys, of_values = (pa.array(frames, pa.binary()) for frames in zip(*found, strict=True))
        at = pa.array(which.astype(np.int32))
        return pa.DictionaryArray.from_arrays(at, of_keys), pa.DictionaryArray.from_arrays(at, of_values)

    def _look_up_frames(self, known: _Frames, topic: str, shape: Shape, key: tuple[int, ...]) -> tuple[bytes, bytes]:
        """Rows without a key have no frame of one."""
        found = known.get((topic, key))
        if found is None:
            source = self.batch.source
            of_key = self._frame(topic, True, find_key_schema(source, shape, key)) if key else b""
            of_value = self._frame(topic, False, find_envelope_schema(source, shape))
            found = known[topic, key] = of_key, of_value
            self._writers.frames_of_tables[source, str(shape.relation), topic] = of_value
        return found

    def _encode_image(self, image: Cells | None, rows: Rows) -> tuple[Fragment, ...]:
        if image is None:
            return (NULL,)
        return VALUE, self._writers.images.write(image, rows, self._note_lost(image, rows))

    def _encode_blocks(self, rows: Rows) -> tuple[Fragment, ...]:
        if not self._transactions or rows.of_snapshot:
            return (NULL,)
        assert rows.table_seq is not None  # noqa: S101 - Source.provide_transaction_metadata was called
        ids = render_ids(self.batch.transactions, rows.tx)
        return tuple(encode_blocks(ids, rows.seq, rows.table_seq))

    def _note_lost(self, image: Cells, rows: Rows) -> Lost:
        def note(cells: Index) -> None:
            self.nulled.update(count_by_column(cells, image, rows))

        return note


def _mark_lacking(image: Cells) -> Cells:
    """What a new row lacks, the placeholder stands for: a record has all its fields, and null is a value."""
    absent = image.tuples.absent
    if absent is None:
        return image
    return replace(image, marked=absent if image.marked is None else image.marked | absent)


def _put(frame: bytes, payload: bytes | None) -> bytes | None:
    return None if payload is None else frame + payload


def _encode_json(schema: Schema, text: bytes) -> bytes:
    return encode_value(schema, json.loads(text.decode("utf-8", "surrogateescape")))


def _encode_each(schema: Schema, texts: pa.Array) -> pa.Array:
    return pa.array([_encode_json(schema, text) for text in texts.to_pylist()], pa.binary())
