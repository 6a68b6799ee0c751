"""What the key of a record says of its row: which columns make it, or that it is another one than columns make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw, Struct

from psql_streamer.event_reader.documents import DEPTH_OF_VALUES, BrokenJsonError, cut_out, render_lead, require_json
from psql_streamer.event_reader.forms import NOT_OF_THE_FORMAT, decode_members
from psql_streamer.event_reader.parsed import Image
from psql_streamer.event_reader.tables import NO_NAMES, Names


class RowKey(NamedTuple):
    """names: what a key that is a JSON object names. own: the key itself, if the row's columns do not make it: somebody
    else chose it, and it goes out as it is.
    """

    names: Names
    own: bytes | None = None


_NO_KEY = RowKey(NO_NAMES)


class KeyReader:
    """Reads the keys of records, most of which are of the same columns as the key before. For one thread."""

    def __init__(self) -> None:
        self._usual = _NO_KEY
        self._leads: Sequence[tuple[bytes, str]] = ()

    def read(self, key: bytes | None, image: Image) -> RowKey:
        """image: the row that the record is about, without values that an update left alone."""
        if key is None:
            return _NO_KEY
        if self._leads and _render_key(image, self._leads) == key:
            return self._usual
        members, has_schema = _decode_columns(key)
        names = tuple(members)
        if not names or not all(name in image and _is_same(members[name], image[name]) for name in names):
            return RowKey(names, key)
        if (
            not has_schema
            and _render_key(members, _render_leads(tuple(name for name in image if name in members))) != key
        ):
            return RowKey(names, key)  # spaces, or another order
        self._usual, self._leads = RowKey(names), _render_leads(names)
        return self._usual


def decode_key_columns(key: bytes) -> Mapping[str, Raw]:
    """The columns that a key names, with their values: those of the payload for a key with a schema; none for a key
    that is no JSON object.
    """
    try:
        require_json(key)
    except BrokenJsonError:
        return {}
    return _decode_columns(key)[0]


def find_schema_name(key: bytes) -> str:
    """The name of the schema that a key has; empty for one without."""
    try:
        return _decode_with_schema(key).schema.name
    except (RecursionError, *NOT_OF_THE_FORMAT):
        return ""


class _Schema(Struct):
    name: str = ""


class _WithSchema(Struct):
    schema: _Schema


_decode_with_schema = msgspec.json.Decoder(_WithSchema).decode


def find_key_columns(keys: Sequence[bytes | None], columns: Names, cells: pa.Array) -> Names | None:
    """The columns of the keys of rows, if each row's columns make its key, and all keys are of the same ones.

    columns: of the rows. cells: their values as JSON, row after row.
    """
    if keys.count(None) == len(keys):
        return NO_NAMES
    names = tuple(_decode_columns(keys[0] or b"")[0])
    if not names or None in keys or names != tuple(name for name in columns if name in names):
        return None
    pieces: list[pa.Array | pa.Scalar] = []
    for lead, name in _render_leads(names):
        of_column = np.arange(columns.index(name), len(cells), len(columns))
        pieces += [pa.scalar(lead), cells.take(pa.array(of_column))]
    made = pc.binary_join_element_wise(*pieces, pa.scalar(b"}"), pa.scalar(b""))
    return names if made.equals(pa.array(keys, pa.binary())) else None


def _decode_columns(key: bytes) -> tuple[Mapping[str, Raw], bool]:
    """The members of a key that is a JSON object, of the payload where it has a schema, and whether it has one; no
    members for any other.
    """
    try:
        held = _decode_members(key)
        has_schema = tuple(held) == ("schema", "payload")
        return (_decode_members(bytes(held["payload"])) if has_schema else held), has_schema
    except (BrokenJsonError, *NOT_OF_THE_FORMAT):
        return {}, False


def _render_leads(names: Names) -> Sequence[tuple[bytes, str]]:
    """What stands in front of each value of a key, and which column's it is."""
    return [((b"" if at else b"{") + render_lead(at, name), name) for at, name in enumerate(names)]


def _render_key(values: Image, leads: Sequence[tuple[bytes, str]]) -> bytes | None:
    """The key that columns make; None where one of them is not there."""
    try:
        return b"".join([*(lead + bytes(values[name]) for lead, name in leads), b"}"])
    except KeyError:
        return None


def _decode_members(key: bytes) -> Mapping[str, Raw]:
    try:
        return decode_members(key)
    except RecursionError:
        shallow = cut_out(key, DEPTH_OF_VALUES)
        return {name: Raw(shallow.restore(bytes(value))) for name, value in decode_members(shallow.text).items()}


def _is_same(of_key: Raw, of_row: Raw) -> bool:
    """Whether a key's value and the row's may be the same one. Formats write some kinds of values otherwise in keys
    than in rows, but neither integers nor strings. A string in the key may stand for a value that Debezium's type does
    not hold: the row has null, or the value of another key.
    """
    first, second = bytes(of_key), bytes(of_row)
    both_integers = first.removeprefix(b"-").isdigit() and second.removeprefix(b"-").isdigit()
    return first == second or not (first.startswith(b'"') or second == b"null" or both_integers)
