"""Drivers' values as PostgreSQL's text forms: exactly, or a misfit; never broken JSON."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from psql_streamer.events.json.values import render_values
from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes.builtin import OIDS
from sources.sql import values
from sources.sql.engines.sqlite import describe_column
from sources.sql.values import Misfit

UTC_PLUS_2 = dt.timezone(dt.timedelta(hours=2))

DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]

EXACT: list[tuple[str, values.Render, Sequence[Any], list[str | None]]] = [
    ("integers", values.render_digits, [1, None, -(2**63), 2**63 - 1], ["1", None, str(-(2**63)), str(2**63 - 1)]),
    ("integers of more than 64 bits", values.render_digits, [2**64, Decimal(3)], [str(2**64), "3"]),
    ("decimals", values.make_number_render(), [Decimal("1.10"), 2, 0.1, "-3.50", None],
     ["1.10", "2", "0.1", "-3.50", None]),
    ("decimals with a scale", values.make_number_render(2), [1, 1.5, 12.345, "7.1", 1e20],
     ["1.00", "1.50", "12.345", "7.10", "100000000000000000000.00"]),
    ("digits with zeros in front", values.render_unpadded, ["0007", "0000", "000.50", "10", 7, None],
     ["7", "0", "0.50", "10", "7", None]),
    ("floats", values.render_floats, [1.5, 0.1, 1e300, 1e-7, 3, float("inf")],
     ["1.5", "0.1", "1e+300", "1e-07", "3", "Infinity"]),
    ("floats of 4 bytes", values.render_short_floats, [1.2345670461654663, "0.1", None], ["1.234567", "0.1", None]),
    ("flags", values.render_flags, [1, 0, True, None], ["t", "f", "t", None]),
    ("texts", values.render_strings, ["", "Zoë \U0001f600", None], ["", "Zoë \U0001f600", None]),
    ("texts beside numbers", values.render_strings, ["a", 5, 1.5], ["a", "5", "1.5"]),
    ("moments", values.make_moment_render(),
     ["2026-01-31 10:00:00.500000", "2026-01-31 10:00:00.000", "2026-01-31 10:00:10", "soon 1.500", None],
     ["2026-01-31 10:00:00.5", "2026-01-31 10:00:00", "2026-01-31 10:00:10", "soon 1.500", None]),
    ("moments with a zone", values.make_moment_render("+00"), ["2026-01-31 10:00:00.50", "0000-00-00 00:00:00"],
     ["2026-01-31 10:00:00.5+00", "0000-00-00 00:00:00"]),
    ("bytes", values.render_hexes, [b"\xde\xad", b"", memoryview(b"a"), None], ["\\xdead", "\\x", "\\x61", None]),
    ("bits", values.make_bit_render(4), [b"\x05", None], ["0101", None]),
    ("documents", values.render_documents, ['{"a": [1, "x"]}', {"b": None}, None],
     ['{"a": [1, "x"]}', '{"b": null}', None]),
    ("documents that are deep", values.render_documents, ["[" * 2000 + "]" * 2000], ["[" * 2000 + "]" * 2000]),
    ("documents with long numbers", values.render_documents, ["9" * 5000, f"[-{'1' * 5000}.5e7]"],
     ["9" * 5000, f"[-{'1' * 5000}.5e7]"]),
    ("anything", values.render_any_json, [1, 1.5, 'a"b', b"\x01", None, True, float("inf")],
     ["1", "1.5", '"a\\"b"', '"AQ=="', None, "true", '"Infinity"']),
    ("what Python's drivers give", values.as_text,
     [dt.datetime(2026, 1, 31, 10, 0, 0, 500000), dt.datetime(2026, 1, 31, 12, tzinfo=UTC_PLUS_2), dt.date(2026, 1, 31),
      dt.time(10, 0, 0, 1), dt.timedelta(hours=-30), uuid.UUID(int=1), True, Decimal("1E+2")],
     ["2026-01-31 10:00:00.5", "2026-01-31 10:00:00+00", "2026-01-31", "10:00:00.000001", "-30:00:00",
      "00000000-0000-0000-0000-000000000001", "t", "100"]),
]  # fmt: skip

MISFITS: list[tuple[values.Render, Any, str]] = [
    (values.render_digits, "not a number", "text"),
    (values.render_digits, 2.5, "a float"),
    (values.make_number_render(2), "not a number", "text"),
    (values.make_number_render(), b"1", "a blob"),
    (values.render_floats, "not a number", "text"),
    (values.render_flags, 2, "an integer"),
    (values.render_flags, "yes", "text"),
    (values.render_strings, b"\xff", "a blob"),
    (values.render_strings, "\udcff", "text that is no UTF-8"),
    (values.render_hexes, "text", "text"),
    (values.render_documents, "{", "text"),
    (values.render_documents, "NaN", "text"),
    (values.render_documents, b"{}", "a blob"),
    (values.render_documents, "[" * 2000, "text"),
    (values.render_documents, "[" * 2000 + "{]" + "]" * 1999, "text"),
    (values.render_documents, {"a": DEEP}, "a value that is nested too deeply"),
    (values.render_any_json, DEEP, "a value that is nested too deeply"),
    (values.as_text, DEEP, "a value that is nested too deeply"),
    (values.render_documents, [10**5000], "a value of type list"),
]


@pytest.mark.parametrize(("render", "given", "expected"), [one[1:] for one in EXACT], ids=[one[0] for one in EXACT])
def test_values_become_text_forms(render: values.Render, given: Sequence[Any], expected: list[str | None]) -> None:
    found = render(given)
    assert [None if text is None else text.decode() for text in found.to_pylist()] == expected


@pytest.mark.parametrize(("render", "value", "kind"), MISFITS)
def test_a_value_that_a_type_does_not_have_is_a_misfit_that_names_its_row(
    render: values.Render, value: Any, kind: str
) -> None:
    with pytest.raises(Misfit) as caught:
        render([None, value])
    assert (caught.value.row, caught.value.kind) == (1, kind)
    assert str(caught.value) == f"row 1 has {kind}"


FLOATS = [
    0.0,
    1.0,
    -1.0,
    0.1,
    12.5,
    1 / 3,
    0.1 + 0.2,
    1e-4,
    9.99e-5,
    1e9,
    9999999999.5,
    1e10,
    123456789.125,
    1e300,
    -0.25,
]


@pytest.mark.parametrize("scale", [0, 1, 2, 5])
def test_a_column_of_decimals_is_what_its_values_are_one_by_one(scale: int) -> None:
    render = values.make_number_render(scale)
    one_by_one = [render([value, "1"])[0].as_py() for value in FLOATS]
    assert render([*FLOATS, None]).to_pylist() == [*one_by_one, None]
    small = [value for value in FLOATS if 1e-4 <= abs(value) < 1e10]
    assert render([*small, 7]).to_pylist()[:-1] == [render([value, "1"])[0].as_py() for value in small]
    assert render([2**60 + 1, 0.5])[0].as_py().decode().startswith(str(2**60 + 1))


DECLARED = {
    "INTEGER": "int8", "UNSIGNED BIG INT": "int8", "VARCHAR(20)": "text", "TEXT": "text", "CLOB": "text",
    "BLOB": "bytea", "DOUBLE PRECISION": "float8", "REAL": "float8", "DECIMAL(10, 2)": "numeric", "NUMERIC": "numeric",
    "BOOLEAN": "bool", "DATE": "date", "DATETIME": "timestamp", "TIMESTAMP(6)": "timestamp", "TIME": "time",
    "JSON": "json", "UUID": "uuid", "": "json", "MONEY": "json", "TIMESTAMP WITH TIME ZONE": "json",
}  # fmt: skip


@pytest.mark.parametrize(("declared", "like"), DECLARED.items(), ids=lambda text: text or "nothing")
def test_a_declared_type_of_sqlite_has_a_form(declared: str, like: str) -> None:
    column = describe_column("c", declared, True)
    assert (column.type.native, column.type.like.oid) == (declared or "any", OIDS[like])


STORED: list[Any] = [
    None, 0, 1, -5, 2**62, 1.5, -0.0, 1e300, 1e-300, float("inf"), "", "a", "1", "1.5", "true", "{}", '"', "NaN",
    "2026-01-01", "2026-01-01 00:00:00.10", "\x00", "\n", b"", b"\x00\xff", b"1",
]  # fmt: skip


@pytest.mark.parametrize("declared", DECLARED, ids=lambda text: text or "nothing")
def test_whatever_a_column_of_sqlite_holds_its_json_is_json_or_it_is_refused(declared: str) -> None:
    column = describe_column("c", declared, True)
    for value in STORED:
        try:
            made = column.render([value])
        except Misfit:
            continue
        piece = render_values(made, PostgresType(column.type.like.oid))
        text = piece.values[0].as_py()
        loaded = None if text is None else json.loads(piece.open + text + piece.close, parse_constant=pytest.fail)
        if isinstance(value, int) and isinstance(loaded, int | float):
            assert loaded == value
