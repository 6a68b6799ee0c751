"""Small blocks are read frame by frame and written row by row: the same batches and records as by cells."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psql_streamer.cells import convert_to_cells
from psql_streamer.errors import SinkRefused
from psql_streamer.events.encoder import Encoder
from psql_streamer.events.event import Event, EventBatch
from psql_streamer.events.format import FormatOptions, RowTexts
from psql_streamer.events.routing import Route, Router
from psql_streamer.events.rows import Rows
from psql_streamer.events.unchanged import Unchanged
from psql_streamer.few_rows import FewRows
from psql_streamer.lsn import Lsn
from psql_streamer.metrics.table_counts import TableCounts
from psql_streamer.model import Batch, RowOp
from psql_streamer.pgoutput.decoder import Decoder
from psql_streamer.pgoutput.wal_position import WalPosition
from tests import pgoutput_wire as wire
from tests.decoding import BEGINNING, SOURCE, block
from tests.encoding import encoder_of
from tests.few import nothing_counts_as_few
from tests.strategies import History, histories
from tests.unit.test_cells import contents

POLICIES = (None, Unchanged({"*": "marker"}), Unchanged({"*": "omit"}))
RESUMES = (BEGINNING, WalPosition(Lsn(1 << 20)))

TABLE = wire.WireRelation(
    16_384,
    "public",
    "orders",
    (wire.WireColumn("id", 20, key=True), wire.WireColumn("name"), wire.WireColumn("amount", 1700)),
)

ROW_BY_ROW = ("event", "envelope", "debezium", "debezium with schemas", "debezium-avro")
"""The formats that write few rows one by one."""


def row_by_row(form: str, router: Router, **more: Any) -> Encoder:
    """An encoder of one of them."""
    name, _, schemas = form.partition(" ")
    return encoder_of(name, router, {}, schemas=bool(schemas), **more)


@given(history=histories(), at_most=st.integers(1, 6), resume=st.sampled_from(RESUMES))
def test_a_small_block_read_frame_by_frame_gives_the_same_batch(
    history: History, at_most: int, resume: WalPosition
) -> None:
    pieces = list(cut_at_commits(history.session(), at_most))
    few = [seen(batch) for batch in decoded(pieces, resume)]
    with nothing_counts_as_few():
        assert [seen(batch) for batch in decoded(pieces, resume)] == few


@settings(max_examples=100)
@given(history=histories(), at_most=st.integers(1, 6), flips=st.lists(st.integers(0, 1 << 30), min_size=1, max_size=3))
def test_damaged_blocks_are_refused_in_the_same_words(history: History, at_most: int, flips: list[int]) -> None:
    pieces = list(cut_at_commits(history.session(), at_most))
    if not pieces:
        return
    place = flips[0] % len(pieces)
    pieces[place] = damaged(pieces[place], flips)
    few = outcome(pieces)
    with nothing_counts_as_few():
        many = outcome(pieces)
    if len(flips) > 1:  # either of two faults may be the one that is named
        few, many = without_words(few), without_words(many)
    assert many == few


@pytest.mark.parametrize("form", ROW_BY_ROW)
@settings(max_examples=60)
@given(history=histories(), at_most=st.integers(1, 6), policy=st.sampled_from(POLICIES), headers=st.booleans())
def test_few_rows_are_written_as_cells_are(
    form: str, history: History, at_most: int, policy: Unchanged | None, headers: bool
) -> None:
    def encoded() -> list[Any]:
        routes = {"/.*a.*/": [Route("one"), Route("two", ("id",))], "/.*b.*/": "three"}
        encoder = row_by_row(form, Router(routes, "", "t" if headers else ""), headers=headers, unchanged=policy)
        return [encoded_or_refused(encoder, batch) for batch in batches]

    batches = list(decoded(list(cut_at_commits(history.session(), at_most)), BEGINNING))
    few = encoded()
    with nothing_counts_as_few():
        assert encoded() == few


@pytest.mark.parametrize(("form", "headers"), [(form, form in ("event", "envelope")) for form in ROW_BY_ROW])
def test_what_is_ordinary_is_not_made_into_cells(form: str, headers: bool) -> None:
    reader, encoder = Decoder(SOURCE, BEGINNING), row_by_row(form, Router({}, "", "t"), headers=headers)
    decode_frames(reader, transaction(8, wire.relation(TABLE)))
    old = (b"1", None, None)
    rows = [
        wire.insert(TABLE.oid, (b"1", b"x", b"2.5")),
        wire.update(TABLE.oid, (b"1", b"y", None)),
        wire.delete(TABLE.oid, old, "K"),
    ]
    batch = decode_frames(reader, [frame for row in rows for frame in transaction(24, row)])
    assert isinstance(batch.changes, FewRows)
    TableCounts(10).add("db1", batch)
    records = encoder.encode(batch)
    tombstones = [] if headers else [RowOp.DELETE]
    assert records.op.tolist() == [RowOp.INSERT, RowOp.UPDATE, RowOp.DELETE, *tombstones]
    assert "cells" not in batch.changes.__dict__


def test_rows_without_a_topic_are_counted() -> None:
    reader, encoder = Decoder(SOURCE, BEGINNING), encoder_of("event", Router({"shop.*": "t"}, "", ""), {})
    decode_frames(reader, transaction(8, wire.relation(TABLE)))
    rows = [wire.insert(TABLE.oid, (b"1", b"x", b"2.5")), wire.insert(TABLE.oid, (b"2", b"x", b"2.5"))]
    records = encoder.encode(decode_frames(reader, transaction(24, *rows)))
    assert len(records) == 0
    assert dict(records.skipped) == {"public.orders": 2}


class WithTombstones(Event):
    """A format that extends another one, and says nothing of rows one by one."""

    tombstones = True

    def prepare(self, batch: Batch) -> EventBatch:
        return Mine(batch)


class Mine(EventBatch):
    def render_rows(self, rows: Rows, texts: RowTexts) -> pa.Array:  # noqa: ARG002 - all are the same
        return pa.array([b"mine"] * len(rows), pa.binary())


def test_a_format_that_extends_one_that_ships_is_asked_for_all_rows() -> None:
    encoder = Encoder(WithTombstones(FormatOptions()), Router({}, "", "t"), {})
    batch = ordinary_batch(wire.delete(TABLE.oid, (b"1", None, None), "K"))
    assert isinstance(batch.changes, FewRows)
    assert encoder.encode(batch).values.to_pylist() == [b"mine", None]


def test_a_batch_with_other_transactions_than_its_rows_came_with_says_these() -> None:
    batch = ordinary_batch(wire.insert(TABLE.oid, (b"1", b"x", b"2.5")))
    later = replace(batch.transactions, commit_ts=batch.transactions.commit_ts + 86_400_000_000)
    [value] = encoder_of("event", Router({}, "", "t"), {}).encode(replace(batch, transactions=later)).values.to_pylist()
    assert b'"Timestamp":"2000-01-02T00:00:00.000000Z"' in value


@pytest.mark.parametrize(("cell", "width"), [(b"12", 100), (None, 900), (b"a longer value", 3)])
def test_what_few_rows_hold_is_counted(cell: bytes | None, width: int) -> None:
    columns = tuple(wire.WireColumn(f"c{number}") for number in range(width))
    relation = wire.WireRelation(TABLE.oid, "public", "wide", columns)
    reader = Decoder(SOURCE, BEGINNING)
    decode_frames(reader, transaction(8, wire.relation(relation)))
    batch = decode_frames(reader, transaction(24, *[wire.insert(relation.oid, (cell,) * width)] * 4))
    assert isinstance(batch.changes, FewRows)
    images = [row.after for row in batch.changes.each]
    held = sum(sys.getsizeof(image) + sum(map(sys.getsizeof, filter(None, image))) for image in images if image)
    assert held <= batch.nbytes <= 3 * held + 8192


def test_a_block_without_frames_is_a_batch_without_rows() -> None:
    assert len(Decoder(SOURCE, BEGINNING).decode(b"", [])) == 0


def ordinary_batch(row: bytes) -> Batch:
    reader = Decoder(SOURCE, BEGINNING)
    decode_frames(reader, transaction(8, wire.relation(TABLE)))
    return decode_frames(reader, transaction(24, row))


def encoded_or_refused(encoder: Encoder, batch: Batch) -> Any:
    """The records one by one, or why there are none."""
    try:
        records = encoder.encode(batch)
    except SinkRefused as refusal:
        return str(refusal)
    headers = [[(name, text) for text in column.to_pylist()] for name, column in records.headers.items()]
    of_each = zip(*headers, strict=True) if headers else [()] * len(records)
    numbers = zip(records.commit.tolist(), records.seq.tolist(), records.op.tolist(), strict=True)
    texts = zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True)
    left_out = (dict(records.skipped), records.excluded)
    return left_out, [
        (records.look_up_topic(at), records.look_up_table(at), *number, *text, dict(held))
        for at, (number, text, held) in enumerate(zip(numbers, texts, of_each, strict=True))
    ]


def transaction(commit_lsn: int, *messages: bytes) -> list[bytes]:
    whole = [wire.begin(commit_lsn, 0, 7), *messages, wire.commit(commit_lsn, commit_lsn + 8, 0)]
    return [wire.copy_data(wire.xlog_data(message, commit_lsn, commit_lsn)) for message in whole]


def cut_at_commits(frames: Sequence[bytes], at_most: int) -> Iterator[list[bytes]]:
    """Blocks of so many transactions, as a slow stream brings them."""
    held: list[bytes] = []
    commits = 0
    for frame in frames:
        held.append(frame)
        commits += frame[30:31] == b"C"
        if commits >= at_most:
            yield held
            held, commits = [], 0
    if held:
        yield held


def damaged(frames: list[bytes], flips: list[int]) -> list[bytes]:
    """Other bytes behind the frames' own headers."""
    found = [bytearray(frame) for frame in frames]
    for flip in flips:
        frame = found[flip % len(found)]
        frame[5 + flip % (len(frame) - 5)] ^= 1 + flip % 255
    return [bytes(frame) for frame in found]


def decoded(pieces: Sequence[list[bytes]], resume: WalPosition) -> Iterator[Batch]:
    reader = Decoder(SOURCE, resume)
    return (decode_frames(reader, frames) for frames in pieces)


def decode_frames(reader: Decoder, frames: list[bytes]) -> Batch:
    piece = block(frames)
    return reader.decode(piece.data, piece.offsets)


def without_words(outcome: list[Any]) -> list[Any]:
    """The batches, and the kind of the error."""
    return [one[0] if isinstance(one, tuple) and isinstance(one[0], str) else one for one in outcome]


def outcome(pieces: Sequence[list[bytes]]) -> list[Any]:
    """The batches, up to the error."""
    found: list[Any] = []
    try:
        found.extend(seen(batch) for batch in decoded(pieces, BEGINNING))
    except Exception as error:
        found.append((type(error).__name__, str(error)))
    return found


def seen(batch: Batch) -> tuple[Any, ...]:
    """All that others see of a batch."""
    table, transactions = convert_to_cells(batch.changes), batch.transactions
    return (
        batch.position,
        transactions.commit.tolist(),
        transactions.commit_ts.tolist(),
        transactions.list_id_texts().to_pylist(),
        contents(table),
        [] if table.place is None else table.place.tolist(),
        sorted((str(one.relation), *one[1:]) for one in batch.rows.count_rows()),
        (len(batch), len(batch.changes), batch.rows.next_batch_order),
        (batch.truncates, batch.messages, batch.schema_changes),
    )
