"""JSON text built by columns is what the standard library's json reads back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from psql_streamer.events.json import json_text
from psql_streamer.events.json.json_text import escape, join, quote, render_members, render_name, render_quoted
from psql_streamer.events.routing import Router
from psql_streamer.model import Changes, Column, Image, Relation, RowOp
from psql_streamer.pgtype import PostgresType
from psql_streamer.testing.batches import make_mixed_batch
from tests.encoding import encoder_of

AWKWARD = [
    "",
    '"',
    "\\",
    '\\"',
    '"\\',
    "\\\\n",
    "\\u0000",
    "\0",
    "\x1f\x20\x7f",
    "\b\t\n\f\r\v",
    "\u2028\u2029",
    "\ufeff",
    "\uffff",
    "🐘",
    "żółć",
    "null",
    "</script>",
]

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text(st.sampled_from('\\"\0\n\x1fnu0a🐘\u2028'), max_size=12),
    st.sampled_from(AWKWARD),
)
columns = st.lists(st.one_of(texts, st.none()), max_size=12)


def binary(values: Sequence[str | None]) -> pa.Array:
    return pa.array([None if value is None else value.encode() for value in values], pa.binary())


def read(literals: pa.Array) -> list[str | None]:
    """What json.loads makes of each."""
    return [None if literal is None else json.loads(as_text(literal)) for literal in literals.to_pylist()]


def as_text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.behaviour("T3")
@given(values=columns)
@example(values=AWKWARD)
def test_every_text_comes_back(values: list[str | None]) -> None:
    assert read(quote(binary(values))) == values
    assert read(quote(pa.array(values, pa.string()))) == values


@pytest.mark.parametrize("value", AWKWARD, ids=ascii)
def test_an_awkward_text_comes_back_on_its_own(value: str) -> None:
    assert read(quote(binary([value]))) == [value]
    assert json.loads(render_name(value)) == value


@pytest.mark.behaviour("T3")
def test_every_character_comes_back() -> None:
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
    values = characters[:0x3000] + ["".join(characters[at : at + 64]) for at in range(0, len(characters), 64)]
    assert read(quote(binary(values))) == values


def test_every_pair_of_characters_that_escapes_are_made_of_comes_back() -> None:
    some = [*map(chr, range(0x20)), *'\\"/bfnrtu0 1a']
    values = [first + second for first in some for second in some]
    assert read(quote(binary(values))) == values


@given(values=columns, data=st.data())
def test_a_slice_of_a_column_is_quoted_like_the_column(values: list[str | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values)))
    length = data.draw(st.integers(0, len(values)))
    assert read(quote(binary(values).slice(start, length))) == values[start : start + length]


@given(values=columns)
def test_a_null_stays_null_and_an_empty_text_is_an_empty_literal(values: list[str | None]) -> None:
    literals = quote(binary(values))
    assert [literal.as_py() is None for literal in literals] == [value is None for value in values]
    assert quote(binary([""]))[0].as_py() == b'""'


@pytest.mark.parametrize("special", ['"', "\\", "\n", "\0"])
def test_a_character_is_escaped_wherever_it_is_in_a_text_that_is_searched_in_pieces(
    special: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_text, "_SEARCHED_BYTES", 4)
    values = ["x" * at + special + "x" * (12 - at) for at in range(13)]
    for value in values:
        assert read(quote(binary([value]))) == [value]
    assert read(quote(binary(values))) == values


def test_what_needs_no_escape_is_left_as_it_is() -> None:
    assert quote(binary(["żółć 🐘 \u2028"]))[0].as_py() == '"żółć 🐘 \u2028"'.encode()


@given(values=columns)
def test_no_escaped_text_holds_a_control_character(values: list[str | None]) -> None:
    for escaped in escape(binary(values)).to_pylist():
        assert escaped is None or min(escaped, default=0x20) >= 0x20


@given(values=columns)
def test_a_quoted_column_in_an_object_is_the_text_or_null(values: list[str | None]) -> None:
    objects = join(*render_members([render_name('a"b')], [render_quoted(binary(values))])) if values else []
    assert [json.loads(text.as_py()) for text in objects] == [{'a"b': value} for value in values]


@pytest.mark.parametrize("copies", [1, 100])
@pytest.mark.parametrize("texts", [["a", "bc", ""], ["a", None], ["long" * 200, "b"]])
@pytest.mark.parametrize("which", [[0, 1, 1, 0], [1, None, 0, None]])
@pytest.mark.parametrize("nulls", [b"null", None])
def test_texts_that_rows_share_are_joined_like_copies_of_them(
    copies: int, texts: list[str | None], which: list[int | None], nulls: bytes | None
) -> None:
    shared = pa.DictionaryArray.from_arrays(pa.array(which * copies, pa.int32()), pa.array(texts, pa.binary()))
    for part in (shared, shared[1:]):
        numbers = pa.array([b"%d" % row for row in range(len(part))], pa.binary())
        assert join(b"<", part, b">", numbers, nulls=nulls) == join(
            b"<", part.dictionary_decode(), b">", numbers, nulls=nulls
        )


@given(rows=st.lists(st.tuples(*[st.tuples(st.one_of(texts, st.none()), st.booleans())] * 3), min_size=1, max_size=8))
def test_an_object_lacks_the_members_that_are_absent(rows: list[tuple[tuple[str | None, bool], ...]]) -> None:
    names = ["first", 'sec"ond', "żół"]
    columns = tuple(Column(member, PostgresType(25, -1)) for member in names)
    arrays = tuple(binary([None if gone else value for value, gone in column]) for column in zip(*rows, strict=True))
    absent = {at: np.array([row[at][1] for row in rows]) for at in range(3)}
    after = Image(arrays, np.arange(len(rows)), {at: gone for at, gone in absent.items() if gone.any()})
    changes = Changes.from_new_rows(
        Relation("1", "s", "t", columns), arrays, np.zeros(len(rows), np.int32), RowOp.UPDATE
    )
    batch = replace(make_mixed_batch(), changes=(replace(changes, after=after),), truncates=(), messages=())
    events = encoder_of("envelope", Router({}, "", "t"), {}).encode(batch).values
    expected = [{member: value for member, (value, gone) in zip(names, row, strict=True) if not gone} for row in rows]
    assert [json.loads(event.as_py())["after"] for event in events] == expected
