"""A row costs what its cells cost, whatever number of tables the rows of a batch are of."""

from __future__ import annotations

from collections.abc import Callable
from cProfile import Profile
from itertools import accumulate, count
from time import process_time

import pytest

from psql_streamer.events.encoder import Encoder
from psql_streamer.events.routing import Router
from psql_streamer.pgoutput.decoder import Decoder
from tests import pgoutput_wire as wire
from tests.decoding import BEGINNING, SOURCE
from tests.encoding import encoder_of

ROWS = 10_000
MOST = 1.5
"""Times the CPU of the same rows in one table."""

COLUMNS = (("id", 20), ("note", 25), ("amount", 1700), ("paid", 16), ("at", 1184), ("place", 23))


def test_rows_of_a_thousand_tables_cost_little_more_than_rows_of_one() -> None:
    """Decoded and encoded, in one process. In turn, and the best of several: other processes take turns, too."""
    one, thousand = work(1), work(1000)
    seconds = [(one(), thousand()) for _ in range(7)]
    best_of_one, best_of_thousand = (min(times) for times in zip(*seconds, strict=True))
    assert best_of_thousand < MOST * best_of_one


def work(tables: int) -> Callable[[], float]:
    """CPU seconds of one more block, in which the rows are of so many tables in turn."""
    relations = [relation(16_384 + table) for table in range(tables)]
    reader, encoder = Decoder(SOURCE, BEGINNING), encoder_of("event", Router({}, "", "t"), {})
    reader.decode(*block([wire.begin(8, 0, 7), *map(wire.relation, relations), wire.commit(8, 16, 0)]))
    inserts = [wire.insert(relations[row % tables].oid, values(row)) for row in range(ROWS)]
    data, offsets = block([wire.begin(24, 0, 8), *inserts, wire.commit(24, 32, 0)])

    def spend() -> float:
        began = process_time()
        assert len(encoder.encode(reader.decode(data, offsets))) == ROWS
        return process_time() - began

    return spend


def relation(oid: int) -> wire.WireRelation:
    columns = tuple(wire.WireColumn(name, kind, -1, name == "id") for name, kind in COLUMNS)
    return wire.WireRelation(oid, "public", f"t{oid}", columns)


def values(row: int) -> list[bytes]:
    texts = (f"{row}", f"row number {row}", f"{row}.25", "t", f"2026-11-22 00:00:00.{row:06}+00", f"{row % 1000}")
    return [text.encode() for text in texts]


def block(messages: list[bytes]) -> tuple[bytes, list[int]]:
    frames = [wire.copy_data(wire.xlog_data(message, 8, 16)) for message in messages]
    return b"".join(frames), [0, *accumulate(map(len, frames[:-1]))]


def test_the_first_row_of_a_table_costs_little_more_when_thousands_of_tables_are_known() -> None:
    """As in a session that has just begun, or under migrations: each batch has a table that is new."""
    few, many = meet_tables(100), meet_tables(6000)
    seconds = [(few(), many()) for _ in range(15)]
    best_of_few, best_of_many = (min(times) for times in zip(*seconds, strict=True))
    assert best_of_many < 2 * best_of_few


def test_a_new_column_costs_little_more_when_thousands_of_columns_are_known() -> None:
    few, many = meet_columns(100), meet_columns(6000)
    seconds = [(few(), many()) for _ in range(15)]
    best_of_few, best_of_many = (min(times) for times in zip(*seconds, strict=True))
    assert best_of_many < 2 * best_of_few


def meet_tables(known: int) -> Callable[[], float]:
    """CPU seconds of one more batch, which has a row of a table that is new. known: tables that were met before."""
    reader, encoder = Decoder(SOURCE, BEGINNING), encoder_of("event", Router({}, "p", ""), {})
    relations = (relation(16_384 + table) for table in count())
    met = [next(relations) for _ in range(known)]
    rows = [message for one in met for message in (wire.relation(one), wire.insert(one.oid, values(1)))]
    encoder.encode(reader.decode(*block([wire.begin(8, 0, 7), *rows, wire.commit(8, 16, 0)])))

    def spend() -> float:
        new = next(relations)
        return spend_on(reader, encoder, [wire.relation(new), wire.insert(new.oid, values(1))])

    return spend


def meet_columns(known: int) -> Callable[[], float]:
    """CPU seconds of one more batch, whose row has a column that is new. known: those that were met before."""
    reader, encoder = Decoder(SOURCE, BEGINNING), encoder_of("event", Router({}, "p", ""), {})
    key = wire.WireColumn("id", 20, -1, True)
    shapes = (wire.WireRelation(16_384, "public", "t", (key, wire.WireColumn(f"c{number}"))) for number in count())

    def alter() -> list[bytes]:
        return [wire.relation(next(shapes)), wire.insert(16_384, [b"1", b"x"])]

    rows = [message for _ in range(known) for message in alter()]
    encoder.encode(reader.decode(*block([wire.begin(8, 0, 7), *rows, wire.commit(8, 16, 0)])))
    return lambda: spend_on(reader, encoder, alter())


def spend_on(reader: Decoder, encoder: Encoder, messages: list[bytes]) -> float:
    data, offsets = block([wire.begin(24, 0, 8), *messages, wire.commit(24, 32, 0)])
    began = process_time()
    assert len(encoder.encode(reader.decode(data, offsets))) == 1
    return process_time() - began


def test_a_block_of_a_transaction_costs_no_more_when_that_has_changed_thousands_of_tables() -> None:
    """Where changes are counted by table, for events that say where transactions end."""
    calls = [count_calls_within_transaction(tables) for tables in (100, 3000)]
    assert calls[1] < 1.1 * calls[0]


def test_a_truncate_costs_no_more_when_its_table_was_altered_often() -> None:
    few, many = (min(truncate_altered_table(alters) for _ in range(3)) for alters in (300, 3000))
    assert many < 3 * few


def truncate_altered_table(alters: int) -> float:
    """CPU seconds for each truncate of a table, in a block in which each stands behind another shape of the table."""
    shapes = [wire.WireRelation(16_384, "public", "t", (wire.WireColumn(f"c{at}"),)) for at in range(alters)]
    changes = [message for shape in shapes for message in (wire.relation(shape), wire.truncate([16_384]))]
    data, offsets = block([wire.begin(8, 0, 7), *changes, wire.commit(8, 16, 0)])
    began = process_time()
    assert len(Decoder(SOURCE, BEGINNING).decode(data, offsets).truncates) == alters
    return (process_time() - began) / alters


@pytest.mark.parametrize("headers", [False, True])
def test_messages_and_truncates_are_written_together(headers: bool) -> None:
    """Counted in calls: an array for each record, or its transaction's headers anew, would be hundreds."""
    reader = Decoder(SOURCE, BEGINNING)
    relations = [relation(16_384 + table) for table in range(1000)]
    messages = [
        *map(wire.relation, relations),
        wire.truncate([one.oid for one in relations]),
        *(wire.message(8, "app", b"x") for _ in range(1000)),
    ]
    batch = reader.decode(*block([wire.begin(8, 0, 7), *messages, wire.commit(8, 16, 0)]))
    encoder = encoder_of("event", Router({}, "p", "", "messages"), {}, headers=headers)
    encoder.encode(batch)  # which finds the topics
    assert count_calls(lambda: encoder.encode(batch)) < 60 * 2000


def count_calls_within_transaction(tables: int) -> int:
    """Of decoding one more row of a transaction that has changed so many tables."""
    reader = Decoder(SOURCE, BEGINNING, transaction_metadata=True)
    relations = [relation(16_384 + table) for table in range(tables)]
    rows = [message for one in relations for message in (wire.relation(one), wire.insert(one.oid, values(1)))]
    reader.decode(*block([wire.begin(8, 0, 7), *rows]))
    one_more = block([wire.insert(relations[0].oid, values(1))])
    reader.decode(*one_more)
    return count_calls(lambda: reader.decode(*one_more))


def count_calls(what: Callable[[], object]) -> int:
    """Of Python's functions and of those in C."""
    profile = Profile()
    profile.runcall(what)
    return sum(entry.callcount for entry in profile.getstats())
