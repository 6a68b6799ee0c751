"""Avro's binary encoding to JSON: by a schema of any shape, exactly, and with nothing but a refusal for other bytes."""

from __future__ import annotations

import base64
import io
import json
import math
import struct
from decimal import Decimal
from typing import Any, NamedTuple

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psql_streamer.registry.avro import make_avro_decoder
from psql_streamer.registry.errors import NotOfSchemaError, SchemaError
from tests.registry_records import ENVELOPE, avro, envelope


def decoded(schema: Any, payload: bytes, *references: Any) -> bytes:
    return make_avro_decoder(json.dumps(schema), [json.dumps(one) for one in references])(payload)


def through(schema: Any, value: Any) -> bytes:
    """The JSON of what fastavro writes."""
    return decoded(schema, avro(schema, value))


class Drawn(NamedTuple):
    """schema: of Avro. value: as fastavro writes it. expected: as a JSON parser reads it, decimals as Decimal."""

    schema: Any
    value: Any
    expected: Any


def _same(schema: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Drawn]:
    return values.map(lambda value: Drawn(schema, value, value))


def _double(value: float) -> Drawn:
    names = {math.inf: "Infinity", -math.inf: "-Infinity"}
    return Drawn("double", value, "NaN" if math.isnan(value) else names.get(value, value))


def _bytes(value: bytes) -> Drawn:
    return Drawn("bytes", value, base64.b64encode(value).decode())


def _decimal(unscaled: int, scale: int) -> Drawn:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": scale}
    value = Decimal(unscaled).scaleb(-scale)
    return Drawn(schema, value, value)


_LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
_SCALARS = st.one_of(
    _same("null", st.none()),
    _same("boolean", st.booleans()),
    _same("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    _same("long", _LONGS),
    _same("string", st.text()),
    st.floats().map(_double),
    st.binary().map(_bytes),
    st.builds(_decimal, st.integers(-(10**25), 10**25), st.integers(0, 27)),
)
_NUMBER = iter(range(1 << 60))


def _record(fields: list[Drawn]) -> Drawn:
    named = [{"name": f"f{at}", "type": one.schema} for at, one in enumerate(fields)]
    value = {f"f{at}": one.value for at, one in enumerate(fields)}
    expected = {f"f{at}": one.expected for at, one in enumerate(fields)}
    return Drawn({"type": "record", "name": f"R{next(_NUMBER)}", "fields": named}, value, expected)


def _array(item: Drawn, count: int) -> Drawn:
    return Drawn({"type": "array", "items": item.schema}, [item.value] * count, [item.expected] * count)


def _map(item: Drawn, names: list[str]) -> Drawn:
    value, expected = dict.fromkeys(names, item.value), dict.fromkeys(names, item.expected)
    return Drawn({"type": "map", "values": item.schema}, value, expected)


def _optional(item: Drawn, is_there: bool, null_first: bool) -> Drawn:
    if item.schema == "null":
        return item
    schema = ["null", item.schema] if null_first else [item.schema, "null"]
    return Drawn(schema, *((item.value, item.expected) if is_there else (None, None)))


def _not_of_unions(drawn: Drawn) -> bool:
    return not isinstance(drawn.schema, list)


_ANY = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.builds(_record, st.lists(inner, max_size=5)),
        st.builds(_array, inner, st.integers(0, 4)),
        st.builds(_map, inner, st.lists(st.text(), max_size=4)),
        st.builds(_optional, inner.filter(_not_of_unions), st.booleans(), st.booleans()),
    ),
    max_leaves=12,
)


def _parsed(text: bytes) -> Any:
    return json.loads(text, parse_float=Decimal)


def _exact(value: Any) -> Any:
    """Floats as the decimals that their shortest texts are."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, list):
        return [_exact(one) for one in value]
    return {name: _exact(one) for name, one in value.items()} if isinstance(value, dict) else value


@pytest.mark.behaviour("G7")
@settings(deadline=None, max_examples=300)
@given(_ANY)
def test_what_fastavro_writes_by_any_schema_comes_out_exactly(drawn: Drawn) -> None:
    found = _parsed(through(drawn.schema, drawn.value))
    assert found == _exact(drawn.expected)


@settings(deadline=None, max_examples=300)
@given(_ANY, st.binary(max_size=60), st.data())
def test_bytes_that_are_not_of_the_schema_are_refused_and_nothing_else_happens(
    drawn: Drawn, noise: bytes, data: st.DataObject
) -> None:
    decode = make_avro_decoder(json.dumps(drawn.schema), [])
    payload = avro(drawn.schema, drawn.value)
    if payload:
        with pytest.raises(NotOfSchemaError):
            decode(payload + b"\0")
    at = data.draw(st.integers(0, len(payload)))
    for broken in (noise, payload[:at] + noise, payload[:at] + noise + payload[at:]):
        try:
            json.loads(decode(broken))
        except NotOfSchemaError:
            continue


def test_each_beginning_of_a_record_is_refused() -> None:
    decode = make_avro_decoder(json.dumps(ENVELOPE), [])
    payload = avro(ENVELOPE, envelope(1, name="ä" * 100))
    for length in range(len(payload)):
        with pytest.raises(NotOfSchemaError):
            decode(payload[:length])


@pytest.mark.parametrize(
    ("schema", "payload", "reason"),
    [
        ("long", b"\xff" * 30 + b"\0", "more than 8 bytes"),
        ("int", b"\x80\x80\x80\x80\x20", "4 bytes has more"),
        ("boolean", b"\x02", "neither 0 nor 1"),
        ("string", b"\x02\xff", "not UTF-8"),
        ("string", b"\x01", "ends within a value"),
        (["null", "int"], b"\x04\x02", "a branch that"),
        (["null", "int", "string"], b"\x03\x02", "below 0"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\x01", "below 0"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\x08", "too early, or"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "more items than bytes"),
        ({"type": "array", "items": "null"}, b"\xac\x02" * 300 + b"\0", "more items than bytes"),
        ("int", b"\x02\x02", "1 bytes are left over"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\0", "too early, or"),
    ],
)
def test_the_refusal_says_what_is_wrong(schema: Any, payload: bytes, reason: str) -> None:
    with pytest.raises(NotOfSchemaError, match=reason):
        decoded(schema, payload)


def test_a_record_that_is_nested_without_end_is_refused_and_the_process_lives() -> None:
    chain = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    assert decoded(chain, b"\x02\x02\x00") == b'{"next":{"next":{"next":null}}}'
    with pytest.raises(NotOfSchemaError, match="nested too deeply"):
        decoded(chain, b"\x02" * 1_000_000 + b"\x00")


def test_records_a_hundred_deep_are_read() -> None:
    schema: Any = "long"
    value: Any = 1
    for depth in range(100):
        schema = {"type": "record", "name": f"D{depth}", "fields": [{"name": "in", "type": ["null", schema]}]}
        value = {"in": value}
    assert json.loads(through(schema, value)) == value


@pytest.mark.parametrize(
    ("unscaled", "scale", "expected"),
    [
        (12345, 2, b"123.45"),
        (-5, 3, b"-0.005"),
        (100, 2, b"1.00"),
        (0, 2, b"0.00"),
        (10**40 + 1, 0, b"1" + b"0" * 39 + b"1"),
        (7, -2, b"700"),
        pytest.param(-(10**9_999), 1, b"-1" + b"0" * 9_998 + b".0", id="ten thousand digits"),
    ],
)
def test_a_decimal_has_each_of_its_digits(unscaled: int, scale: int, expected: bytes) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 20_000, "scale": scale}
    size = unscaled.bit_length() // 8 + 1
    assert decoded(schema, avro("bytes", unscaled.to_bytes(size, "big", signed=True))) == expected
    fixed = {"type": "fixed", "name": "d", "size": size + 3} | {name: schema[name] for name in ("logicalType", "scale")}
    assert decoded(fixed, unscaled.to_bytes(size + 3, "big", signed=True)) == expected


def test_a_float_has_the_digits_that_tell_it_from_other_floats() -> None:
    assert [through("float", one) for one in (0.1, 3.4e38, 16777216.0, math.nan)] == [
        b"0.1",
        b"3.4e38",
        b"16777216.0",
        b'"NaN"',
    ]
    assert through("double", 0.1) == b"0.1"
    assert through("float", struct.unpack("<f", b"\x01\0\0\0")[0]) == b"1e-45"


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ({"type": "int", "logicalType": "date"}, 2_000_000),
        ({"type": "long", "logicalType": "timestamp-micros"}, -(1 << 62)),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1 << 62),
        ({"type": "int", "logicalType": "time-millis"}, 86_399_999),
        ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, 1_795_000_000_000_000),
    ],
)
def test_dates_and_times_stay_the_integers_that_they_are_far_beyond_pythons_calendar(schema: Any, payload: int) -> None:
    assert decoded(schema, avro(schema["type"], payload)) == b"%d" % payload


def test_uuids_enums_fixed_and_unions_of_several_branches() -> None:
    text = "00112233-4455-6677-8899-aabbccddeeff"
    assert through({"type": "string", "logicalType": "uuid"}, text) == b'"%s"' % text.encode()
    fixed = {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}
    assert decoded(fixed, bytes.fromhex(text.replace("-", ""))) == b'"%s"' % text.encode()
    assert decoded({"type": "fixed", "name": "x", "size": 3}, b"\0\1\2") == b'"AAEC"'
    assert through({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B") == b'"B"'
    several = ["null", "string", "long", {"type": "array", "items": "boolean"}]
    assert [through(several, one) for one in (None, "x", 5, [True])] == [b"null", b'"x"', b"5", b"[true]"]


def test_named_types_are_found_by_their_namespace_and_in_references() -> None:
    address = {
        "type": "record",
        "name": "Address",
        "namespace": "shop",
        "fields": [{"name": "street", "type": "string"}],
    }
    person = {
        "type": "record",
        "name": "shop.Person",
        "fields": [{"name": "home", "type": "Address"}, {"name": "work", "type": ["null", "shop.Address"]}],
    }
    payload = avro("string", "a") + b"\x02" + avro("string", "b")
    assert decoded(person, payload, address) == b'{"home":{"street":"a"},"work":{"street":"b"}}'
    with pytest.raises(SchemaError, match=r"neither it nor its references have: shop\.Address"):
        decoded(person, payload)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[",
        '{"type": "fixed", "name": "f", "size": 1e999}',
        '{"type": "record"}',
        '{"type": "enum", "name": "e"}',
        "[[[[" * 9000,
        "3",
    ],
    ids=lambda text: text[:9],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        make_avro_decoder(text, [])


def test_the_json_of_an_envelope_is_that_of_debezium() -> None:
    row = envelope(7, name="Zoë 🦆", price=0.1)
    assert json.loads(through(ENVELOPE, row)) == row
    assert fastavro.schemaless_reader(io.BytesIO(avro(ENVELOPE, row)), fastavro.parse_schema(ENVELOPE), None) == row
