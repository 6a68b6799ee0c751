"""JSON, geometries and vectors as JSON texts.

MySQL has JSON in a binary form (MySQL source, sql-common/json_binary.h): a byte of the type, then for an object or
array the number of its elements and its size, entries of fixed length with offsets, and what these point to.
"""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Decimal

import numpy as np
import pyarrow as pa

from psql_streamer.binlog.cell_bytes import CellBytes, Texts, join_texts
from psql_streamer.binlog.json_opaque import render_opaque
from psql_streamer.errors import ProtocolError


def decode_documents(cells: CellBytes) -> Texts:
    """JSON, as the server shows it: `{"a": 1, "b": [true, null]}`."""
    return join_texts([_decode_document(value) for value in cells.list_values()])


def decode_geometries(cells: CellBytes) -> Texts:
    """`{"srid":4326,"wkb":"..."}`, the well-known binary in base64. In a row the SRID stands in front of it."""
    return join_texts([_decode_geometry(value) for value in cells.list_values()])


def decode_vectors(cells: CellBytes) -> Texts:
    """`[1,0.5]`, of floats of 4 bytes; one that is no number is null."""
    return join_texts([_decode_vector(value) for value in cells.list_values()])


def _decode_geometry(value: bytes) -> bytes:
    if len(value) < 4:
        raise ProtocolError("a geometry is shorter than its SRID")
    return b'{"srid":%d,"wkb":"%s"}' % (int.from_bytes(value[:4], "little"), b64encode(value[4:]))


def _decode_vector(value: bytes) -> bytes:
    if len(value) % 4:
        raise ProtocolError("a vector is not made of floats of 4 bytes")
    floats = np.frombuffer(value, "<f4").astype(np.float32)
    found = np.isfinite(floats)
    texts = pa.array(floats, mask=~found).cast(pa.string()).to_pylist()
    return f"[{','.join('null' if text is None else text for text in texts)}]".encode()


_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = range(4)
_LITERAL, _DOUBLE, _STRING, _OPAQUE = 0x04, 0x0B, 0x0C, 0x0F
_LITERALS = ("null", "true", "false")
_INTEGERS = {0x05: (2, True), 0x06: (2, False), 0x07: (4, True), 0x08: (4, False), 0x09: (8, True), 0x0A: (8, False)}
"""Bytes, and whether there is a sign."""

_DEEPEST_DOCUMENT = 100
"""The server refuses deeper documents (JSON_DOCUMENT_MAX_DEPTH)."""


_FARTHEST_POINT = 15
"""Digits between a number's first one and its point, beyond which the server writes an exponent, unless there are
others behind the point.
"""

_PIECE_ELEMENTS = 1024
"""Of an object or array that are joined at once: a short text by itself takes some fifty bytes."""


def _decode_document(value: bytes) -> bytes:
    if not value:
        return b"null"
    reader = _JsonReader(len(value))
    # A view, because each element is read from where it begins up to the end of what holds it.
    return reader.read(value[0], memoryview(value)[1:], 0).encode()


class _JsonReader:
    """Reads one document. size: its bytes: it cannot have more elements."""

    def __init__(self, size: int) -> None:
        self._left = size

    def read(self, kind: int, data: memoryview, depth: int) -> str:
        """The text of a value. data: from where it begins."""
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST_DOCUMENT:
            raise _make_json_error()
        if kind <= _LARGE_ARRAY:
            return self._read_container(kind, data, depth)
        if kind in _INTEGERS:
            width, sign = _INTEGERS[kind]
            return str(int.from_bytes(_take(data, 0, width), "little", signed=sign))
        if kind == _LITERAL:
            return _look_up_literal(_take(data, 0, 1)[0])
        if kind == _DOUBLE:
            return _decode_double(_take(data, 0, 8))
        if kind == _STRING:
            length, at = _read_length(data, 0)
            return _quote_text(_take(data, at, length))
        if kind == _OPAQUE:
            length, at = _read_length(data, 1)
            return render_opaque(data[0], bytes(_take(data, at, length)))
        raise _make_json_error()

    def _read_container(self, kind: int, data: memoryview, depth: int) -> str:
        wide = 4 if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
        is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
        count, size = _read_integer(data, 0, wide), _read_integer(data, wide, wide)
        held = _take(data, 0, size)
        entries = 2 * wide
        values = entries + count * (wide + 2) * is_object
        if values + count * (wide + 1) > len(held):
            raise _make_json_error()
        pieces: list[str] = []
        texts: list[str] = []
        for place in range(count):
            text = self._read_element(held, values + place * (wide + 1), wide, depth)
            texts.append(f"{self._read_key(held, entries + place * (wide + 2), wide)}: {text}" if is_object else text)
            if len(texts) == _PIECE_ELEMENTS:
                pieces.append(", ".join(texts))
                texts.clear()
        found = ", ".join([*pieces, *texts])
        return "{" + found + "}" if is_object else f"[{found}]"

    def _read_key(self, held: memoryview, entry: int, wide: int) -> str:
        return _quote_text(_take(held, _read_integer(held, entry, wide), _read_integer(held, entry + wide, 2)))

    def _read_element(self, held: memoryview, entry: int, wide: int, depth: int) -> str:
        kind = held[entry]
        inlined = kind == _LITERAL or (kind in _INTEGERS and _INTEGERS[kind][0] <= wide)
        at = entry + 1 if inlined else _read_integer(held, entry + 1, wide)
        return self.read(kind, held[at:], depth + 1)


def _make_json_error() -> ProtocolError:
    return ProtocolError("a JSON value does not have MySQL's binary form")


def _take(data: memoryview, at: int, size: int) -> memoryview:
    if at + size > len(data):
        raise _make_json_error()
    return data[at : at + size]


def _read_integer(data: memoryview, at: int, width: int) -> int:
    return int.from_bytes(_take(data, at, width), "little")


def _read_length(data: memoryview, at: int) -> tuple[int, int]:
    """A length of 7 bits a byte, the lowest first, and where it ends."""
    found = 0
    for place in range(5):
        byte = _take(data, at + place, 1)[0]
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return found, at + place + 1
    raise _make_json_error()


def _look_up_literal(number: int) -> str:
    if number >= len(_LITERALS):
        raise _make_json_error()
    return _LITERALS[number]


def _decode_double(data: memoryview) -> str:
    value = float(np.frombuffer(data, "<f8")[0])
    if value != value or value in (float("inf"), float("-inf")):
        raise _make_json_error()
    return _spell_double(value)


def _spell_double(value: float) -> str:
    """The shortest digits that give it again, without an exponent where the point lies near them (MySQL source,
    my_gcvt in strings/dtoa.cc, and Json_wrapper::to_string).
    """
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    shown, minus = "".join(map(str, digits)), "-" * sign
    point = len(digits) + int(exponent)  # 0.DIGITS and so many places
    if not value:
        return f"{minus}0.0"
    if max(len(shown) - 1, _FARTHEST_POINT) < point or point <= -_FARTHEST_POINT:
        return f"{minus}{shown[0]}{'.' * (len(shown) > 1)}{shown[1:]}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{shown}"
    return f"{minus}{shown[:point].ljust(point, '0')}.{shown[point:] or '0'}"


def _quote_text(text: memoryview) -> str:
    try:
        return json.dumps(str(text, "utf-8"), ensure_ascii=False)
    except UnicodeDecodeError:
        raise _make_json_error() from None
