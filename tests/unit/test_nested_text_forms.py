"""The text forms of arrays and composites, as PostgreSQL writes them, are taken apart into what went in (T7, T8)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from psql_streamer.pgtypes import arrays, composites

AWKWARD = "NULLnull\\\"'{}(),; \t\n;x🐘"
texts = st.one_of(st.text(st.sampled_from(AWKWARD), max_size=8), st.text(st.characters(exclude_categories=["Cs"])))
cells = st.one_of(st.none(), texts)


def shaped(depth: int) -> st.SearchStrategy[Any]:
    """Arrays of a number of dimensions, in which every dimension has one length."""

    def of(lengths: list[int]) -> st.SearchStrategy[Any]:
        inner: st.SearchStrategy[Any] = cells
        for length in reversed(lengths):
            inner = st.lists(inner, min_size=length, max_size=length)
        return inner

    return st.lists(st.integers(1, 3), min_size=depth, max_size=depth).flatmap(of)


def array_out(value: Any, delimiter: str) -> str:
    """array_out: quotes where something in it could be mistaken (PostgreSQL source, arrayfuncs.c)."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "{" + delimiter.join(array_out(one, delimiter) for one in value) + "}"
    if value and not re.search(r'[\\"{}\s]', value) and delimiter not in value and value.upper() != "NULL":
        return str(value)
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def record_out(fields: list[str | None]) -> str:
    """record_out: quotes and backslashes are doubled (PostgreSQL source, rowtypes.c)."""
    return "(" + ",".join(map(_field, fields)) + ")"


def _field(value: str | None) -> str:
    if value is None:
        return ""
    if value and not re.search(r'[\\"(),\s]', value):
        return value
    return '"' + re.sub(r'(["\\])', r"\1\1", value) + '"'


def read_array(text: str, delimiter: str = ",") -> Any:
    parsed = arrays.parse(text.encode(), delimiter.encode())
    assert parsed is not None
    gaps, elements = parsed
    assert len(gaps) == len(elements) + 1
    literals = [json.dumps(None if one is None else one.decode()) for one in elements]
    return json.loads("".join(a.decode() + b for a, b in zip(gaps, [*literals, ""], strict=True)))


@pytest.mark.behaviour("T7")
@given(value=st.integers(1, 3).flatmap(shaped), delimiter=st.sampled_from(",;"))
@example(value=[None, "null", "NULL", "", '"', "\\"], delimiter=",")
def test_an_array_comes_back(value: Any, delimiter: str) -> None:
    assert read_array(array_out(value, delimiter), delimiter) == value


@pytest.mark.behaviour("T7")
@given(value=st.integers(1, 3).flatmap(shaped), bounds=st.lists(st.integers(-5, 5), min_size=1, max_size=3))
def test_lower_bounds_are_dropped(value: Any, bounds: list[int]) -> None:
    prefix = "".join(f"[{low}:{low + 1}]" for low in bounds)
    assert read_array(f"{prefix}={array_out(value, ',')}") == value


def test_an_empty_array_is_empty() -> None:
    assert read_array("{}") == []


@pytest.mark.behaviour("T8")
@given(value=st.lists(cells, min_size=1, max_size=5))
def test_a_composite_comes_back(value: list[str | None]) -> None:
    found = composites.parse(record_out(value).encode(), len(value))
    assert found is not None
    assert [None if one is None else one.decode() for one in found] == value


@given(value=st.lists(cells, min_size=1, max_size=4), fields=st.integers(0, 5))
def test_a_composite_of_another_number_of_fields_is_refused(value: list[str | None], fields: int) -> None:
    found = composites.parse(record_out(value).encode(), fields)
    assert (found is None) == (fields != len(value)) or (value == [None] and fields == 0)


@given(text=st.binary(max_size=30))
def test_any_bytes_are_taken_apart_or_refused(text: bytes) -> None:
    arrays.parse(text)
    composites.parse(text, 2)
    composites.parse(b"(" + text + b")", 2)
    arrays.parse(b"{" + text + b"}")
