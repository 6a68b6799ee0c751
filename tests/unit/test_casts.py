"""Text form <-> Arrow, compared with Python's own parsing."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes.casts import cast, choose_arrow_type, find_postgres_type, to_text

_EXACT = Context(prec=100)


def numeric(precision: int, scale: int) -> PostgresType:
    return PostgresType(1700, ((precision << 16) | (scale & 0x7FF)) + 4)


def of(oid: int) -> PostgresType:
    return PostgresType(oid)


def texts(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def cast_values(kind: PostgresType, *values: bytes | None) -> list[Any]:
    typed = cast(texts(*values), kind)
    assert typed.type == choose_arrow_type(kind)
    listed: list[Any] = typed.to_pylist()
    return listed


def round_trip(kind: PostgresType, *values: bytes | None) -> list[bytes | None]:
    written = to_text(cast(texts(*values), kind), kind)
    assert written.type == pa.binary()
    listed: list[bytes | None] = written.to_pylist()
    return listed


ROUND_TRIPS: list[tuple[PostgresType, list[bytes | None]]] = [
    (of(16), [b"t", b"f", None]),
    (of(17), [b"\\x", b"\\x00ff", None, b"\\xdeadbeef"]),
    (of(21), [b"-32768", b"32767", None]),
    (of(23), [b"-2147483648", b"2147483647", None]),
    (of(20), [b"-9223372036854775808", b"9223372036854775807", None]),
    (of(26), [b"4294967295", b"0"]),
    (of(28), [b"4294967295", None]),
    (of(700), [b"1", b"0.1", b"123456", b"1e+06", b"0.0001", b"1e-05", b"3.4028235e+38", b"1e-45", b"-0", b"NaN"]),
    (of(701), [b"1", b"100000000000000", b"1e+15", b"123456789012345", b"0.0001", b"1.5e-07", b"5e-324", b"-0"]),
    (of(701), [b"1.7976931348623157e+308", b"NaN", b"Infinity", b"-Infinity", None, b"100000000000000.5"]),
    (numeric(38, 10), [b"0.0000000000", b"-0.0000000001", b"9999999999999999999999999999.9999999999", None]),
    (numeric(2, 2), [b"0.12", b"-0.05"]),
    (numeric(5, 0), [b"12345", b"-1", b"0"]),
    (of(1700), [b"NaN", b"1.000000000000000000000000000000000000000000", None]),
    (numeric(5, -2), [b"12300"]),
    (numeric(3, 5), [b"0.00123"]),
    (numeric(39, 2), [b"1.00"]),
    (of(1082), [b"0001-01-01", b"9999-12-31", b"1582-10-10", None]),
    (of(1114), [b"0001-01-01 00:00:00", b"9999-12-31 23:59:59.999999", b"2024-01-01 10:00:00.5", None]),
    (of(1184), [b"0001-01-01 00:00:00+00", b"1969-12-31 23:59:59.000001+00", b"2024-01-01 10:20:30+00", None]),
    (of(1083), [b"24:00:00", None]),
    (of(3802), [b'{"a": 1}', None]),
    (of(1007), [b"{1,NULL}"]),
    (of(25), ["😀".encode(), b"", None]),
]


@pytest.mark.parametrize(("kind", "values"), ROUND_TRIPS)
def test_a_text_form_comes_back_the_same(kind: PostgresType, values: list[bytes | None]) -> None:
    assert round_trip(kind, *values) == values


@pytest.mark.parametrize(("kind", "values"), ROUND_TRIPS)
def test_a_slice_and_an_empty_column_work_the_same(kind: PostgresType, values: list[bytes | None]) -> None:
    typed = cast(texts(b"out of the slice", *values, b"too")[1:-1], kind)
    assert to_text(typed, kind).to_pylist() == values
    assert to_text(typed[1:], kind).to_pylist() == values[1:]
    assert to_text(cast(texts(), kind), kind).to_pylist() == []
    assert cast(texts(None, None), kind).null_count == 2


UNCOERCIBLE: list[tuple[PostgresType, list[bytes]]] = [
    (of(16), [b"true", b""]),
    (of(17), [b"abc", b"\\x0", b"\\xzz", b""]),
    (of(21), [b"32768", b"x", b"", b"1.5"]),
    (of(20), [b"9223372036854775808", b"--1"]),
    (of(701), [b"one", b"", b"1e"]),
    (numeric(12, 2), [b"NaN", b"Infinity", b"1.234", b"12345678901.00"]),
    (of(1082), [b"infinity", b"-infinity", b"0044-03-15 BC", b"20000-01-01", b"2023-02-30"]),
    (of(1114), [b"infinity", b"0044-03-15 00:00:00 BC", b"20000-01-01 00:00:00", b"2023-02-30 00:00:00"]),
    (of(1184), [b"-infinity", b"0044-03-15 00:00:00+00 BC", b"20000-01-01 00:00:00+00"]),
    (of(25), [b"\xff\xfe"]),
]


@pytest.mark.parametrize(("kind", "values"), UNCOERCIBLE)
def test_what_the_type_cannot_hold_is_null_and_its_neighbours_are_not(kind: PostgresType, values: list[bytes]) -> None:
    good = next(known for one, known in ROUND_TRIPS if one.oid == kind.oid)[0]
    assert good is not None
    sample = b"1.00" if kind.oid == 1700 else good
    for value in values:
        assert [one is None for one in cast_values(kind, sample, value, sample)] == [False, True, False], value
    assert cast(texts(*values), kind).null_count == len(values)


@pytest.mark.behaviour("T1")
@given(st.lists(st.none() | st.floats(allow_nan=False, width=64)))
def test_float8_is_read_as_python_reads_it_and_written_to_the_same_number(values: list[float | None]) -> None:
    kind = of(701)
    typed = pa.array(values, pa.float64())
    written = to_text(typed, kind)
    assert [None if text is None else struct.pack("d", float(text)) for text in written.to_pylist()] == [
        None if value is None else struct.pack("d", value) for value in values
    ]
    assert cast(written, kind).equals(typed)


@pytest.mark.behaviour("T1")
@given(st.lists(st.floats(allow_nan=False, width=32)))
def test_float4_comes_back_as_it_was(values: list[float]) -> None:
    typed = pa.array(values, pa.float32())
    assert cast(to_text(typed, of(700)), of(700)).equals(typed)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float8_has_the_notation_of_postgresql(value: float) -> None:
    """float.c prints the shortest digits that round-trip, fixed from 1e-4 to 1e15."""
    (text,) = to_text(pa.array([value], pa.float64()), of(701)).to_pylist()
    fixed = value == 0 or 1e-4 <= abs(value) < 1e15
    assert (b"e" not in text) == fixed
    assert not text.endswith(b".0")
    if not fixed:
        assert len(text.split(b"e")[1]) >= 3
    assert float(text) == value


@pytest.mark.behaviour("T2")
@given(st.data(), st.integers(1, 38))
def test_numeric_is_read_exactly_and_written_with_all_its_digits(data: st.DataObject, precision: int) -> None:
    scale = data.draw(st.integers(0, precision))
    unscaled = data.draw(st.lists(st.none() | st.integers(-(10**precision) + 1, 10**precision - 1)))
    kind = numeric(precision, scale)
    forms = [None if one is None else format(Decimal(one).scaleb(-scale, _EXACT), "f").encode() for one in unscaled]
    expected = [None if form is None else Decimal(form.decode()) for form in forms]
    with_zero = [
        b"0." + b"0" * scale if form is not None and not form.strip(b"-0.") and scale else form for form in forms
    ]
    assert cast_values(kind, *forms) == expected
    assert round_trip(kind, *forms) == with_zero


@given(st.lists(st.none() | st.binary(max_size=20)))
def test_bytea_is_read_and_written_as_hex(values: list[bytes | None]) -> None:
    forms = [None if value is None else b"\\x" + value.hex().encode() for value in values]
    assert cast_values(of(17), *forms) == values
    assert round_trip(of(17), *forms) == forms


@given(st.lists(st.none() | st.dates()))
def test_dates_are_read_as_python_reads_them(values: list[date | None]) -> None:
    forms = [None if value is None else value.isoformat().encode() for value in values]
    assert cast_values(of(1082), *forms) == values
    assert round_trip(of(1082), *forms) == forms


@given(st.lists(st.none() | st.datetimes()))
def test_timestamps_are_read_as_python_reads_them(values: list[datetime | None]) -> None:
    def form(value: datetime) -> str:
        text = value.isoformat(" ")
        return text.rstrip("0") if value.microsecond else text

    forms = [None if value is None else form(value).encode() for value in values]
    zoned = [None if one is None else one + b"+00" for one in forms]
    assert cast_values(of(1114), *forms) == values
    assert round_trip(of(1114), *forms) == forms
    assert cast_values(of(1184), *zoned) == [None if one is None else one.replace(tzinfo=UTC) for one in values]
    assert round_trip(of(1184), *zoned) == zoned


@given(st.lists(st.sampled_from([b"infinity", b"2024-01-01", b"1 BC", b"99999-01-01", None]), max_size=50))
def test_nulls_stand_exactly_where_values_do_not_fit(values: list[bytes | None]) -> None:
    expected = [date(2024, 1, 1) if value == b"2024-01-01" else None for value in values]
    assert cast_values(of(1082), *values) == expected


def test_years_before_christ_that_a_computation_gave_are_written_as_postgresql_does() -> None:
    days = pa.array([-719163, -719528, -719529, 2932897], pa.int32()).cast(pa.date32())
    assert to_text(days, of(1082)).to_pylist() == [b"0001-12-31 BC", b"0001-01-01 BC", b"0002-12-31 BC", b"10000-01-01"]
    moments = pa.array([-719163 * 86_400_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert to_text(moments, of(1184)).to_pylist() == [b"0001-12-31 00:00:00+00 BC"]


def test_years_that_arrow_does_not_write_are_written_as_postgresql_does() -> None:
    micros = [1_700_000_000_000_000_000, None, 0, 971_890_963_200_000_000, -(2**63), -1_034_080_387_200_000_001]
    moments = pa.array(micros, pa.int64()).cast(pa.timestamp("us"))
    written = [
        *(b"55840-11-08 22:13:20", None, b"1970-01-01 00:00:00", b"32768-01-01 00:00:00"),
        *(b"290309-12-21 19:59:05.224192 BC", b"30800-04-18 23:59:59.999999 BC"),
    ]
    assert to_text(moments, of(1114)).to_pylist() == written
    assert to_text(moments[1:], of(1114)).to_pylist() == written[1:]
    zoned = moments.cast(pa.timestamp("us", "UTC"))
    assert to_text(zoned[:1], of(1184)).to_pylist() == [b"55840-11-08 22:13:20+00"]
    days = pa.array([2_145_042_905, 19_675_925, None, -(2**31)], pa.int32()).cast(pa.date32())
    assert to_text(days, of(1082)).to_pylist() == [b"5874897-12-31", b"55840-11-08", None, b"5877642-06-23 BC"]


def test_nan_is_a_number_of_float8_and_none_of_numeric() -> None:
    (value,) = cast_values(of(701), b"NaN")
    assert math.isnan(value)
    assert cast_values(numeric(5, 2), b"NaN") == [None]


@pytest.mark.parametrize("kind", [kind for kind, _ in ROUND_TRIPS if kind.oid not in (26, 28)])
def test_the_type_that_holds_an_arrow_type_has_that_arrow_type(kind: PostgresType) -> None:
    held_by = find_postgres_type(choose_arrow_type(kind))
    assert held_by is not None
    assert choose_arrow_type(held_by) == choose_arrow_type(kind)


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.null(), pa.uint64()])
def test_a_type_without_a_counterpart_is_held_by_none(kind: pa.DataType) -> None:
    assert find_postgres_type(kind) is None
