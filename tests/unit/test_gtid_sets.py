"""Sets of GTIDs against sets of Python's, and as the servers write them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.binlog.decoded import OpenTransaction
from psql_streamer.binlog.events import Gtid
from sources.mysql.gtid_sets import DomainPositions, GtidSet
from sources.mysql.places import Place, parse_executed, parse_override
from sources.mysql.positions import BinlogPosition

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"

GTIDS = st.lists(st.tuples(st.sampled_from([A, B, f"{A}:tag_1"]), st.integers(1, 40)), max_size=60)


def made(gtids: list[tuple[str, int]]) -> GtidSet:
    found = GtidSet()
    for gtid in gtids:
        found.add(*gtid)
    return found


@given(GTIDS, GTIDS)
def test_a_set_is_a_set(one: list[tuple[str, int]], other: list[tuple[str, int]]) -> None:
    mine, theirs = made(one), made(other)
    assert str(GtidSet.parse(str(mine))) == str(mine)
    assert mine.count_lacking(theirs) == len(set(other) - set(one))
    assert mine.includes(theirs) == (set(other) <= set(one))
    assert all(mine.holds(*gtid) == (gtid in one) for gtid in other)


def test_a_set_is_written_as_the_server_writes_it() -> None:
    text = f"{A}:1-5:7,{B}:tag_1:1-3"
    assert str(GtidSet.parse(f" {A.upper()}:1-3:3-5:7 ,\n{B}:tag_1:1:2-3")) == text
    assert str(made([(A, 2), (A, 1), (A, 3)])) == f"{A}:1-3"
    assert str(GtidSet.parse("")) == ""


def test_a_set_is_sent_as_a_dump_wants_it() -> None:
    sent = GtidSet.parse(f"{A}:1-5:7").encode()
    assert sent == struct.pack("<Q", 1) + bytes.fromhex(A.replace("-", "")) + struct.pack("<QQQQQ", 2, 1, 6, 7, 8)


@pytest.mark.parametrize("text", ["0-1-4", "x", A, f"{A}:", f"{A}:1-", f"{A}:Ü:1"])
def test_what_is_no_set_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a set of GTIDs"):
        GtidSet.parse(text)


def test_domains_have_a_last_gtid_each() -> None:
    found = DomainPositions.parse("0-1-4,1-1-9,0-2-7")
    assert str(found) == "0-2-7,1-1-9"
    found.add("0-3", 8)
    assert str(found) == "0-3-8,1-1-9"
    assert found.count_lacking(DomainPositions.parse("0-1-10,2-1-5")) == 7
    assert found.includes(DomainPositions.parse("0-9-8"))
    assert found.holds("0-1", 8)
    assert not found.holds("5-1", 1)
    with pytest.raises(ValueError, match="is not a list of GTIDs"):
        DomainPositions.parse("0-1")


def position(executed: str | None, offset: int = 4, changes: int = 0, file: str = "b.000009") -> BinlogPosition:
    held = OpenTransaction(Gtid("0-1", 5), 5, changes) if changes else None
    return BinlogPosition(executed, Place(file, offset), "", held)


def test_positions_are_compared_by_their_gtids() -> None:
    assert position("0-1-5").has_reached(position("0-1-4", 900))
    assert not position("0-1-4", 900).has_reached(position("0-1-5"))
    assert position("0-1-4", changes=3).has_reached(position("0-1-4", changes=2))
    assert not position("0-1-4", changes=2).has_reached(position("0-1-4", changes=3))
    assert position("0-1-5").has_reached(position("0-1-4", changes=3))
    assert position("0-1-1").has_reached(position(""))
    assert not position("").has_reached(position("0-1-1"))
    assert position("").has_reached(position(""))


def test_positions_without_gtids_are_compared_by_file_and_offset() -> None:
    assert position(None, 4, file="b.1000000").has_reached(position(None, 99, file="b.999999"))
    assert not position(None, 4).has_reached(position(None, 5))


def test_a_position_is_stored_and_comes_back() -> None:
    for one in (position("0-1-4", 77, 3), position(None), position(f"{A}:1-4")):
        assert BinlogPosition.from_position(one.position) == one
    assert isinstance(parse_executed("0-1-4, 1-1-1"), DomainPositions)
    assert isinstance(parse_executed(f"{A}:1"), GtidSet)


def test_an_operator_names_gtids_or_a_place() -> None:
    assert parse_override("0-1-4") == ("0-1-4", Place("", 4))
    assert parse_override(f"{A}:1-4,\n{B}:7") == (f"{A}:1-4,{B}:7", Place("", 4))
    assert parse_override("mysql-bin.000007:154") == (None, Place("mysql-bin.000007", 154))
    for text in ("16/B374D848", "binlog.7", "x:1"):
        with pytest.raises(ValueError, match="is neither GTIDs"):
            parse_override(text)
