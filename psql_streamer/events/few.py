"""Few rows as records, one by one: the same bytes as by cells, for what is ordinary.

A batch with a row that is not goes by cells: a key that changed, a value that an update left alone, a type that is
written by column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from psql_streamer.binary_columns import pack_values
from psql_streamer.events.assembling import order_headers
from psql_streamer.events.format import BatchFormat, Format, OneRow
from psql_streamer.events.identity import compute_checksum
from psql_streamer.events.json.objects import SingleWriter, WrittenByColumn
from psql_streamer.events.plans import Plan, Way, copy_refusal, number_names
from psql_streamer.events.records import Records
from psql_streamer.few_rows import ABSENT, FewRow, FewRows
from psql_streamer.model import Batch, Relation, RowOp

Headers = Callable[[OneRow], Mapping[str, str | None]]
"""The headers of a row's records."""


@dataclass(frozen=True, slots=True)
class FewRecords:
    """Writes few rows. headers: None for records without. leave_out: told of each relation that has no topic."""

    format: Format
    form: BatchFormat
    plans: Sequence[Plan]
    images: SingleWriter
    keys: SingleWriter
    headers: Headers | None
    leave_out: Callable[[Relation], None]

    def encode(self, batch: Batch, few: FewRows) -> Records | None:
        """Records of rows alone; None when one of them is not ordinary. SinkRefused as Encoder.encode."""
        if any(_is_unusual(row, self.plans[row.shape]) for row in few.each):
            return None
        try:
            written = [record for row in few.each for record in self._write(row, few)]
        except WrittenByColumn:
            return None
        self._refuse_and_leave_out(few)
        return _assemble_records(batch, written)

    def _refuse_and_leave_out(self, few: FewRows) -> None:
        for row in few.each:
            plan = self.plans[row.shape]
            if plan.refusal is not None:
                raise copy_refusal(plan.refusal)
            if not plan.ways:
                self.leave_out(few.shapes[row.shape].relation)

    def _write(self, row: FewRow, few: FewRows) -> Iterator[_Written]:
        """A record for each topic of the row."""
        (relation, columns), plan = few.shapes[row.shape], self.plans[row.shape]
        if not plan.ways:
            return
        every, transaction, cells = range(len(columns)), few.transactions[row.tx], row.image
        image = self.images.write(row.shape, cells, every)
        old_cells = row.before if row.op is RowOp.UPDATE else None
        old = None if old_cells is None else self.images.write(row.shape, old_cells, every)
        checksum = compute_checksum(image) if self.format.checksums else b""
        one = OneRow(relation, columns, row.op, transaction, row.seq, row.place, image, old, checksum)
        value, headers = self.form.render_row(one), {} if self.headers is None else self.headers(one)
        for way in plan.ways:
            key = self.keys.write(row.shape, cells, way.key) if way.key else None
            for topic in way.topics:
                framed = key, value
                if self.format.frames:
                    framed = self.form.frame_row(few.shapes, row.shape, way.key, topic, key, value)
                written = _Written(topic, plan.table, *framed, transaction.commit, row.seq, row.op, headers)
                yield written
                if self.format.tombstones and row.op is RowOp.DELETE and key is not None:
                    yield written._replace(value=None)


class _Written(NamedTuple):
    """A record."""

    topic: str
    table: str
    key: bytes | None
    value: bytes | None
    commit: int
    seq: int
    op: RowOp
    headers: Mapping[str, str | None]


def _is_unusual(row: FewRow, plan: Plan) -> bool:
    """Whether it becomes something else than one record a topic, or depends on what is done with unchanged values."""
    lacks = ABSENT in ((row.before if row.after is None else row.after) or ())
    if lacks and row.op is not RowOp.DELETE:
        return True
    return (lacks or row.before is not None) and any(_is_key_unusual(row, way) for way in plan.ways)


def _is_key_unusual(row: FewRow, way: Way) -> bool:
    image, old = row.image, row.before or ()
    return any(image[column] is ABSENT or (old and old[column] != image[column]) for column in way.key)


def _assemble_records(batch: Batch, written: Sequence[_Written]) -> Records:
    topic_names, topics = number_names(one.topic for one in written)
    table_names, tables = number_names(one.table for one in written)
    return Records(
        source=batch.source,
        topic_names=topic_names,
        topics=topics,
        keys=pack_values([one.key for one in written]),
        values=pack_values([one.value for one in written]),
        commit=np.array([one.commit for one in written], np.uint64),
        seq=np.array([one.seq for one in written], np.int64),
        op=np.array([one.op for one in written], np.uint8),
        table_names=table_names,
        tables=tables,
        headers={
            header: pack_values([_encode_text(one.headers.get(header)) for one in written])
            for header in order_headers({header for one in written for header in one.headers})
        },
    )


def _encode_text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
