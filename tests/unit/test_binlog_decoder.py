"""Events of the binlog become changes, with their transactions, and say where a restart goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from psql_streamer.binlog.decoded import Decoded
from psql_streamer.binlog.events import EventType
from psql_streamer.binlog.stream import EventStream
from psql_streamer.errors import SourceRefused
from psql_streamer.model import Relation
from tests.binlog_files import changes_of, decode, decoder, read_events, without_checksums

FIRST = {"id": b"1", "n": b"18446744073709551615", "d": b"-12.34", "at": b"2026-01-02 03:04:05.678"}
FIRST |= {"s": "héllo".encode(), "u": b"", "x": None}
SECOND = {"id": b"2", "n": None, "d": b"0.05", "at": None, "s": None, "u": b"x", "x": b"-128"}
CHANGED = FIRST | {"s": b"new", "d": b"-0.50"}

ROWS = [
    ("a.t", "insert", 2, 0, None, FIRST),
    ("a.t", "insert", 2, 1, None, SECOND),
    ("a.t", "update", 3, 0, FIRST, CHANGED),
    ("a.t", "delete", 4, 0, SECOND, None),
]


def test_inserts_updates_and_deletes_come_with_their_old_and_new_rows() -> None:
    assert changes_of(decode(read_events("mariadb_rows"))) == ROWS


def test_a_truncate_is_one_change_of_its_transaction() -> None:
    (piece,) = decode(read_events("mariadb_rows"))
    (truncate,) = piece.truncates
    assert (str(truncate.relation), truncate.seq, truncate.batch_order) == ("a.t", 0, 4)
    assert piece.transactions.find_id(truncate.tx) == "0-11-5"


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
    assert (str(opened.gtid), opened.changes) == ("0-11-2", 2)
    assert changes_of(decode(events, resume=opened)) == ROWS[2:]


BOTH = pytest.mark.parametrize("flavor", ["mariadb", "mysql"])


def rows_of(flavor: str, name: str) -> list[tuple[Any, ...]]:
    """Op, old row, new row."""
    return [(op, old, new) for _, op, _, _, old, new in changes_of(decode(read_events(f"{flavor}_{name}"), flavor))]


@BOTH
def test_rows_of_an_xa_transaction_come_when_it_is_committed(flavor: str) -> None:
    pieces = decode(read_events(f"{flavor}_xa"), flavor)
    found = [(commit, seq, new["id"]) for _, _, commit, seq, _, new in changes_of(pieces)]
    assert found == [(3, 0, b"3"), (5, 0, b"1"), (5, 1, b"2"), (7, 0, b"5"), (8, 0, b"6")]


CREATED, PREPARED, COMMITTED, ROLLED_BACK = 1, 2, 5, 6


@BOTH
def test_an_xa_transaction_that_waits_for_its_outcome_is_not_behind(flavor: str) -> None:
    one_by_one = decoder(flavor)
    prepared_at = 0
    completed: list[int] = []
    for event in read_events(f"{flavor}_xa"):
        for piece in one_by_one.decode([event]):
            completed += [gtid.number for gtid in piece.completed]
            if prepared_at and not {PREPARED, ROLLED_BACK} <= set(completed):
                assert piece.standing.position == prepared_at
                assert (PREPARED in completed) == (COMMITTED in completed)
                assert flavor == "mysql" or completed == [CREATED]
            if event[4] == EventType.XA_PREPARE and not prepared_at:
                prepared_at = piece.standing.position
    assert sorted(completed) == list(range(1, 9))


@BOTH
def test_a_prepared_transaction_takes_only_so_much_memory(flavor: str) -> None:
    with pytest.raises(SourceRefused, match=r"XA transactions .* more than 60 bytes.*XA RECOVER"):
        decode(read_events(f"{flavor}_xa"), flavor, most_prepared=60)


@BOTH
def test_the_commit_of_an_xa_transaction_that_was_prepared_before_stops(flavor: str) -> None:
    events = read_events(f"{flavor}_xa")
    prepared = next(place for place, event in enumerate(events) if event[4] == EventType.XA_PREPARE)
    with pytest.raises(SourceRefused, match="prepared before the stream began"):
        decode([events[0], *events[prepared + 1 :]], flavor)


@BOTH
def test_the_rollback_of_an_xa_transaction_that_was_prepared_before_does_not(flavor: str) -> None:
    events = read_events(f"{flavor}_xa")
    begins = [place for place, event in enumerate(events) if event[4] in (EventType.GTID, EventType.MARIADB_GTID)]
    rolled_back = next(place for place, event in enumerate(events) if b"XA ROLLBACK" in event)
    pieces = decode([events[0], *events[max(place for place in begins if place < rolled_back) :]], flavor)
    assert [new["id"] for *_, new in changes_of(pieces)] == [b"5", b"6"]
    assert [gtid.number for piece in pieces for gtid in piece.completed] == [ROLLED_BACK, 7, 8]


@BOTH
def test_rows_are_decoded_in_the_shape_of_their_time(flavor: str) -> None:
    pieces = decode(read_events(f"{flavor}_shapes"), flavor)
    changes = changes_of(pieces)
    assert [(table, op, (new or old)["id"]) for table, op, _, _, old, new in changes if table in ("a.t", "a.r")] == [
        ("a.t", "insert", b"1"),
        ("a.t", "insert", b"2"),
        ("a.t", "insert", b"3"),
        ("a.t", "insert", b"5"),
        ("a.r", "update", b"1"),
        ("a.r", "update", b"2"),
        ("a.r", "update", b"3"),
        ("a.r", "update", b"5"),
    ]
    assert [list(new) for *_, new in changes[:3]] == [
        ["id", "v", "n", "b"],
        ["id", "v", "n", "b", "late"],
        ["id", "v", "n", "b"],
    ]
    shown = [(str(one.relation), one.relation.version) for piece in pieces for one in piece.schema_changes]
    assert shown == [("a.t", 1), ("a.t", 2), ("a.t", 3), ("a.r", 1), ("a.c", 1), ("a.m", 1)]


@BOTH
def test_a_shape_change_has_the_place_of_the_first_change_in_it(flavor: str) -> None:
    (piece,) = decode(read_events(f"{flavor}_shapes"), flavor)
    firsts = {}
    for changes in piece.changes:
        first = int(changes.batch_order.argmin())
        place = int(changes.batch_order[first]), int(changes.seq[first]), int(changes.tx[first])
        firsts[str(changes.relation), changes.relation.version] = place
    shown = {
        (str(one.relation), one.relation.version): (one.batch_order, one.seq, one.tx) for one in piece.schema_changes
    }
    assert shown == firsts


@BOTH
def test_statements_that_change_tables_are_told(flavor: str) -> None:
    (piece,) = decode(read_events(f"{flavor}_shapes"), flavor)
    assert [(one.words, one.schema, one.table) for one in piece.ddl] == [
        ("CREATE TABLE", "a", "t"),
        ("ALTER TABLE", "a", "t"),
        ("ALTER TABLE", "a", "t"),
        ("RENAME TABLE", "a", "t"),
        ("CREATE TABLE", "a", "c"),
        ("CREATE TABLE", "a", "m"),
        ("DROP TABLE", "a", "r"),
    ]
    assert [str(one.relation) for one in piece.truncates] == ["a.r"]
    commits = piece.transactions.commit
    assert [(one.text, str(one.relation), len(one.relation.columns)) for one in piece.statements] == [
        ("CREATE TABLE a.t", "a.t", 0),
        ("ALTER TABLE a.t", "a.t", 4),
        ("ALTER TABLE a.t", "a.t", 5),
        ("RENAME TABLE a.t TO a.r", "a.t", 4),
        ("RENAME TABLE a.t TO a.r", "a.r", 0),
        ("CREATE TABLE a.c", "a.c", 0),
        ("CREATE TABLE a.m", "a.m", 0),
        ("DROP TABLE a.r", "a.r", 4),
    ]
    told = [int(commits[one.tx]) for one in piece.statements]
    assert told == sorted(told)


@BOTH
def test_rolled_back_rows_never_come(flavor: str) -> None:
    pieces = decode(read_events(f"{flavor}_shapes"), flavor)
    assert not {b"4", b"6"} & {(new or old)["id"] for table, _, _, _, old, new in changes_of(pieces) if table == "a.t"}


@BOTH
def test_a_table_that_comes_back_to_an_old_shape_gets_a_new_version(flavor: str) -> None:
    (piece,) = decode(read_events(f"{flavor}_shapes"), flavor)
    of_t = [one for one in piece.schema_changes if one.relation.table == "t"]
    assert of_t[0].relation.columns == of_t[2].relation.columns
    assert [one.before and one.before.version for one in of_t] == [None, 1, 2]


@BOTH
def test_a_remembered_shape_is_no_change_of_it(flavor: str) -> None:
    (piece,) = decode(read_events(f"{flavor}_shapes"), flavor)
    remembered = {"a.r": replace(piece.schema_changes[3].relation, version=7)}
    (again,) = decode(read_events(f"{flavor}_shapes"), flavor, remembered=remembered)
    assert "a.r" not in {str(one.relation) for one in again.schema_changes}
    assert {one.relation.version for one in again.changes if str(one.relation) == "a.r"} == {7}


@BOTH
def test_columns_that_an_image_lacks_are_told_from_null(flavor: str) -> None:
    """MINIMAL sends the key, and what was written; NOBLOB leaves out a TEXT that nobody changed."""
    one, two = {"id": b"1"}, {"id": b"2", "v": b"two", "n": None}
    zwei = two | {"v": b"zwei"}
    assert rows_of(flavor, "images") == [
        ("insert", None, {"id": b"1", "v": None}),
        ("update", one, {"n": None, "b": b"x"}),
        ("delete", one, None),
        ("insert", None, two | {"b": b"blob"}),
        ("update", two, zwei),
        ("update", zwei, zwei | {"b": b"text"}),
        ("delete", zwei, None),
    ]


def test_a_row_without_any_column_is_a_row() -> None:
    """MySQL writes it with no bytes at all; MariaDB writes the default of a column."""
    assert rows_of("mysql", "no_columns") == [("insert", None, {}), ("insert", None, {"b": b"1"})]
    assert [op for op, *_ in rows_of("mariadb", "no_columns")] == ["insert", "insert"]


def test_the_flag_of_a_file_in_use_is_not_part_of_its_checksum() -> None:
    first, *rest = read_events("mysql_rows")
    in_use = first[:17] + bytes([first[17] | 1]) + first[18:]
    assert changes_of(decode([in_use, *rest], "mysql")) == changes_of(decode([first, *rest], "mysql"))


@BOTH
def test_compressed_transactions_are_read(flavor: str) -> None:
    one, two = {"id": b"1", "v": b"one", "n": None, "b": b"long " * 300}, {"id": b"2", "v": None, "n": None}
    two["b"] = b"text " * 300
    new = {"b": b"new " * 300}
    assert rows_of(flavor, "compressed") == [
        ("insert", None, one),
        ("insert", None, two),
        ("update", one, one | new),
        ("update", two, two | new),
        ("delete", one | new, None),
        ("delete", two | new, None),
    ]


@BOTH
def test_pieces_stay_small_within_a_compressed_transaction(flavor: str) -> None:
    events = read_events(f"{flavor}_compressed")
    pieces = decode(events, flavor, most_bytes=1)
    assert max(piece.changes.rows for piece in pieces) <= 2
    assert changes_of(pieces) == changes_of(decode(events, flavor))


@BOTH
def test_rows_that_come_as_a_statement_stop_without_its_values(flavor: str) -> None:
    with pytest.raises(SourceRefused, match=r"UPDATE in 'a' as a statement.*binlog_format=ROW") as refused:
        decode(read_events(f"{flavor}_statements"), flavor)
    assert "secret" not in str(refused.value)


@BOTH
def test_columns_without_names_are_refused_with_the_setting(flavor: str) -> None:
    with pytest.raises(SourceRefused, match="SET GLOBAL binlog_row_metadata=FULL"):
        decode(read_events(f"{flavor}_unnamed"), flavor)


@BOTH
def test_tables_that_are_not_wanted_are_left_alone(flavor: str) -> None:
    pieces = decode(read_events(f"{flavor}_unnamed"), flavor, wanted=lambda _, table: table != "t")
    assert changes_of(pieces) == []


def test_an_update_of_a_part_of_a_document_is_refused_by_its_option() -> None:
    with pytest.raises(SourceRefused, match="SET GLOBAL binlog_row_value_options=''"):
        decode(read_events("mysql_partial_json"), "mysql")


def test_tagged_gtids_have_numbers_of_their_own() -> None:
    pieces = decode(read_events("mysql_tagged"), "mysql")
    uuid = pieces[0].source.identity
    assert [piece.source.identity for piece in pieces] == [uuid, f"{uuid}:orders", uuid]
    assert [[str(gtid) for gtid in piece.completed] for piece in pieces] == [
        [f"{uuid}:1", f"{uuid}:2"],
        [f"{uuid}:orders:1", f"{uuid}:orders:2"],
        [f"{uuid}:3"],
    ]
    assert [(commit, seq, new["id"]) for _, _, commit, seq, _, new in changes_of(pieces)] == [
        (2, 0, b"1"),
        (1, 0, b"2"),
        (2, 0, b"3"),
        (3, 0, b"4"),
    ]


@BOTH
@pytest.mark.parametrize("name", ["rows", "xa", "shapes", "images", "compressed", "types"])
def test_blocks_may_end_anywhere(flavor: str, name: str) -> None:
    """Every event a block of its own gives what all of them at once give."""
    events = read_events(f"{flavor}_{name}")
    one_by_one = decoder(flavor)
    pieces = [piece for event in events for piece in one_by_one.decode([event])]
    assert changes_of(pieces) == changes_of(decode(events, flavor))


@BOTH
@pytest.mark.parametrize("name", ["rows", "shapes", "images", "compressed"])
def test_a_restart_anywhere_loses_nothing_and_repeats_nothing(flavor: str, name: str) -> None:
    """The server sends the whole transaction again that was open."""
    events = read_events(f"{flavor}_{name}")
    whole = changes_of(decode(events, flavor))
    for stop in range(1, len(events)):
        first = decoder(flavor)
        before = [piece for event in events[:stop] for piece in first.decode([event])]
        standing = before[-1].standing
        rest = [event for event in events if int.from_bytes(event[13:17], "little") > standing.position]
        again = decoder(flavor, position=standing.position, resume=standing.open, remembered=remembered_of(before))
        after = list(again.decode(rest if rest[:1] == events[:1] else [events[0], *rest]))
        assert changes_of(before) + changes_of(after) == whole, stop


@BOTH
@pytest.mark.parametrize("name", ["shapes", "rows"])
def test_a_statement_is_told_once_wherever_a_piece_ends_and_reading_goes_on(flavor: str, name: str) -> None:
    """Also CREATE TABLE ... SELECT, which is one transaction with rows."""
    events = read_events(f"{flavor}_{name}")
    whole = told_by(decode(events, flavor))
    for stop in range(1, len(events)):
        reading = decoder(flavor)
        before = list(reading.decode(events[:stop]))
        assert told_by([*before, *reading.decode(events[stop:])]) == whole, stop
        standing = before[-1].standing
        rest = [event for event in events if int.from_bytes(event[13:17], "little") > standing.position]
        again = decoder(flavor, position=standing.position, resume=standing.open, remembered=remembered_of(before))
        after = list(again.decode(rest if rest[:1] == events[:1] else [events[0], *rest]))
        assert told_by(before) + told_by(after) == whole, stop


def told_by(pieces: Sequence[Decoded]) -> list[tuple[str, str, int, int]]:
    """Statement, table, commit number and seq."""
    return [
        (one.text, str(one.relation), int(piece.transactions.commit[one.tx]), one.seq)
        for piece in pieces
        for one in piece.statements
    ]


def remembered_of(pieces: Sequence[Decoded]) -> dict[str, Relation]:
    return {one.relation.id: one.relation for piece in pieces for one in piece.schema_changes}


def test_without_gtids_a_transaction_has_the_number_of_its_file_and_place() -> None:
    """4 bytes of each: they increase from commit to commit, and are known when the first row comes."""
    events = read_events("mysql_anonymous")
    (piece,) = decode(events, "mysql", file="bin.000007")
    ids = piece.transactions.list_id_texts().to_pylist()
    begins = {
        int.from_bytes(event[13:17], "little") - len(event) for event in events if event[4] == EventType.ANONYMOUS_GTID
    }
    assert piece.source.identity == ""
    assert piece.completed == ()
    assert {commit >> 32 for commit in piece.transactions.commit.tolist()} == {7}
    assert {commit & 0xFFFF_FFFF for commit in piece.transactions.commit.tolist()} == begins
    assert ids == [b"bin.000007:%d" % begin for begin in sorted(begins)]
    assert [(seq, op) for _, op, _, seq, _, _ in changes_of([piece])] == [
        (0, "insert"),
        (1, "insert"),
        (0, "insert"),
        (1, "update"),
        (2, "update"),
        (3, "update"),
    ]


def test_the_time_of_a_commit_is_the_original_server_s() -> None:
    """In microseconds of MySQL; MariaDB's binlog has seconds."""
    for flavor, whole in (("mysql", False), ("mariadb", True)):
        (piece,) = decode(read_events(f"{flavor}_rows"), flavor)
        moments = piece.transactions.commit_ts
        assert 1_760_000_000_000_000 < moments.min() <= moments.max() < 1_900_000_000_000_000
        assert ((moments % 1_000_000) == 0).all() == whole


def test_a_place_beyond_4_gigabytes_goes_on_from_the_one_before() -> None:
    """The header has 32 bits for it."""
    stream = EventStream("bin.000001", (1 << 32) - 40)
    event = without_checksums(read_events("mysql_rows"))[-2]
    placed = event[:13] + (100).to_bytes(4, "little") + event[17:]
    list(stream.read([placed]))
    assert stream.at == (1 << 32) + 100


def test_a_heartbeat_moves_the_place_between_transactions() -> None:
    events = without_checksums(read_events("mysql_rows"))
    reading = decoder("mysql")
    (before,) = reading.decode(events[:-1])
    heartbeat = bytearray(events[-2])
    heartbeat[4], heartbeat[13:17] = EventType.HEARTBEAT, (before.standing.position + 500).to_bytes(4, "little")
    (after,) = reading.decode([bytes(heartbeat)])
    assert after.standing.position == before.standing.position + 500
    assert after.changes.rows == 0


@BOTH
def test_shapes_that_no_longer_hold_are_forgotten(flavor: str) -> None:
    """Each time a table gets another shape, and goes back to the old one, it has another version."""
    events, reading = read_events(f"{flavor}_shapes"), decoder(flavor)
    (first,) = reading.decode(events)
    lengths, versions = set(), []
    for _ in range(120):
        (piece,) = reading.decode(events)
        lengths.add(len(piece.changes.shapes))
        versions += [one.relation.version for one in piece.schema_changes if one.relation.table == "t"]
        assert changes_of([piece]) == changes_of([first])
    assert max(lengths) < 400
    assert versions == list(range(4, 4 + len(versions)))


def test_times_of_tables_from_before_mysql_5_6_are_read() -> None:
    (first, zero, last) = [new for *_, new in changes_of(decode(read_events("mariadb_old_times")))]
    assert first == {
        "id": b"1",
        "d": b"2026-11-22 23:59:58",
        "s": b"2026-11-22 20:59:58+00",
        "t": b"-838:59:59",
        "v": b"e",
    }
    assert list(zero.values()) == [b"2", b"0000-00-00 00:00:00", b"0000-00-00 00:00:00", b"00:00:01", b"f"]
    assert list(last.values()) == [b"3", b"9999-12-31 23:59:59", None, b"838:59:59", b"g"]
