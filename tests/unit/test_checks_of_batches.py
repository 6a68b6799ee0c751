"""What the conformance suite checks of batches: a right one passes, and what is wrong with another one is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer import model
from psql_streamer.model import Batch, Relation, SchemaChange
from psql_streamer.pipeline.coalescing import cut, merge
from psql_streamer.testing import check_batch, make_batch
from psql_streamer.testing.batches import make_mixed_batch
from psql_streamer.testing.read_batches import check_read_batch, list_actions
from psql_streamer.testing.samples import ROWS, make_batch_of_several, make_batch_with_metadata
from psql_streamer.testing.shapes import check_shapes
from psql_streamer.testing.transaction_marks import check_transactions

NOW = 1_795_260_476_028_123

Alter = Callable[[Batch], Batch]


def in_a_new_shape(version: int, before: Relation | None, commit: int = 1, **other: int) -> Batch:
    """A batch of the table, which says that it has this shape, and had that one."""
    batch = make_batch([{"id": 1, f"column {version}": "a"}], "id", commit)
    (changes,) = batch.changes
    relation = replace(changes.relation, version=version)
    place = {"batch_order": 0, "seq": 0, "tx": 0} | other
    return replace(
        batch, changes=(replace(changes, relation=relation),), schema_changes=(SchemaChange(relation, before, **place),)
    )


def shape_of(batch: Batch) -> Relation:
    return batch.changes[0].relation


FIRST = in_a_new_shape(1, None)
SECOND = in_a_new_shape(2, shape_of(FIRST), commit=2)


def with_truncate(batch: Batch, relation: Relation) -> Batch:
    return replace(batch, truncates=(model.Truncate(relation, 5, 5, 0, 0, False, False),))


def test_shapes_that_are_announced_or_remembered_pass() -> None:
    check_shapes([FIRST, SECOND])
    check_shapes([SECOND], [shape_of(FIRST)])
    check_shapes([FIRST], [shape_of(FIRST)])
    check_shapes([with_truncate(FIRST, shape_of(FIRST))])
    check_shapes([with_truncate(FIRST, Relation("77", "public", "nobody met it", ()))])


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        ([replace(FIRST, schema_changes=())], "neither announced nor remembered"),
        ([FIRST, in_a_new_shape(2, None, commit=2)], "SchemaChange.before: the shape that public.orders had until now"),
        ([FIRST, in_a_new_shape(7, shape_of(FIRST))], "behind 1 comes 7"),
        ([in_a_new_shape(1, None, batch_order=3)], "SchemaChange stands before the first row"),
        ([in_a_new_shape(1, None, tx=3)], "SchemaChange.tx is the transaction of the change that follows"),
        ([with_truncate(FIRST, shape_of(SECOND))], "the truncate of public.orders is of a shape"),
    ],
)
def test_what_is_wrong_with_shapes_is_said(batches: list[Batch], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_shapes(batches)


def with_metadata(**fields: object) -> Alter:
    return lambda batch: replace(
        batch,
        transaction_metadata=replace(batch.transaction_metadata, **fields),  # type: ignore[type-var]
    )


def with_table_seq(table_seq: Callable[[model.Changes], object]) -> Alter:
    return lambda batch: replace(
        batch,
        changes=tuple(replace(one, table_seq=table_seq(one)) for one in batch.changes),  # type: ignore[arg-type]
    )


TOLD = make_batch_with_metadata()
METADATA = TOLD.transaction_metadata or model.TransactionMetadata()


def test_transactions_that_are_told_rightly_pass_also_in_pieces() -> None:
    check_batch(TOLD)
    check_transactions([TOLD], must_be_told=True)
    check_transactions(cut(TOLD, 2), must_be_told=True)
    check_transactions([merge(list(cut(TOLD, 2)))], must_be_told=True)
    check_transactions([make_mixed_batch()], must_be_told=False)


@pytest.mark.parametrize(
    ("alter", "told"),
    [
        (lambda batch: replace(batch, transaction_metadata=None), "a batch with changes has none"),
        (with_table_seq(lambda _: None), "table_seq is None, and should be 0"),
        (with_table_seq(lambda one: np.zeros(len(one), np.int64)), "table_seq is 0, and should be 1"),
        (with_metadata(begins=model.TransactionMarks()), "begins lacks a transaction"),
        (with_metadata(begins=METADATA.ends), "it begins before its first change"),
        (with_metadata(begins=model.TransactionMarks.concat([METADATA.begins] * 2, [model.Shift(0, 0)] * 2)), "twice"),
        (with_metadata(ends=model.TransactionMarks()), "ends lacks a transaction"),
        (with_metadata(ends=METADATA.begins), "it ends behind its last change"),
        (with_metadata(counts=replace(METADATA.counts, tables=METADATA.counts.tables[::-1])), "as many of each table"),
    ],
)
def test_what_is_wrong_with_what_is_told_of_transactions_is_said(alter: Alter, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_transactions([alter(TOLD)], must_be_told=True)


def as_read_now(batch: Batch) -> Batch:
    moments = np.full(len(batch.transactions), NOW)
    messages = tuple(replace(one, moment=NOW) for one in batch.messages)
    return replace(batch, transactions=replace(batch.transactions, commit_ts=moments), messages=messages)


def lose_old_keys(batch: Batch) -> Batch:
    (changes,) = batch.changes
    image = changes.before
    nulls = tuple(pa.nulls(len(image), array.type) for array in image.columns)
    return replace(batch, changes=(replace(changes, before=replace(image, columns=nulls)),))


READ = as_read_now(make_mixed_batch())


def test_a_batch_that_a_source_may_have_read_passes() -> None:
    check_read_batch(READ)
    check_read_batch(make_batch(ROWS, "id"))
    actions = ["insert", "read", "update", "update", "delete", "truncate", "message", "message"]
    assert list_actions([READ, make_batch(ROWS[:1], "id")]) == [*actions, "insert"]


@pytest.mark.parametrize(
    ("alter", "told"),
    [
        (lose_old_keys, "an old row lacks its key"),
        (
            lambda batch: replace(batch, messages=tuple(replace(one, moment=7) for one in batch.messages)),
            "of the commit",
        ),
        (lambda batch: replace(batch, continues=True), "a source makes no pieces"),
        (lambda batch: replace(batch, received_at=NOW), "time.monotonic"),
        (
            lambda batch: replace(batch, truncates=tuple(replace(one, tx=5) for one in batch.truncates)),
            "Truncate: tx points into Batch.transactions",
        ),
        (
            lambda batch: replace(
                batch, transactions=replace(batch.transactions, commit=batch.transactions.commit.astype(np.int64))
            ),
            "commit is of int64, and the model says uint64",
        ),
    ],
)
def test_what_a_source_cannot_have_read_is_said(alter: Alter, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_read_batch(alter(READ))


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_pieces_of_a_batch_are_batches_and_so_is_what_they_are_merged_to(rows: int) -> None:
    for whole in (make_batch_of_several(), TOLD, make_mixed_batch()):
        pieces = list(cut(whole, rows))
        for piece in pieces:
            check_batch(piece)
        merged = merge(pieces)
        check_batch(merged)
        assert merged.transactions.commit.tolist() == whole.transactions.commit.tolist()


def test_what_holds_arrays_is_equal_to_itself_alone() -> None:
    one, other = make_batch(ROWS, "id"), make_batch(ROWS, "id")
    assert [one == one, one == other, one in [other], len({one, other})] == [True, False, False, 2]
    assert one.changes[0] != other.changes[0]
    assert one.transactions != other.transactions
