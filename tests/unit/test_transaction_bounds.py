"""Where transactions begin and end, and how many changes they have of each table, however the stream is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from psql_streamer.lsn import Lsn
from psql_streamer.model import Batch, TransactionMetadata
from psql_streamer.pgoutput.decoder import Decoder
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.pipeline.coalescing import cut, merge
from tests import pgoutput_wire as wire
from tests.decoding import BEGINNING, SOURCE, blocks, decode
from tests.flatten import flatten_all
from tests.naive_pgoutput import naive_changes
from tests.pgoutput_wire import WireColumn, WireRelation
from tests.strategies import History, RowChange, Step, Transaction, Truncation, histories

Told = tuple[object, ...]
"""("begin", commit LSN), ("end", commit LSN, counts by table) or ("change", commit LSN, seq, table_seq)."""


def told(batches: Iterable[Batch]) -> list[Told]:
    """What the batches say of transactions, in the order in which an encoder would."""
    return [one for batch in batches for one in _told(batch)]


def _told(batch: Batch) -> list[Told]:
    commit_lsn = batch.transactions.commit.tolist()
    metadata = metadata_of(batch)
    found: list[tuple[int, int, Told]] = []
    for tx, batch_order in zip(metadata.ends.tx.tolist(), metadata.ends.batch_order.tolist(), strict=True):
        found.append((batch_order, 0, ("end", commit_lsn[tx], _counts(batch, tx))))
    for tx, batch_order in zip(metadata.begins.tx.tolist(), metadata.begins.batch_order.tolist(), strict=True):
        found.append((batch_order, 1, ("begin", commit_lsn[tx])))
    for changes in batch.changes:
        assert changes.table_seq is not None
        columns = changes.batch_order, changes.tx, changes.seq, changes.table_seq
        for batch_order, tx, seq, table_seq in zip(*(column.tolist() for column in columns), strict=True):
            found.append((batch_order, 2, ("change", commit_lsn[tx], seq, table_seq)))
    for truncate in batch.truncates:
        what = ("change", commit_lsn[truncate.tx], truncate.seq, truncate.table_seq)
        found.append((truncate.batch_order, 2, what))
    for message in batch.messages:
        if message.tx >= 0:
            what = ("change", commit_lsn[message.tx], message.seq, message.table_seq)
            found.append((message.batch_order, 2, what))
    return [what for _, _, what in sorted(found, key=lambda one: one[:2])]


def metadata_of(batch: Batch) -> TransactionMetadata:
    assert batch.transaction_metadata is not None
    return batch.transaction_metadata


def _counts(batch: Batch, tx: int) -> dict[int, int]:
    counts = metadata_of(batch).counts
    at = (counts.tx == tx).nonzero()[0].tolist()
    assert at == list(range(at[0], at[-1] + 1)), "the counts of a transaction stand together"
    tables = [counts.tables[table] for table in counts.table[at].tolist()]
    return dict(zip((int(table.id) if table else 0 for table in tables), counts.count[at].tolist(), strict=True))


def expected(frames: Sequence[bytes]) -> list[Told]:
    """The same from the oracle's list of changes."""
    found: list[Told] = []
    counts: Counter[int] = Counter()
    last: int | None = None
    for change in naive_changes(b"".join(frames)):
        if change.xid is None:
            continue
        if change.commit_lsn != last:
            if last is not None:
                found.append(("end", last, dict(counts)))
            counts.clear()
            last = change.commit_lsn
            found.append(("begin", last))
        oid = change.relation.oid if change.relation else 0
        found.append(("change", last, change.seq, counts[oid]))
        counts[oid] += 1
    return found if last is None else [*found, ("end", last, dict(counts))]


@given(history=histories(max_width=5), size=st.integers(1, 9))
def test_every_transaction_begins_before_its_changes_and_ends_behind_them(history: History, size: int) -> None:
    frames = history.session()
    assert told(decode(frames, size)) == expected(frames)


@given(histories(max_width=5), st.integers(1, 7), st.integers(1, 5))
def test_merged_and_cut_batches_say_the_same(history: History, size: int, rows: int) -> None:
    frames = history.session()
    batches = decode(frames, size)
    if batches:
        assert told([merge(batches)]) == expected(frames)
        pieces = list(cut(merge(batches), rows))
        assert told(pieces) == expected(frames)
        assert told([merge(pieces)]) == expected(frames)


@settings(max_examples=20)
@given(history=histories(max_happenings=5, max_width=5), size=st.integers(1, 6))
def test_a_restart_repeats_nothing_and_counts_as_before(history: History, size: int) -> None:
    everything = expected(history.session())
    durable: list[Told] = []
    for batch in decode(history.session(), size):
        durable += told([batch])
        again = told(decode(history.session(WalPosition.from_position(batch.position).lsn), size, batch.position))
        assert durable + again == everything, f"restarted from {batch.position}"


@given(history=histories(max_width=5), size=st.integers(1, 9))
def test_nobody_who_does_not_ask_is_told_and_the_changes_are_the_same(history: History, size: int) -> None:
    frames = history.session()
    machine = Decoder(SOURCE, BEGINNING)
    untold = [machine.decode(piece.data, piece.offsets) for piece in blocks(frames, size)]
    assert {batch.transaction_metadata for batch in untold} <= {None}
    assert {changes.table_seq for batch in untold for changes in batch.changes} <= {None}
    assert flatten_all(untold) == flatten_all(decode(frames, size))
    assert [batch.position for batch in untold] == [batch.position for batch in decode(frames, size)]


NUMBERS = WireRelation(16400, "public", "numbers", (WireColumn("n", 20, key=True),))
OTHERS = WireRelation(16401, "public", "others", (WireColumn("n", 20, key=True),))


def insert(relation: WireRelation) -> RowChange:
    return RowChange(relation, 990, (b"1",), None, "")


def transaction(commit_lsn: int, *steps: Step) -> Transaction:
    return Transaction(xid=7, commit_lsn=commit_lsn, end_lsn=commit_lsn + 8, commit_ts=0, steps=steps)


def test_a_truncate_counts_as_a_change_of_its_table() -> None:
    steps = insert(NUMBERS), Truncation((NUMBERS, OTHERS), 990, False, False), insert(NUMBERS)
    frames = History([transaction(1000, *steps)]).session()
    for size in (1, 100):
        assert told(decode(frames, size)) == [
            ("begin", 1000),
            ("change", 1000, 0, 0),
            ("change", 1000, 1, 1),
            ("change", 1000, 2, 0),
            ("change", 1000, 3, 2),
            ("end", 1000, {16400: 3, 16401: 1}),
        ]


def test_a_commit_that_comes_alone_still_ends_its_transaction() -> None:
    *before, commit = decode(History([transaction(1000, insert(NUMBERS))]).session(), 1)
    assert len(commit) == 0
    assert not commit.idle
    assert told([commit]) == [("end", 1000, {16400: 1})]
    assert told(before) == [("begin", 1000), ("change", 1000, 0, 0)]


def test_a_transaction_without_changes_neither_begins_nor_ends() -> None:
    (batch,) = decode(History([transaction(1000)]).session(), 100)
    assert batch.idle
    assert told([batch]) == []


def test_after_a_restart_inside_a_transaction_only_its_end_is_told() -> None:
    frames = History([transaction(1000, insert(NUMBERS), insert(OTHERS), insert(NUMBERS))]).session()
    assert told(decode(frames, 100, WalPosition(Lsn(0), Lsn(1000), 2))) == [
        ("change", 1000, 2, 1),
        ("end", 1000, {16400: 2, 16401: 1}),
    ]
    assert told(decode(frames, 2, WalPosition(Lsn(0), Lsn(1000), 3))) == [("end", 1000, {16400: 2, 16401: 1})]


def test_a_table_that_is_renamed_is_counted_under_its_last_name() -> None:
    renamed = WireRelation(16400, "public", "figures", NUMBERS.columns)
    frames = History([transaction(1000, insert(NUMBERS), insert(renamed))]).session()
    assert wire.relation(renamed) in b"".join(frames)
    for size in (1, 2, 100):
        batches = decode(frames, size, BEGINNING)
        (counts,) = [metadata_of(batch).counts for batch in batches if len(metadata_of(batch).ends)]
        names = [str(counts.tables[table]) for table in counts.table.tolist()]
        assert dict(zip(names, counts.count.tolist(), strict=True)) == {"public.figures": 2}
