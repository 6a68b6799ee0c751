"""Protobuf to JSON, by descriptors and by the text of .proto files."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from psql_streamer.registry import proto_files
from psql_streamer.registry.errors import NotOfSchemaError, RegistryRefused, SchemaError
from psql_streamer.registry.proto_files import read_proto_files
from psql_streamer.registry.protobuf import make_protobuf_decoder

ADDRESS = """
syntax = "proto3"; package shop;
message Address { string street = 1; optional string city = 2; }
"""
ORDER = """
syntax = "proto3"; package shop;
import "address.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
message Order {
  int64 id = 1;
  uint64 large = 2;
  optional int32 small = 3;
  float part = 4;
  double exact = 5 [(confluent.field_meta).doc = "a remark"];
  bytes photo = 6;
  bool paid = 7;
  Kind kind = 8;
  repeated string tags = 9;
  map<int32, Address> places = 10;
  map<bool, double> rates = 11;
  Address home = 12;
  Order parent = 13;
  google.protobuf.Timestamp changed = 14;
  google.protobuf.Int64Value count = 15;
  confluent.type.Decimal price = 16;
  google.type.Date day = 17;
  oneof either { string word = 18; int64 number = 19; }
  message Line { int32 amount = 1; message Part { int32 weight = 1; } }
  enum Kind { NONE = 0; GIFT = 1; }
}
message Note { string text = 1; }
"""
REFERENCES = {"address.proto": ADDRESS}
FILES = read_proto_files(ORDER, REFERENCES)
EMPTY = {
    "id": 0,
    "large": 0,
    "small": None,
    "part": 0.0,
    "exact": 0.0,
    "photo": "",
    "paid": False,
    "kind": "NONE",
    "tags": [],
    "places": {},
    "rates": {},
    "home": None,
    "parent": None,
    "changed": None,
    "count": None,
    "price": None,
    "day": None,
    "word": None,
    "number": None,
}


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    for file in FILES:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = _pool()


def message(name: str, **fields: Any) -> Any:
    return GetMessageClass(POOL.FindMessageTypeByName(name))(**fields)


def serialized(name: str) -> str:
    """A file as Confluent's registry gives it."""
    file = next(file for file in FILES if file.name == name)
    return base64.b64encode(file.SerializeToString()).decode()


def _of_descriptors() -> Callable[[bytes], bytes]:
    return make_protobuf_decoder(serialized(FILES[-1].name), {"address.proto": serialized("address.proto")})


def _of_texts() -> Callable[[bytes], bytes]:
    return make_protobuf_decoder(ORDER, REFERENCES)


DECODERS = {"descriptors": _of_descriptors(), "texts": _of_texts()}


@pytest.fixture(params=DECODERS)
def decode(request: pytest.FixtureRequest) -> Callable[[bytes], bytes]:
    return DECODERS[request.param]


def read(decode: Callable[[bytes], bytes], order: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(decode(b"\0" + order.SerializeToString()))
    return found


@pytest.mark.behaviour("G7")
def test_each_kind_of_field_comes_out_exactly(decode: Callable[[bytes], bytes]) -> None:
    order = message(
        "shop.Order",
        id=-(1 << 63),
        large=(1 << 64) - 1,
        small=0,
        part=0.1,
        exact=0.1,
        photo=b"\0\xff",
        paid=True,
        kind=1,
        tags=["ä", ""],
        rates={True: math.inf, False: math.nan},
        home={"street": "s"},
        parent={"id": 2, "kind": 7},
        changed={"seconds": 1_795_000_000, "nanos": 123_456_789},
        count={"value": 0},
        price={"value": (-12345).to_bytes(2, "big", signed=True), "precision": 10, "scale": 3},
        day={"year": 2026, "month": 11, "day": 22},
        number=5,
    )
    order.places[4].street = "x"
    assert read(decode, order) == EMPTY | {
        "id": -(1 << 63),
        "large": (1 << 64) - 1,
        "small": 0,
        "part": 0.1,
        "exact": 0.1,
        "photo": "AP8=",
        "paid": True,
        "kind": "GIFT",
        "tags": ["ä", ""],
        "places": {"4": {"street": "x", "city": None}},
        "rates": {"true": "Infinity", "false": "NaN"},
        "home": {"street": "s", "city": None},
        "parent": EMPTY | {"id": 2, "kind": 7},
        "changed": "2026-11-18T11:06:40.123456789Z",
        "count": 0,
        "price": -12.345,
        "day": {"year": 2026, "month": 11, "day": 22},
        "number": 5,
    }
    assert b'"price":-12.345,' in decode(b"\0" + order.SerializeToString())
    assert list(read(decode, order)) == list(EMPTY)


def test_what_a_message_does_not_have_is_null_or_its_default(decode: Callable[[bytes], bytes]) -> None:
    assert read(decode, message("shop.Order")) == EMPTY


@pytest.mark.parametrize(
    ("indexes", "name", "expected"),
    [
        (b"\0", "shop.Order", EMPTY),
        (b"\2\0", "shop.Order", EMPTY),
        (b"\2\2", "shop.Note", {"text": ""}),
        (b"\4\0\0", "shop.Order.Line", {"amount": 0}),
        (b"\6\0\0\0", "shop.Order.Line.Part", {"weight": 0}),
    ],
)
def test_the_indexes_in_front_name_the_message(
    decode: Callable[[bytes], bytes], indexes: bytes, name: str, expected: Any
) -> None:
    assert json.loads(decode(indexes + message(name).SerializeToString())) == expected


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x02",
        b"\x01",
        b"\x02\x01",
        b"\x02\x08",
        b"\x04\x02\x00",
        b"\xff" * 20,
        b"\xfe\xff\xff\x7f",
        b"\0\x08",
        b"\0\x0a\x05ab",
        b"\0\x92\x01\x02\xff\xff",
    ],
)
def test_bytes_that_are_no_message_are_refused(decode: Callable[[bytes], bytes], payload: bytes) -> None:
    with pytest.raises(NotOfSchemaError):
        decode(payload)


@pytest.mark.parametrize(
    "fields",
    [
        {"changed": {"seconds": 1 << 60}},
        {"price": {"precision": 3, "scale": 1}},
        {"price": {"value": b"\1", "scale": 2_000_000_000}},
    ],
)
def test_a_time_or_a_decimal_that_is_none_is_refused(decode: Callable[[bytes], bytes], fields: Any) -> None:
    with pytest.raises(NotOfSchemaError, match="a time or a decimal"):
        read(decode, message("shop.Order", **fields))


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=80))
def test_any_bytes_give_json_or_a_refusal(payload: bytes) -> None:
    with suppress(NotOfSchemaError):
        json.loads(DECODERS["texts"](payload))


@pytest.mark.parametrize(
    ("text", "references", "reason"),
    [
        ("nonsense", {}, "protoc does not read it"),
        ('syntax = "proto3"; import "away.proto"; message A {}', {}, r"protoc does not read it \(.*away\.proto"),
        ('syntax = "proto3"; message A {}', {"../a.proto": ""}, "a name that is none"),
        ('syntax = "proto3"; message A {}', {"/tmp/a.proto": ""}, "a name that is none"),
        ('syntax = "proto3"; message A {}', {"a" * 300: ""}, "a name that is none"),
        ('syntax = "proto3"; message A {}', {"a.proto": "", "a.proto/b.proto": ""}, "a name that is none"),
        ('syntax = "proto3"; message A {} // \ud800', {}, "is not Unicode"),
        (serialized(FILES[-1].name), {}, "not among its references"),
        (serialized(FILES[-1].name), REFERENCES, "as descriptors, and others as text"),
        (base64.b64encode(b"\x0a\xff").decode(), {}, "protoc does not read it"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, references: dict[str, str], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        make_protobuf_decoder(text, references)


def test_without_protoc_descriptors_are_read_and_texts_are_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proto_files, "find_spec", lambda _: None)
    assert read(_of_descriptors(), message("shop.Order")) == EMPTY
    with pytest.raises(RegistryRefused, match="pip install grpcio-tools"):
        _of_texts()
