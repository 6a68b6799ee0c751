"""Single values as Debezium's default modes write them (T2, T5)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from psql_streamer.events.debezium import types, value
from psql_streamer.events.routing import Router
from psql_streamer.lsn import NO_LSN
from psql_streamer.model import Batch, Changes, Image, ReplicaIdentity, RowOp, Transactions
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.pgtype import JsonForm, Logical, PgType, PostgresType
from tests.columns import postgres_column, postgres_table
from tests.decoding import SOURCE, decode
from tests.encoding import encoder_of
from tests.few import both_ways  # noqa: F401 - a fixture for all tests here
from tests.pgoutput_wire import WireColumn, WireRelation
from tests.strategies import History, RowChange, Transaction

EXACT = Context(prec=200_000)
VARIABLE, TIMESTAMP, TIMESTAMPTZ, DATE, BIT, VARBIT = 1700, 1114, 1184, 1082, 1560, 1562


def typmod(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


def written(oid: int, *texts: str | None, modifier: int = -1) -> list[Any]:
    """What a consumer reads of a column."""
    piece = types.choose_connect_type(PostgresType(oid, modifier)).render(
        pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    )
    return [None if one is None else json.loads(piece.open + one + piece.close) for one in piece.values.to_pylist()]


def number(encoded: str) -> int:
    """What java.math.BigInteger makes of the bytes."""
    return int.from_bytes(base64.b64decode(encoded), "big", signed=True)


@pytest.mark.behaviour("T2")
@given(digits=st.integers(-(10**40), 10**40), scale=st.integers(0, 20))
@example(digits=0, scale=0)
@example(digits=127, scale=0)
@example(digits=128, scale=0)
@example(digits=-128, scale=0)
@example(digits=-129, scale=0)
def test_t2_a_numeric_comes_back_digit_for_digit(digits: int, scale: int) -> None:
    exact = format(Decimal((digits < 0, tuple(map(int, str(abs(digits)))), -scale)), "f")
    (variable,) = written(VARIABLE, exact)
    assert Decimal(number(variable["value"])).scaleb(-variable["scale"], EXACT) == Decimal(exact)
    assert variable["scale"] == 0 or number(variable["value"]) % 10, "zeros at the end would make two keys of one"
    (fixed,) = written(VARIABLE, exact, modifier=typmod(60, scale))
    assert number(fixed) == digits


@given(digits=st.integers(-(10**30), 10**30))
def test_t2_a_number_takes_as_few_bytes_as_java_takes(digits: int) -> None:
    bits = (digits if digits >= 0 else ~digits).bit_length()
    (variable,) = written(VARIABLE, str(digits))
    assert len(base64.b64decode(variable["value"])) == bits // 8 + 1


@pytest.mark.behaviour("T2")
def test_t2_a_numeric_may_have_as_many_digits_as_postgresql_takes() -> None:
    longest = "1" + "234567890" * 14_563 + ".5"
    (variable,) = written(VARIABLE, longest)
    assert Decimal(number(variable["value"])).scaleb(-1, EXACT) == Decimal(longest)


@pytest.mark.behaviour("T2")
def test_t2_what_a_decimal_cannot_hold_is_null() -> None:
    assert written(VARIABLE, "NaN", None, "Infinity") == [None, None, None]
    assert written(VARIABLE, "NaN", modifier=typmod(10, 2)) == [None]
    assert written(1231, "{NaN,1}") == [[None, {"scale": 0, "value": "AQ=="}]]


def test_t2_a_negative_scale_is_javas() -> None:
    (encoded,) = written(VARIABLE, "-12300", modifier=typmod(5, -2))
    assert number(encoded) == -123
    assert types.choose_connect_type(PostgresType(VARIABLE, typmod(5, -2))).schema["parameters"]["scale"] == "-2"


@pytest.mark.parametrize("schemas", [False, True])
def test_t2_in_a_key_the_text_stands_for_what_a_decimal_cannot_hold(schemas: bool) -> None:
    """As null, NaN and Infinity would be one key."""
    shape = WireRelation(16400, "public", "t", (WireColumn("n", VARIABLE, key=True),))
    rows = [RowChange(shape, 990, (text,), None, "") for text in (b"NaN", b"Infinity", b"1")]
    frames = History([Transaction(7, 1000, 1008, 0, tuple(rows))]).session()
    (batch,) = decode(frames, len(frames))
    records = encoder_of("debezium", Router({}, "", "t"), {}, schemas=schemas).encode(batch)
    keys = [json.loads(key) for key in records.keys.to_pylist()]
    keys = [key["payload"] for key in keys] if schemas else keys
    assert [key["n"] for key in keys] == ["NaN", "Infinity", {"scale": 0, "value": "AQ=="}]
    assert records.nulled == {}


def test_t2_values_that_are_lost_count_for_their_column_in_every_shape_that_the_table_has() -> None:
    """A table that was altered in the middle of a batch has two."""
    before = (WireColumn("id", 23, key=True), WireColumn("n", VARIABLE))
    shapes = [WireRelation(16400, "public", "t", columns) for columns in (before, (*before, WireColumn("m", VARIABLE)))]
    rows = [
        RowChange(shapes[0], 990, (b"1", b"NaN"), None, ""),
        RowChange(shapes[0], 991, (b"2", b"NaN"), None, ""),
        RowChange(shapes[1], 992, (b"3", b"NaN", b"NaN"), None, ""),
        RowChange(shapes[1], 993, (b"4", b"1", b"NaN"), None, ""),
    ]
    frames = History([Transaction(7, 1000, 1008, 0, tuple(rows))]).session()
    (batch,) = decode(frames, len(frames))
    for form in ("debezium", "debezium-avro"):
        records = encoder_of(form, Router({}, "", "t"), {}).encode(batch)
        assert records.nulled == {"public.t.n": 3, "public.t.m": 2}


@pytest.mark.parametrize("schemas", [False, True])
def test_t2_where_a_column_is_no_key_nan_is_null_also_in_tables_that_have_none(schemas: bool) -> None:
    """REPLICA IDENTITY FULL flags every column; a key of the sink's own flags none."""
    shape = WireRelation(16400, "public", "t", (WireColumn("n", VARIABLE, key=True),), "f")
    frames = History([Transaction(7, 1000, 1008, 0, (RowChange(shape, 990, (b"NaN",), None, ""),))]).session()
    (batch,) = decode(frames, len(frames))
    for key in ({}, {"t": ("n",)}):
        records = encoder_of("debezium", Router({}, "", "t"), key, schemas=schemas).encode(batch)
        value = json.loads(records.values[0].as_py())
        assert (value["payload"] if schemas else value)["after"] == {"n": None}
        assert records.nulled == {"public.t.n": 1}
        if key:
            found = json.loads(records.keys[0].as_py())
            assert (found["payload"] if schemas else found) == {"n": "NaN"}


def keys_of(oid: int, texts: list[str], *, schemas: bool) -> list[str]:
    """The key of a row for each of these values of its only column."""
    relation = postgres_table(16400, "public", "t", ReplicaIdentity.DEFAULT, (postgres_column("k", oid, key=True),))
    values = pa.array([text.encode() for text in texts], pa.binary())
    everything = np.arange(len(texts))
    changes = Changes(
        relation,
        relation.columns,
        everything,
        np.full(len(texts), RowOp.INSERT, np.uint8),
        everything,
        np.zeros(len(texts), np.int32),
        Image((values,), everything),
        Image((values[:0],), everything[:0]),
    )
    nothing = np.zeros(1, np.uint64), np.zeros(1, np.int64), pa.array([b"7"])
    batch = Batch(SOURCE, WalPosition(NO_LSN).position, Transactions(*nothing), (changes,))
    records = encoder_of("debezium", Router({}, "", "t"), {}, schemas=schemas).encode(batch)
    assert records.nulled == {}
    return [key.decode() for key in records.keys.to_pylist()]


bit_strings = st.text("01", max_size=32)
intervals = st.builds(
    lambda months, days, micros: f"P{months}M{days}DT{micros // 1_000_000}.{micros % 1_000_000:06}S",
    st.sampled_from([0, 1, 12]),
    st.integers(0, 400),
    st.sampled_from([0, 1, 37_800_000_000]),
).map(lambda text: text.replace("P0M", "P").replace("P0D", "P"))
"""As PostgreSQL writes them but for hours and minutes; 37,800 seconds and 30 days are a month of Debezium's."""
numbers = st.one_of(st.sampled_from(["NaN", "Infinity", "-Infinity", "NULL"]), st.integers(-300, 300).map(str))


def unequal_intervals(text: str) -> int:
    """What PostgreSQL compares of an interval: microseconds, with months of 30 days."""
    months, days, seconds = re.fullmatch(r"P(?:(\d+)M)?(?:(\d+)D)?T(.*)S", text).groups()  # type: ignore[union-attr]
    return (int(months or 0) * 30 + int(days or 0)) * 86_400_000_000 + int(Decimal(seconds) * 1_000_000)


@pytest.mark.parametrize("schemas", [False, True])
@given(data=st.data())
def test_values_that_postgresql_tells_apart_have_keys_of_their_own(schemas: bool, data: st.DataObject) -> None:
    bits = data.draw(st.lists(bit_strings, unique=True, min_size=1))
    assert len(set(keys_of(VARBIT, bits, schemas=schemas))) == len(bits)
    spans = data.draw(st.lists(intervals, unique_by=unequal_intervals, min_size=1))
    assert len(set(keys_of(1186, spans, schemas=schemas))) == len(spans)
    for oid, elements, compared in (
        (1563, bit_strings.filter(bool), str),
        (1187, intervals, unequal_intervals),
        (1231, numbers, str),
    ):
        arrays = data.draw(st.lists(st.lists(elements, max_size=3), unique_by=_each_by(compared), min_size=1))
        from_1 = [f"{{{','.join(one)}}}" for one in arrays]
        from_0 = [f"[0:{len(one) - 1}]={{{','.join(one)}}}" for one in arrays if one]
        assert len(set(keys_of(oid, from_1 + from_0, schemas=schemas))) == len(from_1 + from_0)


def _each_by(compared: Callable[[str], Any]) -> Callable[[list[str]], tuple[Any, ...]]:
    return lambda elements: tuple(map(compared, elements))


def test_t8_in_an_hstore_what_is_no_utf_8_stays_apart() -> None:
    """In a database with the encoding SQL_ASCII."""
    render = types.choose_connect_type(
        PostgresType(16400, known=PgType("hstore", 16400, 0, JsonForm.TEXT, logical=Logical.HSTORE))
    ).render
    first, second = render(pa.array([b'"a"=>"\xe9"', b'"a"=>"\xe8"'], pa.binary())).values.to_pylist()
    assert (first, second) == (b'"{\\"a\\":\\"\xe9\\"}"', b'"{\\"a\\":\\"\xe8\\"}"')


@pytest.mark.parametrize(
    ("oid", "modifier"),
    [(DATE, -1), (TIMESTAMP, -1), (TIMESTAMP, 3), (1083, -1), (1083, 3), (1186, -1), (VARIABLE, -1)],
)
def test_a_text_that_is_not_of_the_type_is_null_and_not_the_year_1970(oid: int, modifier: int) -> None:
    assert written(oid, "no such value", modifier=modifier) == [None]


moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))


@given(moment=moments)
def test_t5_a_timestamp_is_microseconds_by_column_and_one_by_one(moment: datetime) -> None:
    text = moment.isoformat(" ").rstrip("0") if moment.microsecond else moment.isoformat(" ")
    micros = (moment - datetime(1970, 1, 1)) // (datetime.resolution)
    assert written(TIMESTAMP, text) == [micros] == [json.loads(value.render_timestamp(text))]
    assert written(TIMESTAMP, text, modifier=3) == [micros // 1000]


@given(moment=moments)
def test_t5_a_timestamptz_is_iso_with_as_many_digits_as_its_type_has(moment: datetime) -> None:
    text = (moment.isoformat(" ").rstrip("0") if moment.microsecond else moment.isoformat(" ")) + "+00"
    iso = moment.replace(tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%S.%f").rjust(26, "0")
    assert (
        written(TIMESTAMPTZ, text, None)
        == [iso + "Z", None]
        == [json.loads(value.render_zoned_timestamp(text, 6)), None]
    )


@pytest.mark.behaviour("T5")
def test_t5_timestamps_that_python_and_arrow_do_not_know() -> None:
    infinite = [9223372036825200000, -9223372036832400000]
    assert written(TIMESTAMP, "infinity", "-infinity", "2024-01-01 00:00:00") == [*infinite, 1704067200000000]
    assert written(TIMESTAMP, "0001-12-31 00:00:00 BC", "10000-01-01 00:00:00") == [
        -62135596800000000 - 86_400_000_000,
        253402300800000000,
    ]
    assert written(TIMESTAMPTZ, "infinity", "0044-03-15 12:00:00.5+00 BC", "10000-01-01 00:00:00+00") == [
        "infinity",
        "-0043-03-15T12:00:00.500000Z",
        "+10000-01-01T00:00:00.000000Z",
    ]
    assert written(TIMESTAMPTZ, "2024-01-01 00:00:00.12+00", modifier=2) == ["2024-01-01T00:00:00.12Z"]
    assert written(TIMESTAMPTZ, "2024-01-01 00:00:00+00", modifier=0) == ["2024-01-01T00:00:00Z"]


@given(day=st.dates())
def test_t5_a_date_is_days(day: date) -> None:
    assert (
        written(DATE, day.isoformat()) == [(day - date(1970, 1, 1)).days] == [int(value.render_date(day.isoformat()))]
    )


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("PT0S", 0),
        ("P1Y2M-3DT4H5M6.7S", 14 * 2_629_800_000_000 - 3 * 86_400_000_000 + 14_706_700_000),
        ("PT-0.000001S", -1),
        ("PT-1H-2M-3.5S", -3_723_500_000),
        ("P-200000Y", -200_000 * 12 * 2_629_800_000_000),
        ("-838:59:59.5", -3_020_399_500_000),
        ("26:00:01", 93_601_000_000),
    ],
)
def test_t5_an_interval_is_microseconds(text: str, micros: int) -> None:
    assert written(1186, text) == [micros]


@pytest.mark.parametrize(
    ("text", "micros"),
    [("-838:59:59.000001", -3_020_399_000_001), ("00:00:00", 0), ("101:02:03.12", 363_723_120_000)],
)
def test_t5_an_interval_of_hours_is_microseconds_too(text: str, micros: int) -> None:
    """MySQL's TIME has the form that PostgreSQL gives an interval under its own style."""
    assert written(1186, text) == [micros]


def test_t5_what_64_bits_cannot_count_is_null() -> None:
    assert written(1186, "P-178000000Y", "infinity", "-infinity") == [None, None, None]
    assert written(TIMESTAMP, "294276-12-31 23:59:59.999999") == [None]


def test_t5_times_are_microseconds_or_milliseconds_and_with_a_zone_iso_in_utc() -> None:
    assert written(1083, "24:00:00", "00:00:00.000001") == [86_400_000_000, 1]
    assert written(1083, "23:59:59.99", modifier=2) == [86_399_990]
    assert written(1266, "12:00:00.5+05:45", "23:00:00-02", "24:00:00+00", "00:00:00+00:00:30") == [
        "06:15:00.5Z",
        "01:00:00Z",
        "24:00:00Z",
        "23:59:30Z",
    ]


@pytest.mark.behaviour("T4")
def test_t4_bits_are_little_endian_bytes_and_a_single_one_is_a_boolean() -> None:
    assert written(BIT, "1", "0", modifier=1) == [True, False]
    assert [base64.b64decode(one) for one in written(VARBIT, "101", "100000000", "000", "")] == [
        b"\5",
        b"\0\1",
        b"",
        b"",
    ]


def test_t4_money_is_a_decimal_of_two_digits_in_any_locale() -> None:
    texts = ("$1,234.50", "-$0.01", "($2.00)", "1.234,50 €", "¥12", "-$92,233,720,368,547,758.08")
    assert [number(one) for one in written(790, *texts)] == [123450, -1, -200, 123450, 1200, -(2**63)]


def test_t7_arrays_hold_what_their_elements_become() -> None:
    assert written(1115, '{"2024-01-01 00:00:00",NULL,infinity}') == [[1704067200000000, None, 9223372036825200000]]
    assert written(1001, '{"\\\\x00ff"}') == [["AP8="]]
    assert written(3807, '{"{\\"a\\": 1}"}') == [['{"a": 1}']]
    ((one,),) = written(1231, "{1.5}", modifier=typmod(10, 2))
    assert number(one) == 150


def test_d6_what_is_unavailable_says_so_in_the_columns_own_type() -> None:
    placeholder = "__debezium_unavailable_value"
    encoded = base64.b64encode(placeholder.encode()).decode()

    def unavailable(oid: int, *, strict: bool = True) -> Any:
        return json.loads(types.render_unavailable(types.choose_connect_type(PostgresType(oid)).schema, strict))

    assert [unavailable(oid) for oid in (25, 3802, 17)] == [placeholder, placeholder, encoded]
    assert [unavailable(oid) for oid in (1009, 1001)] == [[placeholder], [encoded]]
    assert bytes(unavailable(1007)).decode() == placeholder
    assert unavailable(2951) == ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]
    assert unavailable(VARIABLE) == {"scale": 0, "value": encoded}


def test_d6_where_nothing_that_fits_the_schema_says_unavailable_it_is_null() -> None:
    for oid in (1000, 1021, 1022, 1017):
        schema = types.choose_connect_type(PostgresType(oid)).schema
        assert types.render_unavailable(schema, strict=True) == b"null"
        assert json.loads(types.render_unavailable(schema, strict=False)) == ["__debezium_unavailable_value"]


def test_t4_an_empty_bit_string_is_neither_true_nor_false() -> None:
    assert written(VARBIT, "", "1", "0", modifier=1) == [None, True, False]


def test_t2_a_float_is_never_taken_for_an_integer() -> None:
    texts = "1", "-0", "1e+06", "0.5", "NaN", None
    for oid in (700, 701):
        piece = types.choose_connect_type(PostgresType(oid)).render(pa.array(texts).cast(pa.binary()))
        assert piece.values.to_pylist() == [b"1.0", b"-0.0", b"1e+06", b"0.5", b'"NaN"', None]
    (point,) = written(600, "(1,1e+20)")
    assert [type(point[axis]) for axis in "xy"] == [float, float]


def test_t7_a_vector_is_an_array_without_nulls() -> None:
    assert written(22, "1 -2 3", "") == [[1, -2, 3], []]
    assert types.choose_connect_type(PostgresType(30)).schema == {
        "type": "array",
        "items": {"type": "int64", "optional": False},
    }


def test_t8_an_enum_has_its_labels_in_its_schema() -> None:
    mood = PgType("mood", 16400, 16401, JsonForm.TEXT, labels=("sad", "happy"))
    moods = PgType("_mood", 16401, 0, JsonForm.ARRAY, element=mood)
    schema = {"type": "string", "name": "io.debezium.data.Enum", "version": 1, "parameters": {"allowed": "sad,happy"}}
    assert types.choose_connect_type(PostgresType(16400, known=mood)).schema == schema
    assert types.choose_connect_type(PostgresType(16401, known=moods)).schema["items"] == {**schema, "optional": True}


def test_t4_a_point_has_coordinates_and_well_known_binary() -> None:
    (point,) = written(600, "(1.5,-2)")
    assert (point["x"], point["y"], point["srid"]) == (1.5, -2, None)
    assert base64.b64decode(point["wkb"]).hex() == "0101000000000000000000f83f00000000000000c0"


def test_t8_an_hstore_is_a_json_document() -> None:
    assert json.loads(json.loads(value.render_hstore('"a b"=>"1", "q\\"\\\\"=>NULL, "e"=>""'))) == {
        "a b": "1",
        'q"\\': None,
        "e": "",
    }
    assert json.loads(json.loads(value.render_hstore(""))) == {}
