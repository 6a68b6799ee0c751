"""PostgreSQL's text forms of arrays, composites, ranges, multiranges and hstores -> Arrow's nested types, by columns.

Only what stands around the elements is looked at value by value, and for plain arrays not even that; the elements of
all values are read at once. Sources: PostgreSQL documentation, "Array Input and Output Syntax", "Composite Type Input
and Output Syntax", "Range Input/Output", and of the extension hstore "External Representation".
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.pgtype import JsonForm, Logical, PgType, PostgresType
from psql_streamer.pgtypes import arrays, casts, composites
from psql_streamer.pgtypes.builtin import OIDS
from psql_streamer.pgtypes.modifiers import VARHDRSZ

Failed = NDArray[np.bool_]

_RANGE_FIELDS = 4
_PLAIN_ARRAY = r'^\{[^"\\{}]*\}$'
_BOUND = rb'("(?:[^"\\]|""|\\.)*"|(?:[^"\\,()\[\]]|\\.)*)'
_RANGE = re.compile(rb"([\[(])" + _BOUND + b"," + _BOUND + rb"([\])])", re.DOTALL)
_ESCAPED = re.compile(rb'\\(.)|""', re.DOTALL)
_PAIR = re.compile(rb'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, |\Z)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Read:
    """values: of the type that was asked for. failed: where a text is not of it; values are null there."""

    values: pa.Array
    failed: Failed


class Unreadable(Exception):
    """A type that text forms cannot be read as. Its text says which."""


def is_read_here(kind: PgType | None, wanted: pa.DataType) -> bool:
    """Whether columns of a type have a nested text form that is not JSON, and what is wanted is nested."""
    if kind is None or not pa.types.is_nested(wanted) or kind.logical is Logical.JSON:
        return False
    if kind.form in (JsonForm.ARRAY, JsonForm.OBJECT) or kind.logical is Logical.HSTORE:
        return True
    # Ranges, of which many are made in databases. The vectors of pgvector, which are lists, are JSON.
    return kind.logical is Logical.OTHER and (_is_multirange(kind) or bool(pa.types.is_struct(wanted)))


def read_texts(texts: pa.Array, kind: PgType | None, wanted: pa.DataType) -> Read:
    """The values of text forms, binary, of a PostgreSQL type; None: one that nothing is known of.

    wanted: an Arrow type. An array's lower bounds are dropped. A range is a struct of its bounds (null: unbounded) and
    whether they belong to it; all four are null for an empty one. Raises Unreadable when a type cannot be had at all.
    """
    if kind is not None and kind.logical is Logical.JSON and pa.types.is_nested(wanted):
        raise Unreadable(f"{kind.name} inside of another type is not read: use string, and from_json in sql")
    if pa.types.is_list(wanted):
        return (_read_multiranges if kind is not None and _is_multirange(kind) else _read_arrays)(texts, kind, wanted)
    if pa.types.is_struct(wanted):
        is_composite = kind is None or not kind.name or kind.form is JsonForm.OBJECT
        return (_read_composites if is_composite else _read_ranges)(texts, kind, wanted)
    if pa.types.is_map(wanted):
        return _read_hstores(texts, wanted)
    return _read_leaves(texts, kind, wanted)


def _is_multirange(kind: PgType) -> bool:
    return kind.name.endswith("multirange")


# --- arrays


def _read_arrays(texts: pa.Array, kind: PgType | None, wanted: pa.DataType) -> Read:
    element = None if kind is None else kind.element
    if element is None and kind is not None and kind.name:
        raise Unreadable(f"{kind.name} is no array")
    delimiter = element.delimiter.encode() if element is not None else b","
    lists, failed = _parse_lists(texts, _count_dimensions(wanted), delimiter)
    read = _read_lists(lists, element, wanted)
    return Read(_make_invalid_null(~(failed | read.failed), read.values), failed | read.failed)


def _count_dimensions(wanted: pa.DataType) -> int:
    return 1 + _count_dimensions(wanted.value_type) if pa.types.is_list(wanted.value_type) else 1


def _parse_lists(texts: pa.Array, depth: int, delimiter: bytes) -> tuple[pa.Array, Failed]:
    """Lists of so many dimensions of the elements' texts."""
    plain = pc.fill_null(pc.match_substring_regex(texts, _PLAIN_ARRAY), True) if depth == 1 else None
    if plain is not None and pc.all(plain).as_py() is not False:
        return _split_plain_arrays(texts, delimiter), np.zeros(len(texts), np.bool_)
    kind: pa.DataType = pa.binary()
    for _ in range(depth):
        kind = pa.list_(kind)
    if plain is None:
        made = [None if text is None else _parse_nested_lists(text, depth, delimiter) for text in texts.to_pylist()]
        lists = pa.array(made, kind)
        return lists, _find_nulls(lists) & ~_find_nulls(texts)
    others = texts.filter(pc.invert(plain))
    of_others, failed_others = _parse_to_array(others, lambda text: _parse_nested_lists(text, depth, delimiter), kind)
    of_plain = _split_plain_arrays(texts.filter(plain), delimiter)
    is_plain = plain.to_numpy(zero_copy_only=False)
    place = np.where(is_plain, np.cumsum(is_plain) - 1, len(of_plain) + np.cumsum(~is_plain) - 1)
    failed = np.zeros(len(texts), np.bool_)
    failed[~is_plain] = failed_others
    return pa.concat_arrays([of_plain, of_others]).take(pa.array(place)), failed


def _split_plain_arrays(texts: pa.Array, delimiter: bytes) -> pa.Array:
    """Of arrays of one dimension without quotes."""
    inside = pc.binary_slice(texts, 1, -1)
    lists = pc.split_pattern(inside, delimiter)
    elements = lists.flatten()
    elements = pc.if_else(pc.equal(elements, b"NULL"), pa.scalar(None, pa.binary()), elements)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    empty = pc.fill_null(pc.equal(texts, b"{}"), False).to_numpy(zero_copy_only=False)
    if empty.any():
        keep = ~np.repeat(empty, lengths)
        elements = elements.filter(pa.array(keep))
        lengths = np.where(empty, 0, lengths)
    return _make_list_array(lengths, elements, _find_nulls(texts))


def _parse_nested_lists(text: bytes, depth: int, delimiter: bytes) -> list[Any] | None:
    """The elements of an array in lists of so many dimensions; None when it is no such array."""
    parsed = arrays.parse(text, delimiter)
    if parsed is None:
        return None
    gaps, elements = parsed
    if not elements:
        return [] if gaps[0] == b"[]" else None
    root: list[Any] = []
    path = [root]
    for gap, element in zip(gaps, [*elements, None], strict=True):
        for mark in gap:
            if mark == ord("["):
                inner: list[Any] = []
                path[-1].append(inner)
                path.append(inner)
            elif mark == ord("]"):
                if len(path) == 1:
                    return None
                path.pop()
        if len(path) == depth + 1:
            path[-1].append(element)
        elif len(path) > 1:
            return None
    made: list[Any] | None = root[0] if len(root) == 1 and len(path) == 1 else None
    return made


def _read_lists(lists: pa.Array, element: PgType | None, wanted: pa.DataType) -> Read:
    inner = lists.flatten()
    if pa.types.is_list(inner.type):
        read = _read_lists(inner, element, wanted.value_type)
    else:
        read = read_texts(inner, element, wanted.value_type)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return Read(
        _make_list_array(lengths, read.values, _find_nulls(lists), wanted), _find_failed_lists(read.failed, lengths)
    )


def _make_list_array(
    lengths: NDArray[Any], elements: pa.Array, null: Failed, kind: pa.DataType | None = None
) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets), elements, type=kind or pa.list_(elements.type), mask=pa.array(null) if null.any() else None
    )


def _find_failed_lists(failed: Failed, lengths: NDArray[Any]) -> Failed:
    """Of lists of these lengths, those that have an element which failed."""
    found = np.zeros(len(lengths), np.bool_)
    found[np.repeat(np.arange(len(lengths)), lengths)[failed]] = True
    return found


# --- composites, ranges, hstores


def _read_composites(texts: pa.Array, kind: PgType | None, wanted: pa.DataType) -> Read:
    attributes = () if kind is None else kind.attributes
    if attributes and len(attributes) != wanted.num_fields:
        raise Unreadable(f"the composite type has {len(attributes)} attributes, the struct {wanted.num_fields} fields")
    kinds: Sequence[PgType | None] = [attribute.type for attribute in attributes] or [None] * wanted.num_fields
    rows, failed = _parse_texts(texts, lambda text: composites.parse(text, wanted.num_fields))
    return _build_structs(rows, kinds, wanted, failed, _find_nulls(texts))


def _read_ranges(texts: pa.Array, kind: PgType | None, wanted: pa.DataType) -> Read:
    if wanted.num_fields != _RANGE_FIELDS or any(not pa.types.is_boolean(wanted.field(at).type) for at in (2, 3)):
        name = "" if kind is None else f" {kind.name}"
        raise Unreadable(f"a range{name} is struct<lower: T, upper: T, lower_inc: boolean, upper_inc: boolean>")
    rows, failed = _parse_texts(texts, _parse_range)
    return _build_structs(rows, [None] * _RANGE_FIELDS, wanted, failed, _find_nulls(texts))


def _read_multiranges(texts: pa.Array, kind: PgType | None, wanted: pa.DataType) -> Read:
    if not pa.types.is_struct(wanted.value_type):
        raise Unreadable("a multirange is an array of structs")
    lists, failed = _parse_to_array(texts, _split_multirange, pa.list_(pa.binary()))
    inner = _read_ranges(lists.flatten(), kind, wanted.value_type)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    failed |= _find_failed_lists(inner.failed, lengths)
    return Read(
        _make_invalid_null(~failed, _make_list_array(lengths, inner.values, _find_nulls(lists), wanted)), failed
    )


def _read_hstores(texts: pa.Array, wanted: pa.DataType) -> Read:
    if not pa.types.is_string(wanted.key_type):
        raise Unreadable("the keys of a map of an hstore are string")
    rows, failed = _parse_texts(texts, _parse_pairs)
    pairs = [pair for row in rows if row for pair in row]
    items = read_texts(pa.array([value for _, value in pairs], pa.binary()), None, wanted.item_type)
    keys = pa.array([key for key, _ in pairs], pa.binary()).cast(pa.string())
    lengths = np.array([len(row) if row else 0 for row in rows], np.int64)
    failed |= _find_failed_lists(items.failed, lengths)
    offsets: list[int | None] = [0, *np.cumsum(lengths).tolist()]
    null = failed | _find_nulls(texts)
    for at in np.flatnonzero(null):
        offsets[at] = None
    return Read(pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items.values, type=wanted), failed)


def _parse_range(text: bytes) -> list[bytes | None] | None:
    if text == b"empty":
        return [None] * _RANGE_FIELDS
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    opening, lower, upper, closing = found.groups()
    return [
        _parse_bound(lower),
        _parse_bound(upper),
        b"t" if opening == b"[" else b"f",
        b"t" if closing == b"]" else b"f",
    ]


def _parse_bound(text: bytes) -> bytes | None:
    if not text:
        return None
    return _ESCAPED.sub(_unescape, text[1:-1] if text.startswith(b'"') else text)


def _split_multirange(text: bytes) -> list[bytes] | None:
    """The ranges of a multirange."""
    if not (text.startswith(b"{") and text.endswith(b"}")):
        return None
    found, at, end = list[bytes](), 1, len(text) - 1
    while at < end:
        one = _RANGE.match(text, at, end)
        if one is None or text[one.end() : one.end() + 1] not in (b",", b"}"):
            return None
        found.append(one[0])
        at = one.end() + 1
    return found


def _parse_pairs(text: bytes) -> list[tuple[bytes, bytes | None]] | None:
    found, at = [], 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            return None
        key, value = (None if one is None else _ESCAPED.sub(_unescape, one) for one in pair.groups())
        found.append((key or b"", value))
        at = pair.end()
    return found


def _unescape(found: re.Match[bytes]) -> bytes:
    return found[1] if found[1] is not None else b'"'


def _build_structs(
    rows: Sequence[Sequence[bytes | None] | None],
    kinds: Sequence[PgType | None],
    wanted: pa.DataType,
    failed: Failed,
    null: Failed,
) -> Read:
    nothing: Sequence[bytes | None] = [None] * wanted.num_fields
    fields = []
    for at, kind in enumerate(kinds):
        texts = pa.array([(row or nothing)[at] for row in rows], pa.binary())
        read = read_texts(texts, kind, wanted.field(at).type)
        failed = failed | read.failed
        fields.append(read.values)
    mask = failed | null
    listed = [wanted.field(at) for at in range(wanted.num_fields)]
    return Read(pa.StructArray.from_arrays(fields, fields=listed, mask=pa.array(mask)), failed)


def _parse_texts(texts: pa.Array, parse: Callable[[bytes], Any]) -> tuple[list[Any], Failed]:
    """What is parsed of each text, None for null and where it cannot be parsed; and where it could not."""
    made = [None if text is None else parse(text) for text in texts.to_pylist()]
    failed = np.fromiter((one is None for one in made), np.bool_, len(made)) & ~_find_nulls(texts)
    return made, failed


def _parse_to_array(texts: pa.Array, parse: Callable[[bytes], Any], kind: pa.DataType) -> tuple[pa.Array, Failed]:
    made, failed = _parse_texts(texts, parse)
    return pa.array(made, kind), failed


# --- what stands in them


def _read_leaves(texts: pa.Array, kind: PgType | None, wanted: pa.DataType) -> Read:
    if pa.types.is_binary(wanted) and (kind is None or kind.logical is not Logical.BYTES):
        return Read(texts, np.zeros(len(texts), np.bool_))
    if pa.types.is_int8(wanted):
        values = _convert_to_int8(casts.cast(texts, PostgresType(OIDS["int2"])))
    else:
        values = casts.cast(texts, _choose_type(wanted))
    failed = _find_nulls(values) & ~_find_nulls(texts)
    if failed.any() and pa.types.is_decimal(wanted):
        values = _round_decimals(texts, values, failed)
        failed = _find_nulls(values) & ~_find_nulls(texts)
    if pa.types.is_floating(wanted):
        too_large = _find_too_large(texts, values)
        if too_large.any():
            return Read(_make_invalid_null(~too_large, values), failed | too_large)
    return Read(values, failed)


def _find_too_large(texts: pa.Array, values: pa.Array) -> Failed:
    """The numbers that became infinite, though their text does not say so."""
    said = pc.match_substring_regex(texts, "(?i)inf")
    found: Failed = pc.fill_null(pc.and_not(pc.is_inf(values), said), False).to_numpy(zero_copy_only=False)
    return found


def _choose_type(wanted: pa.DataType) -> PostgresType:
    """The type whose text form is read: Spark's type says it, a column's says it too, and they may differ."""
    if pa.types.is_decimal(wanted):
        return PostgresType(OIDS["numeric"], ((wanted.precision << 16) | wanted.scale) + VARHDRSZ)
    kind = casts.find_postgres_type(wanted)
    if kind is None:
        raise Unreadable(f"{wanted} cannot be read inside of another type: use string")
    return kind


def _convert_to_int8(values: pa.Array) -> pa.Array:
    fits = pc.and_(pc.greater_equal(values, -128), pc.less_equal(values, 127))
    return pc.if_else(fits, values, pa.scalar(None, values.type)).cast(pa.int8())


def _round_decimals(texts: pa.Array, values: pa.Array, failed: Failed) -> pa.Array:
    """Decimals of more digits than the type has behind the point, rounded as Spark's cast does."""
    wanted = values.type
    found = pa.array(list(_parse_decimals(texts.filter(pa.array(failed)).to_pylist(), wanted)), wanted)
    return pc.replace_with_mask(values, pa.array(failed), found)


def _parse_decimals(texts: Iterable[bytes], wanted: pa.DataType) -> Iterator[decimal.Decimal | None]:
    with decimal.localcontext(decimal.Context(prec=2 * wanted.precision + 2)) as context:
        for text in texts:
            try:
                value = context.create_decimal(text.decode())
                rounded = value.quantize(decimal.Decimal(1).scaleb(-wanted.scale), decimal.ROUND_HALF_UP)
            except (decimal.InvalidOperation, UnicodeDecodeError):
                yield None
                continue
            fits = rounded.is_finite() and len(rounded.as_tuple().digits) <= wanted.precision
            yield rounded if fits else None


def _make_invalid_null(valid: Failed, values: pa.Array) -> pa.Array:
    """Null where it is not valid."""
    return values if valid.all() else values.take(pa.array(np.arange(len(values)), mask=~valid))


def _find_nulls(array: pa.Array) -> Failed:
    found: Failed = array.is_null().to_numpy(zero_copy_only=False)
    return found
