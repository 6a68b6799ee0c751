"""Decimals by columns are those that are rendered one by one, in JSON and in Avro."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.events.avro.decimals import encode_decimals, encode_variable_decimals
from psql_streamer.events.avro.values import encode_value
from psql_streamer.events.debezium.unscaled import render_decimals, render_variable_decimals
from psql_streamer.events.debezium.value import render_decimal, render_variable_decimal

NUMBERS = st.lists(
    st.integers(-(10**20), 10**20) | st.integers(-300, 300) | st.sampled_from([2**bits - 1 for bits in range(64)]),
    min_size=1,
)
SPECIAL = st.lists(st.sampled_from(["NaN", "Infinity", "-Infinity"]))
VARIABLE = {
    "type": "struct",
    "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
}


@given(NUMBERS, st.integers(0, 12), SPECIAL)
def test_numbers_of_a_scale_are_the_same(numbers: list[int], scale: int, special: list[str]) -> None:
    texts = [format(Decimal(number).scaleb(-scale), "f") for number in numbers]
    assert_same(texts + special, scale)


@given(NUMBERS, st.integers(0, 12), SPECIAL)
def test_numbers_without_one_are_the_same(numbers: list[int], scale: int, special: list[str]) -> None:
    texts = [format(Decimal(number).scaleb(-scale), "f") for number in numbers] + special
    column = pa.array([*(text.encode() for text in texts), None], pa.binary())
    rendered = render_variable_decimals(column).to_pylist()
    encoded = encode_variable_decimals(column.drop_null(), b"\x02").to_pylist()
    assert rendered.pop() is None
    for text, found, data in zip(texts, rendered, encoded, strict=True):
        expected = render_variable_decimal(text)
        assert (found is None) == (data is None)
        if found is not None:
            assert found.decode() == expected
            assert data == b"\x02" + encode_value(VARIABLE, json.loads(found))
        else:
            assert is_left_out(text)


def test_bytes_that_are_no_text_are_no_numbers() -> None:
    """Nothing is known of what a handler or a broken server gives."""
    column = pa.array([b"\xc5", b"1.50", b"\xff0"], pa.binary())
    assert render_decimals(column, 2).to_pylist() == [None, b'"AJY="', None]
    assert [one is None for one in encode_variable_decimals(column, b"").to_pylist()] == [True, False, True]


def assert_same(texts: list[str], scale: int) -> None:
    column = pa.array([*(text.encode() for text in texts), None], pa.binary())
    rendered = render_decimals(column, scale).to_pylist()
    encoded = encode_decimals(column.drop_null(), b"", scale).to_pylist()
    assert rendered.pop() is None
    for text, found, data in zip(texts, rendered, encoded, strict=True):
        assert (found is None) == (data is None)
        if found is not None:
            assert found.decode() == render_decimal(text, scale)
            assert data == encode_value({"type": "bytes"}, json.loads(found))
        else:
            assert is_left_out(text)


def is_left_out(text: str) -> bool:
    """Those that have more digits than are looked at, on either side of the point."""
    whole, _, fraction = text.lstrip("-").partition(".")
    if not whole.isdigit():
        return True
    if not fraction:
        return len(whole) > 18
    return not ((len(whole) <= 9 and len(fraction) <= 9) or (len(whole) <= 15 and len(fraction) <= 3))
