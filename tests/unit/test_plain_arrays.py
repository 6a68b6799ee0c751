"""Arrays rewritten by columns are what they are when taken apart one by one."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.events.json.json_text import Piece, join, render_quoted
from psql_streamer.events.json.nested import render_arrays
from psql_streamer.events.json.plain_arrays import render_arrays_by_columns
from psql_streamer.pgtype import JsonForm

_QUOTED = set('"\\{}, \t\n\r\v\f')


def written(element: str | None) -> str:
    """As array_out writes an element."""
    if element is None:
        return "NULL"
    if element and not _QUOTED & set(element) and element.upper() != "NULL":
        return element
    return '"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"'


def text_of(elements: list[str | None] | None) -> bytes | None:
    return None if elements is None else ("{" + ",".join(map(written, elements)) + "}").encode()


def one_by_one(values: pa.Array, form: JsonForm) -> Piece:
    return render_arrays(values, ",", render_quoted if form is JsonForm.TEXT else Piece)


def rendered(texts: list[bytes | None], form: JsonForm) -> list[bytes | None]:
    values = pa.array(texts, pa.binary())
    piece = render_arrays_by_columns(values, form, ",", lambda rest: one_by_one(rest, form))
    found: list[bytes | None] = join(piece.open, piece.values, piece.close, nulls=None).to_pylist()
    return found


_ELEMENTS = (
    st.none()
    | st.sampled_from(["", "NULL", "null", "a b", '"', "\\", "[]", "{}", ","])
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
)


@given(st.lists(st.none() | st.lists(_ELEMENTS), min_size=1))
def test_arrays_of_texts(arrays: list[list[str | None] | None]) -> None:
    found = rendered([text_of(elements) for elements in arrays], JsonForm.TEXT)
    assert [None if text is None else json.loads(text) for text in found] == arrays


def test_quoted_elements_are_not_taken_apart() -> None:
    texts = [b'{"a, b",NULL,"NULL",null}', b"{plain}", b"{}", None, rb'{"\"","\\"}', b'{"{}",x}']

    def never(_: pa.Array) -> Piece:
        raise AssertionError

    piece = render_arrays_by_columns(pa.array(texts, pa.binary()), JsonForm.TEXT, ",", never)
    found = join(piece.open, piece.values, piece.close, nulls=None).to_pylist()
    expected = [["a, b", None, "NULL", "null"], ["plain"], [], None, ['"', "\\"], ["{}", "x"]]
    assert [None if text is None else json.loads(text) for text in found] == expected


@given(st.lists(st.none() | st.lists(st.none() | st.integers()), min_size=1))
def test_arrays_of_numbers(arrays: list[list[int | None] | None]) -> None:
    texts = [text_of(None if array is None else [None if n is None else str(n) for n in array]) for array in arrays]
    assert [None if text is None else json.loads(text) for text in rendered(texts, JsonForm.INTEGER)] == arrays


@pytest.mark.parametrize(
    "text", [b"{}", b"{{1,2},{3,NULL}}", b"[0:1]={1,2}", b"[1:1][2:3]={{1,2}}", b"{1e+20,-0.5}", b"(1,2)", b"7", b""]
)
def test_other_shapes_are_what_they_are_one_by_one(text: bytes) -> None:
    piece = one_by_one(pa.array([text], pa.binary()), JsonForm.NUMBER)
    alone = join(piece.open, piece.values, piece.close).to_pylist()
    assert rendered([text], JsonForm.NUMBER) == alone
    assert rendered([b"{1}", text, None], JsonForm.NUMBER) == [b"[1]", *alone, None]
