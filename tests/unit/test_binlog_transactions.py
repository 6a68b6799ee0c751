"""Where transactions begin and end, and how many changes of which table they have, wherever blocks end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from psql_streamer.binlog.decoded import Decoded
from tests.binlog_files import changes_of, decode, decoder, read_events

Marks = tuple[list[int], list[tuple[int, dict[str, int]]]]


def marks_of(pieces: Sequence[Decoded]) -> Marks:
    """Commit numbers of the transactions that begin, and of those that end, with their counts by table."""
    begins, ends = [], []
    for piece in pieces:
        told, commit = piece.transaction_metadata, piece.transactions.commit
        assert told is not None
        begins += commit[told.begins.tx].tolist()
        for tx in told.ends.tx.tolist():
            mine = [at for at, of in enumerate(told.counts.tx.tolist()) if of == tx]
            tables = [str(told.counts.tables[told.counts.table[at]]) for at in mine]
            ends.append((int(commit[tx]), dict(zip(tables, told.counts.count[mine].tolist(), strict=True))))
    return begins, ends


def table_seqs(pieces: Sequence[Decoded]) -> list[tuple[int, str, int]]:
    """Commit number, table and table_seq of each row and truncate."""
    found = []
    for number, piece in enumerate(pieces):
        commit = piece.transactions.commit
        for changes in piece.changes:
            assert changes.table_seq is not None
            for row, table_seq in enumerate(changes.table_seq.tolist()):
                place = number, int(changes.batch_order[row])
                found.append((place, int(commit[changes.tx[row]]), str(changes.relation), table_seq))
        for one in piece.truncates:
            place = number, one.batch_order
            found.append((place, int(commit[one.tx]), str(one.relation), one.table_seq))
    return [one[1:] for one in sorted(found)]


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
@pytest.mark.parametrize("name", ["rows", "shapes", "images", "compressed", "xa"])
@pytest.mark.parametrize("cut", ["all at once", "event by event"])
def test_transactions_say_where_they_begin_and_end_and_what_they_changed(flavor: str, name: str, cut: str) -> None:
    events = read_events(f"{flavor}_{name}")
    reading = decoder(flavor, transaction_metadata=True)
    blocks = [events] if cut == "all at once" else [[event] for event in events]
    pieces = [piece for block in blocks for piece in reading.decode(block)]
    counted: dict[int, Counter[str]] = {}
    expected = []
    for commit, table in [(commit, table) for commit, table, _ in table_seqs(pieces)]:
        of_tx = counted.setdefault(commit, Counter())
        expected.append((commit, table, of_tx[table]))
        of_tx[table] += 1
    assert table_seqs(pieces) == expected
    assert marks_of(pieces) == (list(counted), [(commit, dict(tables)) for commit, tables in counted.items()])


def test_nobody_counts_unless_asked() -> None:
    (piece,) = decode(read_events("mysql_rows"), "mysql")
    assert piece.transaction_metadata is None
    assert {changes.table_seq is None for changes in piece.changes} == {True}


def test_changes_that_are_delivered_already_count_too() -> None:
    events = read_events("mariadb_rows")
    first = decoder(transaction_metadata=True)
    before = [piece for event in events[:9] for piece in first.decode([event])]
    opened = next(piece.standing.open for piece in before if piece.standing.open)
    again = decode(events, resume=opened, transaction_metadata=True)
    begins, ends = marks_of(again)
    assert opened.commit not in begins
    assert dict(ends)[opened.commit] == {"a.t": 2}
    assert len(changes_of(again)) == 2
