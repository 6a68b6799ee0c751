"""Damaged events end in an error that the source knows, or in what a plain decoder reads too: no hang, no other
exception, and never a byte of a neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from psql_streamer.binlog.decoder import Decoder
from psql_streamer.binlog.events import EventType
from psql_streamer.binlog.lockstep import LEAST_LANES
from psql_streamer.errors import ProtocolError, SourceRefused
from tests.binlog_files import HEADER, changes_of, decode, decoder, read_events, rebuilt, without_checksums
from tests.mutations import mutated
from tests.naive_binlog import Change, NaiveColumn, NaiveError, read_rows

CASES = 4_000
SLOW_CASES = 20_000
MANY_CASES = 200

COLUMNS = [
    NaiveColumn("id", width=4, signed=True),
    NaiveColumn("v", prefix=1),
    NaiveColumn("n", width=4, signed=True),
    NaiveColumn("b", prefix=2),
]
OPS = {EventType.WRITE_ROWS: "insert", EventType.UPDATE_ROWS: "update", EventType.DELETE_ROWS: "delete"}


def damaged(event: bytes, random: Random) -> bytes:
    return rebuilt(event, mutated(bytes(5) + event[HEADER:], random)[5:])


STREAM = without_checksums(read_events("mysql_images"))
ROWS = [place for place, event in enumerate(STREAM) if event[4] in OPS]


def naive_changes(events: Sequence[bytes]) -> list[Change] | None:
    """What the plain decoder reads; None where it refuses an event."""
    try:
        return [
            change
            for event in events
            if event[4] in OPS
            for change in read_rows(OPS[EventType(event[4])], event[HEADER:], COLUMNS)
        ]
    except NaiveError:
        return None


def decoded_changes(events: Sequence[bytes]) -> list[Change] | None:
    """What the decoder reads; None where it refuses an event."""
    try:
        return [(old, new) for *_, old, new in changes_of(decode(events, "mysql"))]
    except ProtocolError:
        return None


def test_the_stream_is_sound_before_it_is_damaged() -> None:
    changes = decoded_changes(STREAM)
    assert changes == naive_changes(STREAM)
    assert changes is not None
    assert len(changes) == len(ROWS)


@pytest.mark.parametrize("place", ROWS)
def test_a_rows_event_cut_anywhere_is_read_as_the_plain_decoder_reads_it(place: int) -> None:
    for length in range(len(STREAM[place]) - HEADER):
        shorter = rebuilt(STREAM[place], STREAM[place][HEADER : HEADER + length])
        events = [*STREAM[:place], shorter, *STREAM[place + 1 :]]
        assert decoded_changes(events) == naive_changes(events)


def check_damaged_rows(cases: int, seed: int) -> None:
    random = Random(seed)
    for _ in range(cases):
        place = random.choice(ROWS)
        event = rebuilt(STREAM[place], STREAM[place][HEADER : HEADER + 6] + damaged_rows(STREAM[place], random))
        events = [*STREAM[:place], event, *STREAM[place + 1 :]]
        assert decoded_changes(events) == naive_changes(events)


def damaged_rows(event: bytes, random: Random) -> bytes:
    """Behind the table's id."""
    return mutated(bytes(5) + event[HEADER + 6 :], random)[5:]


def test_damaged_rows_are_refused_or_read_as_the_plain_decoder_reads_them() -> None:
    check_damaged_rows(CASES, 20_260_101)


@pytest.mark.soak
def test_very_many_damaged_rows() -> None:
    check_damaged_rows(SLOW_CASES, 20_260_102)


def repeated(events: Sequence[bytes], times: int) -> list[bytes]:
    """A stream whose rows events stand so often behind each other, so that many are walked side by side."""
    found = []
    for event in events:
        if event[4] in OPS:
            # The flag that ends a statement, behind which no table's id holds, belongs to the last one.
            going_on = rebuilt(event, event[HEADER : HEADER + 6] + b"\0\0" + event[HEADER + 8 :])
            found += [going_on] * (times - 1)
        found.append(event)
    return found


MANY = repeated(STREAM, 2 * LEAST_LANES)


def test_many_events_are_walked_side_by_side_to_the_same_end() -> None:
    changes = decoded_changes(MANY)
    assert changes is not None
    assert len(changes) == 2 * LEAST_LANES * len(ROWS)
    assert changes == naive_changes(MANY)


def test_events_with_more_rows_than_their_neighbours_are_walked_to_their_end() -> None:
    """The row of an event twice, three times, and so on, in each of many events."""
    stream = list(STREAM)
    for place in reversed(ROWS):
        event, head = STREAM[place], HEADER + 10 + (3 if OPS[EventType(STREAM[place][4])] == "update" else 2)
        going_on = event[HEADER : HEADER + 6] + b"\0\0" + event[HEADER + 8 : head]
        stream[place:place] = [
            rebuilt(event, going_on + event[head:] * (1 + number % 7)) for number in range(2 * LEAST_LANES)
        ]
    changes = decoded_changes(stream)
    assert changes is not None
    assert changes == naive_changes(stream)


def test_a_damaged_event_among_many_takes_no_byte_of_its_neighbour() -> None:
    random, rows = Random(20_260_103), [place for place, event in enumerate(MANY) if event[4] in OPS]
    for _ in range(MANY_CASES):
        place = random.choice(rows)
        event = rebuilt(MANY[place], MANY[place][HEADER : HEADER + 8] + damaged_images(MANY[place], random))
        events = [*MANY[:place], event, *MANY[place + 1 :]]
        assert decoded_changes(events) == naive_changes(events)


def damaged_images(event: bytes, random: Random) -> bytes:
    """Behind the table's id and the flags."""
    return mutated(bytes(5) + event[HEADER + 8 :], random)[5:]


NAMES = ["types", "shapes", "xa", "images", "compressed", "tagged", "partial_json"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_damage_to_any_event_ends_in_an_error_that_says_so(flavor: str, name: str) -> None:
    if flavor == "mariadb" and name in ("tagged", "partial_json"):
        pytest.skip("MariaDB has no such events")
    random, events = Random(7), without_checksums(read_events(f"{flavor}_{name}"))
    for _ in range(30 if name == "types" else 300):
        place = random.randrange(1, len(events))
        try:
            decode([*events[:place], damaged(events[place], random), *events[place + 1 :]], flavor)
        except (ProtocolError, SourceRefused):
            continue


def test_a_wrong_checksum_is_found() -> None:
    events = read_events("mysql_rows")
    place = next(place for place, event in enumerate(events) if event[4] == EventType.WRITE_ROWS)
    events[place] = events[place][:-6] + bytes([events[place][-6] ^ 1]) + events[place][-5:]
    with pytest.raises(ProtocolError, match="checksum of a WRITE_ROWS event"):
        decode(events, "mysql")


def test_an_event_that_nobody_knows_is_refused_by_its_number_unless_it_may_be_skipped() -> None:
    events = without_checksums(read_events("mysql_rows"))
    strange = bytearray(events[-2])
    strange[4] = 99
    with pytest.raises(SourceRefused, match="a type 99 event"):
        decode([*events, bytes(strange)], "mysql")
    strange[17] |= 0x80
    assert len(decode([*events, bytes(strange)], "mysql")) == 1


def test_a_hole_in_the_binlog_stops() -> None:
    events = without_checksums(read_events("mysql_rows"))
    incident = bytearray(events[-2])
    incident[4] = EventType.INCIDENT
    with pytest.raises(SourceRefused, match="INCIDENT"):
        decode([*events, bytes(incident)], "mysql")


@pytest.mark.parametrize("kind", [EventType.WRITE_ROWS, EventType.TABLE_MAP])
def test_what_comes_outside_of_a_transaction_is_refused(kind: EventType) -> None:
    events = without_checksums(read_events("mysql_rows"))
    reading: Decoder = decoder("mysql")
    begin = next(place for place, event in enumerate(events) if event[4] == EventType.TABLE_MAP)
    with pytest.raises(ProtocolError, match="outside of any transaction"):
        list(
            reading.decode([events[0], *(event for event in events[begin:] if event[4] in (kind, EventType.TABLE_MAP))])
        )


def test_an_error_never_shows_what_a_row_holds() -> None:
    events = without_checksums(read_events("mysql_rows"))
    place = next(place for place, event in enumerate(events) if event[4] == EventType.WRITE_ROWS)
    for length in range(30, len(events[place]) - HEADER):
        shorter = rebuilt(events[place], events[place][HEADER : HEADER + length])
        assert "llo" not in refusal_of([*events[:place], shorter])


def refusal_of(events: Sequence[bytes]) -> str:
    try:
        decode(events, "mysql")
    except ProtocolError as refused:
        return str(refused)
    return ""


def with_statement(events: Sequence[bytes], old: bytes, new: bytes) -> list[bytes]:
    """The stream with another statement in place of one that comes once."""
    (place,) = (number for number, event in enumerate(events) if event[4] == EventType.QUERY and event.endswith(old))
    body = events[place][HEADER:].removesuffix(old) + new
    return [*events[:place], rebuilt(events[place], body), *events[place + 1 :]]


ROLLED_BACK = with_statement(without_checksums(read_events("mysql_shapes")), b"\0COMMIT", b"\0ROLLBACK")
"""The rows of MyISAM end with a statement, not with an XID event."""


def test_rows_that_were_rolled_back_are_not_given() -> None:
    before = changes_of(decode(without_checksums(read_events("mysql_shapes")), "mysql"))
    after = changes_of(decode(ROLLED_BACK, "mysql"))
    assert [change for change in before if change not in after] == [
        change for change in before if change[0].endswith(".m")
    ]


def test_rows_that_were_rolled_back_behind_their_delivery_stop() -> None:
    with pytest.raises(SourceRefused, match=r"was rolled back .* some of its rows were delivered"):
        decode(ROLLED_BACK, "mysql", most_bytes=1)


@pytest.mark.parametrize(
    ("statement", "stops"),
    [
        (b"INSERT INTO mysql.rds_heartbeat2 VALUES (1)", False),
        (b"replace into `mysql` . `t` values (1)", False),
        (b"INSERT INTO t SELECT * FROM mysql.user", True),
        (b"INSERT INTO a.mysql VALUES (1)", True),
        (b"SELECT `mysql`.`f`(1)", True),
        (b"DO sys.f(1)", True),
        (b"DELETE t, mysql.x FROM t", True),
        (b"/* mysql.t */ update t set v = 1", True),
        (b"-- a line\nLOAD DATA INFILE 'x' INTO TABLE t", True),
        (b"GRANT SELECT ON a.t TO u", False),
        (b"CALL p()", False),
    ],
)
def test_statements_in_place_of_rows_stop_but_for_those_of_system_tables(statement: bytes, stops: bool) -> None:
    events = with_statement(without_checksums(read_events("mysql_shapes")), b"\0ANALYZE TABLE c", b"\0" + statement)
    if stops:
        with pytest.raises(SourceRefused, match="as a statement, not as rows"):
            decode(events, "mysql")
    else:
        assert decode(events, "mysql")


def test_a_part_of_a_document_of_a_table_that_nobody_wants_is_left_alone() -> None:
    assert decode(read_events("mysql_partial_json"), "mysql", wanted=lambda _schema, _table: False)
