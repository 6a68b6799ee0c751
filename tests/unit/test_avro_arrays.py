"""Arrays that are encoded together are those that are encoded one by one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.events.avro.arrays import ITEMS, NotPlainError, encode_arrays
from psql_streamer.events.avro.values import choose_write, encode_value
from psql_streamer.events.json.json_text import Piece

VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), st.integers(-(2**63), 2**63 - 1)),
    **dict.fromkeys(("float", "double"), st.floats(width=32) | st.sampled_from(["NaN", "Infinity", "-Infinity"])),
    "boolean": st.booleans(),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    "bytes": st.sampled_from(["", "AP8=", "AQ=="]),
}


def test_there_are_values_of_every_type() -> None:
    assert VALUES.keys() == ITEMS.keys()


@pytest.mark.parametrize("kind", ITEMS)
@given(data=st.data(), is_optional=st.booleans(), lead=st.sampled_from([b"", b"\x02"]))
def test_arrays_are_the_same_together_and_one_by_one(
    kind: str, data: st.DataObject, is_optional: bool, lead: bytes
) -> None:
    values = VALUES[kind].filter(lambda one: not isinstance(one, float) or abs(one) < float("inf"))
    items = st.lists(st.none() | values if is_optional else values)
    arrays = data.draw(st.lists(items, min_size=1))
    item = {"type": kind, "optional": is_optional}
    texts = pa.array([json.dumps(one).encode() for one in arrays], pa.binary())
    expected = [lead + encode_value({"type": "array", "items": item}, one) for one in arrays]
    assert encode_arrays(texts, lead, item).to_pylist() == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"[[1],[2]]", "int64"),
        (b'["\xff"]', "string"),
        (b"[18446744073709551616]", "int64"),
        (b'["a"]', "int64"),
        (b"[1]", "string"),
        (b"[null]", "string"),
    ],
)
def test_what_is_no_array_of_such_items_is_left_to_others(text: bytes, kind: str) -> None:
    with pytest.raises(NotPlainError):
        encode_arrays(pa.array([text], pa.binary()), b"", {"type": kind})


def test_bytes_that_are_no_utf_8_stay_as_they_are() -> None:
    """As in a database with the encoding SQL_ASCII."""
    schema = {"type": "array", "items": {"type": "string", "optional": True}}
    written = choose_write(schema)(Piece(pa.array([b'["\xff",null]'], pa.binary())), b"")
    assert written.to_pylist() == [b"\x04\x02\x02\xff\x00\x00"]
