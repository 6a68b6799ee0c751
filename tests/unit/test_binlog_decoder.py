"""Events of the binlog become changes, with their transactions, and say where a restart goes on."""

from __future__ import annotations

from tests.binlog_files import changes_of, decode, decoder, read_events

FIRST = {"id": b"1", "n": b"18446744073709551615", "d": b"-12.34", "at": b"2026-01-02 03:04:05.678"}
FIRST |= {"s": "héllo".encode(), "u": b"", "x": None}
SECOND = {"id": b"2", "n": None, "d": b"0.05", "at": None, "s": None, "u": b"x", "x": b"-128"}
CHANGED = FIRST | {"s": b"new", "d": b"-0.50"}

ROWS = [
    ("a.t", "insert", 4, 0, None, FIRST),
    ("a.t", "insert", 4, 1, None, SECOND),
    ("a.t", "update", 5, 0, FIRST, CHANGED),
    ("a.t", "delete", 6, 0, SECOND, None),
]


def test_inserts_updates_and_deletes_come_with_their_old_and_new_rows() -> None:
    assert changes_of(decode(read_events("mariadb_rows"))) == ROWS


def test_a_truncate_is_one_change_of_its_transaction() -> None:
    (piece,) = decode(read_events("mariadb_rows"))
    (truncate,) = piece.truncates
    assert (str(truncate.relation), truncate.seq, truncate.batch_order) == ("a.t", 0, 4)
    assert piece.transactions.id_of(truncate.tx) == "0-11-7"


def test_one_event_after_the_other_gives_the_same_as_all_at_once() -> None:
    one_by_one = decoder()
    pieces = [piece for event in read_events("mariadb_rows") for piece in one_by_one.decode([event])]
    assert changes_of(pieces) == ROWS


def test_a_restart_inside_a_transaction_goes_on_behind_what_was_delivered() -> None:
    events = read_events("mariadb_rows")
    first = decoder()
    for event in events:
        (piece,) = first.decode([event])
        if piece.changes.rows:
            break
    opened = piece.standing.open
    assert opened is not None
    assert (str(opened.gtid), opened.changes) == ("0-11-4", 2)
    assert changes_of(decode(events, resume=opened)) == ROWS[2:]
