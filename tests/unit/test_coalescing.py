"""Merging batches and cutting them again loses nothing and keeps the order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.model import Batch, Rejection, TableStatement, Transactions
from psql_streamer.pipeline.coalescing import cut, cut_off, merge
from tests.decoding import decode, decoder
from tests.flatten import flatten, flatten_all
from tests.spark_changes import shop
from tests.strategies import History, histories


def _batches(history: History, size: int) -> list[Batch]:
    return decode(history.session(), size)


@given(histories(), st.integers(1, 7))
def test_a_merged_batch_has_the_changes_of_all_in_their_order(history: History, size: int) -> None:
    batches = _batches(history, size) or [decoder().decode(b"", [])]
    merged = merge(batches)
    assert flatten(merged) == flatten_all(batches)
    assert merged.position == batches[-1].position
    assert len(merged) == sum(map(len, batches))


@given(histories(), st.integers(1, 7), st.integers(1, 5))
def test_a_batch_that_was_cut_has_all_its_changes_in_their_order(history: History, size: int, rows: int) -> None:
    whole = merge(_batches(history, size) or [decoder().decode(b"", [])])
    pieces = list(cut(whole, rows))
    assert flatten_all(pieces) == flatten(whole)
    assert all(len(piece) <= rows for piece in pieces)
    assert pieces[-1].position == whole.position
    assert [piece.continues for piece in pieces] == [*[True] * (len(pieces) - 1), False]
    assert not merge(pieces).continues
    assert all(piece.continues for piece in cut(replace(whole, continues=True), rows))


@given(histories(), st.integers(1, 7), st.lists(st.integers(1, 5), min_size=1))
def test_a_batch_that_is_cut_off_bit_by_bit_has_all_its_changes_in_their_order(
    history: History, size: int, bits: list[int]
) -> None:
    whole = merge(_batches(history, size) or [decoder().decode(b"", [])])
    heads: list[Batch] = []
    rest: Batch | None = whole
    while rest is not None:
        rows = bits[len(heads) % len(bits)]
        head, rest = cut_off(rest, rows)
        assert len(head) <= rows
        assert rest is None or len(head) or head.transaction_metadata
        heads.append(head)
    assert flatten_all(heads) == flatten(whole)
    assert heads[-1].position == whole.position
    assert [flatten(piece) for head in heads for piece in cut(head, 100)] == [flatten(head) for head in heads]
    assert [head.continues for head in heads] == [*[True] * (len(heads) - 1), False]
    assert cut_off(whole, None) == (whole, None)


@given(histories(), st.integers(1, 7), st.integers(1, 5))
def test_statements_about_tables_stay_before_the_change_that_follows_them(
    history: History, size: int, rows: int
) -> None:
    batches = [_with_statements(batch, at) for at, batch in enumerate(_batches(history, size))]
    if not batches:
        return
    merged = merge(batches)
    texts = [one.text for one in merged.statements]
    assert texts == [one.text for batch in batches for one in batch.statements]
    pieces = list(cut(merged, rows))
    assert [one.text for piece in pieces for one in piece.statements] == texts
    for piece in pieces:
        first = min((order for changes in piece.changes for order in changes.batch_order.tolist()), default=None)
        for one in piece.statements:
            assert one.text.endswith(f" {int(piece.transactions.commit[one.tx])}")
            assert first is None or one is not piece.statements[0] or one.batch_order >= first or len(piece) < rows


def _with_statements(batch: Batch, number: int) -> Batch:
    """One before each change of a table, which names its commit."""
    statements = [
        TableStatement(changes.relation, f"{number} {int(batch.transactions.commit[tx])}", order, seq, tx)
        for changes in batch.changes
        for order, seq, tx in zip(changes.batch_order.tolist(), changes.seq.tolist(), changes.tx.tolist(), strict=True)
    ]
    return replace(batch, statements=tuple(sorted(statements, key=lambda one: one.batch_order)))


def test_a_single_small_batch_is_not_copied() -> None:
    batch = decoder().decode(b"", [])
    assert merge([batch]) is batch
    assert list(cut(batch, 1)) == [batch]


@given(histories(), st.integers(1, 7), st.integers(1, 5))
def test_what_was_put_aside_keeps_its_place(history: History, size: int, rows: int) -> None:
    """Of every table a rejection in place of its changes: merged and cut, it is what the changes would have been."""
    batches = _batches(history, size) or [decoder().decode(b"", [])]
    merged = merge([_put_aside(batch) for batch in batches])
    assert len(merged) == len(merged.truncates) + len(merged.messages)
    assert flatten(_taken_back(merged)) == flatten_all(batches)
    pieces = list(cut(merged, rows))
    assert flatten_all([_taken_back(piece) for piece in pieces]) == flatten_all(batches)
    assert {(one.reason, one.rule) for piece in pieces for one in piece.rejections} <= {("a reason", "a rule")}


def _put_aside(batch: Batch) -> Batch:
    rejections = tuple(Rejection(changes, "a reason", None, "a rule") for changes in batch.changes)
    return replace(batch, changes=(), rejections=rejections)


def _taken_back(batch: Batch) -> Batch:
    return replace(batch, changes=tuple(one.changes for one in batch.rejections), rejections=())


def test_a_batch_of_which_all_was_put_aside_is_not_idle() -> None:
    batch = decoder().decode(b"", [])
    assert batch.idle
    assert not replace(batch, rejections=(Rejection(shop(), "a reason", None, "a rule"),)).idle


def test_the_sessions_of_merged_transactions_are_kept_and_unknown_where_a_batch_knows_none() -> None:
    def transactions(commit: int, threads: list[int] | None) -> Transactions:
        numbers = np.array([commit, commit + 1], np.uint64)
        return Transactions(numbers, np.zeros(2, np.int64), threads=None if threads is None else np.array(threads))

    batch = decoder().decode(b"", [])
    known, unknown = transactions(1, [7, 0]), transactions(3, None)
    merged = [
        merge([replace(batch, transactions=one) for one in pair]).transactions.threads
        for pair in ((known, unknown), (unknown, known), (unknown, unknown))
    ]
    assert [None if one is None else one.tolist() for one in merged] == [[7, 0, 0, 0], [0, 0, 7, 0], None]
