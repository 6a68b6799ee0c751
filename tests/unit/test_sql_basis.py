"""Which changes of a table's key leave a position of it what it is."""

from __future__ import annotations

import pytest

from psql_streamer.errors import PositionRefused
from psql_streamer.model import Position
from sources.sql.basis import Basis, KeyType, require_the_same_key, require_the_same_table
from sources.sql.progress import Piece, Progress


@pytest.mark.parametrize(
    ("before", "now", "keeps"),
    [
        ("integer", "bigint", True),
        ("bigint", "int unsigned", True),
        ("bigint", "text", False),
        ("text", "bigint", False),
        ("bigint", "numeric", False),
        ("character varying(20)", "text", True),
        ("varchar(20)", "varchar(10)", True),
        ("text", "citext", False),
        ("character(4)", "text", False),
        ("numeric(10,2)", "numeric(20,4)", True),
        ("numeric(10,4)", "numeric(20,2)", False),
        ("numeric", "numeric(20,2)", False),
        ("timestamp with time zone", "timestamp(0) with time zone", False),
        ("timestamp(0) with time zone", "timestamp with time zone", True),
        ("timestamp without time zone", "timestamp with time zone", False),
        ("datetime", "datetime(6)", True),
        ("datetime(6)", "datetime", False),
        ("date", "date", True),
    ],
)
def test_types_keep_the_order_of_a_key_or_do_not(before: str, now: str, keeps: bool) -> None:
    one, other = (KeyType(native, "int" in native.split("(")[0]) for native in (before, now))
    assert other.keeps_order_of(one) == keeps


@pytest.mark.parametrize(("last", "refused"), [((5,), True), (("a",), False), (None, False)])
def test_a_position_without_types_is_judged_by_its_values(last: tuple[int | str, ...] | None, refused: bool) -> None:
    before, now = Basis(("id",)), Basis(("id",), (KeyType("text", False),), "17")
    require_the_same_table("orders", before, now, "db1")
    if refused:
        with pytest.raises(PositionRefused, match="was a whole number, and is text now"):
            require_the_same_key("orders", before, now, last, "db1")
    else:
        require_the_same_key("orders", before, now, last, "db1")


def test_digits_in_texts_were_integers_once_and_other_texts_were_not() -> None:
    before, now = Basis(("id",)), Basis(("id",), (KeyType("bigint", True),))
    require_the_same_key("orders", before, now, ("17",), "db1")
    with pytest.raises(PositionRefused, match="was no whole number"):
        require_the_same_key("orders", before, now, ("x",), "db1")


def test_a_piece_that_is_put_off_leaves_cursor_and_numbers_and_what_is_left_out() -> None:
    basis = Basis(("id",), (KeyType("bigint", True),), "17")
    pieces = [Piece("a", (9,), 0, 9, ranked=False), Piece("b", (5,), 9, 14, ranked=False)]
    begun = Progress().with_table("a", basis, (3,), ((4,), (5,))).with_table("b", basis, None).with_plan(pieces, 1)
    put_off = begun.with_piece_put_off()
    assert put_off.cursors == {"a": (3,), "b": None}
    assert (put_off.commit, put_off.skipped) == (14, {"a": ((4,), (5,))})
    assert put_off.has_reached(begun)
    assert Progress.from_position(Position(put_off.position.data, "")) == put_off
    assert begun.with_piece_done().skipped == {}
