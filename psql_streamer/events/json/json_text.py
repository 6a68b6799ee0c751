"""JSON text by columns: string literals and objects, whole Arrow arrays at a time.

Every function takes and gives `binary` arrays of UTF-8. RFC 8259 asks for escapes of `"`, `\\` and U+0000 to
U+001F only; everything else, U+2028 included, stands as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer import batching
from psql_streamer.binary_columns import measure_bytes, read_offsets, read_value_bytes

_FIRST_PRINTABLE = 0x20
_ESCAPES = {code: b"\\u%04x" % code for code in range(_FIRST_PRINTABLE)}
_ESCAPES |= {8: rb"\b", 9: rb"\t", 10: rb"\n", 12: rb"\f", 13: rb"\r", ord('"'): rb"\"", ord("\\"): rb"\\"}
_SPECIAL = re.compile(rb'[\x00-\x1f"\\]')
_BINARY = pa.binary()
_EMPTY = pa.scalar(b"", _BINARY)
_QUOTING = (ord("\\"), ord('"'))
_SEARCHED_BYTES = 128 << 10
"""Searched at once: so many stay in a processor's cache while they are copied, searched and compared."""

TO_THE_END = np.iinfo(np.int64).max
"""Where a slice of a text ends that leaves nothing over."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A column of JSON values: `open` + value + `close` for every row.

    values has no nulls when open or close are set: a null must not become a quoted string.
    lossy: where a value is there but lacks something inside of it; None: nowhere.
    """

    values: pa.Array
    open: bytes = b""
    close: bytes = b""
    lossy: pa.BooleanArray | None = None


Render: TypeAlias = Callable[[pa.Array], Piece]
"""Writes a column of values of one type as JSON; null stays null."""


def find_lost(piece: Piece, values: pa.Array) -> pa.BooleanArray | None:
    """Which values are null in their JSON, or have a null inside of it, that are none themselves; None: none of them.

    values: what the piece was rendered of.
    """
    if piece.values.null_count == values.null_count:
        return piece.lossy
    nulled = pc.and_(piece.values.is_null(), values.is_valid())
    return nulled if piece.lossy is None else pc.or_(nulled, piece.lossy)


def escape(texts: pa.Array) -> pa.Array:
    """What stands between the quotes of JSON string literals; nulls stay."""
    for code in find_escapes(texts):
        texts = pc.replace_substring(texts, bytes([code]), _ESCAPES[code])
    return texts


def render_quoted(texts: pa.Array) -> Piece:
    """A column of strings."""
    return put_in_quotes(escape(texts))


def put_in_quotes(escaped: pa.Array) -> Piece:
    """A column of texts that have nothing to be escaped."""
    if escaped.null_count:
        return Piece(join(b'"', escaped, b'"', nulls=None))
    return Piece(escaped, b'"', b'"')


def quote_one(text: bytes) -> bytes:
    """A string literal of one text."""
    return b'"%s"' % escape_one(text)


def escape_one(text: bytes) -> bytes:
    """What stands between its quotes."""
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0][0]], text) if _SPECIAL.search(text) else text


def quote(texts: pa.Array) -> pa.Array:
    """JSON string literals; nulls stay."""
    return join(b'"', escape(texts.cast(pa.binary())), b'"', nulls=None)


def join(*parts: pa.Array | bytes, nulls: bytes | None = b"null") -> pa.Array:
    """The parts of each row one after the other; a null part as `nulls`, or (None) makes its row null.

    A part may be a pa.DictionaryArray.
    """
    short = _are_short(parts)
    if short and (rows := _count_rows(parts)) <= batching.FEW_ROWS:
        return _join_few(parts, rows, nulls)
    merged = _merge_constants(parts)
    if short and nulls is not None:
        return _gather(merged, nulls)
    arguments = [_make_constant(part) if isinstance(part, bytes) else decode_dictionary(part) for part in merged]
    if nulls is None:
        return pc.binary_join_element_wise(*arguments, _EMPTY)
    return pc.binary_join_element_wise(*arguments, _EMPTY, null_handling="replace", null_replacement=nulls)


def decode_dictionary(part: pa.Array) -> pa.Array:
    """The texts, row by row."""
    return part.dictionary_decode() if isinstance(part, pa.DictionaryArray) else part


def _join_few(parts: Sequence[pa.Array | bytes], rows: int, nulls: bytes | None) -> pa.Array:
    columns = [[part] * rows if isinstance(part, bytes) else part.to_pylist() for part in parts]
    if nulls is None:
        return pa.array([None if None in row else b"".join(row) for row in zip(*columns, strict=True)], _BINARY)
    whole = ([nulls if text is None else text for text in column] if None in column else column for column in columns)
    return pa.array([b"".join(row) for row in zip(*whole, strict=True)], _BINARY)


def gather(pool: Sequence[pa.Array], pieces: NDArray[np.int32], ends: NDArray[np.int64] | slice) -> pa.Array:
    """Texts put together of pieces: one behind the other, as bytes, without a step for each text.

    pieces: indexes into the pool, as if its arrays were one; nobody checks them. ends: behind which piece each text
    ends, from 0 on.
    """
    taken = pc.take(pa.concat_arrays(pool), pa.array(pieces), boundscheck=False)
    bounds = np.ascontiguousarray(read_offsets(taken)[ends])
    return pa.Array.from_buffers(taken.type, len(bounds) - 1, [None, pa.py_buffer(bounds), taken.buffers()[2]])


LONG = 512
"""Bytes from which on a text is better copied once than picked out of a pool, which copies it twice."""


def are_long(texts: pa.Array) -> bool:
    """Whether the texts are, on average."""
    if isinstance(texts, pa.DictionaryArray):
        texts = texts.dictionary
    return measure_bytes(texts) > LONG * len(texts)


def _are_short(parts: Sequence[pa.Array | bytes]) -> bool:
    arrays = [part for part in parts if not isinstance(part, bytes)]
    return bool(arrays) and not any(map(are_long, arrays))


def _count_rows(parts: Sequence[pa.Array | bytes]) -> int:
    return next(len(part) for part in parts if not isinstance(part, bytes))


def _gather(parts: Sequence[pa.Array | bytes], nulls: bytes) -> pa.Array:
    constants = pa.array([nulls, *(part for part in parts if isinstance(part, bytes))], _BINARY)
    pool, base, constant = [constants], len(constants), 0
    rows = _count_rows(parts)
    pieces = np.empty((rows, len(parts)), np.int32)
    every = np.arange(rows, dtype=np.int32)
    for place, part in enumerate(parts):
        if isinstance(part, bytes):
            constant += 1
            pieces[:, place] = constant
            continue
        texts, which = _pick_texts(part, every)
        np.add(which, base, out=pieces[:, place])
        if texts.null_count:
            pieces[texts.is_null().to_numpy(zero_copy_only=False), place] = 0
        pool.append(texts)
        base += len(texts)
    return gather(pool, pieces.reshape(-1), slice(0, None, len(parts)))


def _pick_texts(part: pa.Array, every: NDArray[np.int32]) -> tuple[pa.Array, NDArray[np.int32]]:
    """The texts of a part, and which of them each row has. every: the numbers of all rows."""
    if isinstance(part, pa.DictionaryArray) and not part.null_count and not part.dictionary.null_count:
        return part.dictionary, part.indices.to_numpy()
    return decode_dictionary(part), every


@lru_cache(maxsize=1 << 12)
def _make_constant(part: bytes) -> pa.Scalar:
    """Most constants are the same in every batch, and making a scalar costs as much as joining a hundred rows."""
    return pa.scalar(part, pa.binary())


@lru_cache(maxsize=1 << 16)
def render_name(text: str) -> bytes:
    """One JSON string literal, for names."""
    return quote_one(text.encode())


def render_members(names: Sequence[bytes], pieces: Sequence[Piece]) -> list[pa.Array | bytes]:
    """The parts of `{"a":1,"b":2}`, to be joined (with others)."""
    parts: list[pa.Array | bytes] = [b"{"]
    for index, (literal, piece) in enumerate(zip(names, pieces, strict=True)):
        parts += [(b"," if index else b"") + literal + b":" + piece.open, piece.values, piece.close]
    return [*parts, b"}"]


def find_escapes(texts: pa.Array) -> list[int]:
    """Which byte values that need an escape occur in the array; the backslash first, before escapes bring more."""
    held = read_value_bytes(texts)
    if not len(held):
        return []
    there, least = set[int](), _FIRST_PRINTABLE
    for at in range(0, len(held), _SEARCHED_BYTES):
        part = held[at : at + _SEARCHED_BYTES]
        piece = part.tobytes()  # the search of bytes is several times as fast as comparing
        there.update(code for code in _QUOTING if code in piece)
        least = min(least, int(part.min()))
    found = [code for code in _QUOTING if code in there]
    return found if least >= _FIRST_PRINTABLE else found + np.unique(held[held < _FIRST_PRINTABLE]).tolist()


def _merge_constants(parts: Sequence[pa.Array | bytes]) -> list[pa.Array | bytes]:
    """Neighbouring constants as one, empty ones gone: every argument of the join costs."""
    merged: list[pa.Array | bytes] = []
    for part in parts:
        if isinstance(part, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += part
        elif not isinstance(part, bytes) or part:
            merged.append(part)
    return merged
