"""Fields of JSON documents that the type which they are coerced to does not name: Spark leaves them out, in silence.

Documents are looked at by columns: Arrow reads a number of them at once and infers a type that holds them all. Those
that it cannot read so (a field that is a number here and a text there, a very large document) are read one by one.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import json as arrow_json

from psql_streamer.binary_columns import read_offsets, read_value_bytes
from psql_streamer.spark.counts import Counts

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

log = logging.getLogger("psql_streamer.spark")

# An inferred type has a column for every field. Few documents at a time, and none that is large, keep their number
# small also where names of fields are data; where there are many all the same, documents are read one by one.
_FIRST_CHUNK_DOCUMENTS = 16
_CHUNK_DOCUMENTS = 256
_READ_CHUNK_BYTES = 1 << 18
_LARGE_DOCUMENT_BYTES = 1 << 16
_MOST_TYPE_FIELDS = 500

_MOST_BRACKETS = 200
"""Arrow and what looks at its types call themselves for each level of a document, and the process ends where the stack
does: a document with more arrays and objects, which may lie in one another, is read alone.
"""

_MOST_LOGGED_FIELDS = 20
"""How many fields of a column the log names."""

_NAME = re.compile(r"[@$]?[^\W\d][\w-]{0,62}")
_UNSHOWN = "?"


@dataclass(frozen=True, slots=True)
class Struct:
    """Names its fields."""

    fields: Mapping[str, Named]


@dataclass(frozen=True, slots=True)
class Items:
    """An array."""

    of: Named


@dataclass(frozen=True, slots=True)
class Values:
    """A map: names all its keys."""

    of: Named


Named: TypeAlias = Struct | Items | Values | None
"""What a type has names for; None: whatever is there is taken whole."""


def collect_names(kind: DataType) -> Named:
    """What a Spark type has names for."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return Struct({field.name: collect_names(field.dataType) for field in kind.fields})
    if isinstance(kind, ArrayType):
        inner = collect_names(kind.elementType)
        return None if inner is None else Items(inner)
    if isinstance(kind, MapType):
        inner = collect_names(kind.valueType)
        return None if inner is None else Values(inner)
    return None


def count_left_out(documents: pa.Array, named: Named) -> Counter[str]:
    """Path of a field that is not named -> how many values it has. The path begins behind the column's name.

    documents: JSON texts. What is no JSON is passed over. Names that look like data are not shown.
    """
    found = Counter[str]()
    if named is None:
        return found
    texts = documents.drop_null().cast(pa.binary())
    alone = np.diff(read_offsets(texts)) > (0 if _has_values(named) else _LARGE_DOCUMENT_BYTES)
    alone |= _count_brackets(texts) > _MOST_BRACKETS
    _note_documents(texts.filter(pa.array(alone)), named, found)
    by_columns = True
    for some in _split_texts(texts.filter(pa.array(~alone))):
        column = _infer_column(some) if by_columns else None
        by_columns = column is not None and _count_fields(column.type) < _MOST_TYPE_FIELDS
        if column is None:
            _note_documents(some, named, found)
        else:
            _note_array(column, named, "", found)
    return found


class LeftOut:
    """Tells of fields that are left out: a log line for each, and a count."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._told: dict[str, set[str]] = defaultdict(set)

    def look(self, where: str, column: str, documents: pa.Array, named: Named) -> None:
        """The documents of a column that a rule reads. where: table and rule."""
        if named is None or not pa.types.is_string(documents.type):
            return
        found = count_left_out(documents, named)
        self._counts.add("fields_left_out", found.total())
        told = self._told[f"{where}, {column}"]
        for path in sorted(found.keys() - told)[: _MOST_LOGGED_FIELDS - len(told)]:
            told.add(path)
            more = "; fields that are found after this one are counted only" if len(told) == _MOST_LOGGED_FIELDS else ""
            what = f"documents have a field {column}{path}, which the type of {column} in coerce does not name"
            log.warning("%s: %s: it is left out%s", where, what, more)


def _count_brackets(texts: pa.BinaryArray) -> NDArray[np.int32]:
    """Of each document, those that open."""
    brackets: NDArray[np.int32] = pc.add(pc.count_substring(texts, "["), pc.count_substring(texts, "{")).to_numpy()
    return brackets


def _has_values(named: Named) -> bool:
    """Whether there is a map in it, of which Arrow would make a field for every key."""
    if isinstance(named, Struct):
        return any(map(_has_values, named.fields.values()))
    return isinstance(named, Values) or (isinstance(named, Items) and _has_values(named.of))


def _split_texts(texts: pa.BinaryArray) -> Iterator[pa.BinaryArray]:
    bounds: NDArray[np.int64] = read_offsets(texts).astype(np.int64)
    first = 0
    while first < len(texts):
        last = int(np.searchsorted(bounds, bounds[first] + _READ_CHUNK_BYTES))
        most = _CHUNK_DOCUMENTS if first else _FIRST_CHUNK_DOCUMENTS
        last = max(first + 1, min(last, first + most, len(texts)))
        yield texts[first:last]
        first = last


def _infer_column(texts: pa.BinaryArray) -> pa.Array | None:
    """What the documents hold; None where they do not have one type."""
    wrapped = pc.binary_join_element_wise(b'{"value":', texts, b"}\n", b"")
    data = read_value_bytes(wrapped)
    try:
        table = arrow_json.read_json(
            pa.BufferReader(pa.py_buffer(data)),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=arrow_json.ParseOptions(newlines_in_values=True),
        )
    except pa.ArrowInvalid:
        return None
    return table.column(0).combine_chunks()


def _count_fields(kind: pa.DataType) -> int:
    return 1 + sum(_count_fields(kind.field(at).type) for at in range(kind.num_fields))


def _note_array(array: pa.Array, named: Named, path: str, found: Counter[str]) -> None:
    if isinstance(named, Struct) and pa.types.is_struct(array.type):
        for field, child in zip(array.type, array.flatten(), strict=True):
            if field.name in named.fields:
                _note_array(child, named.fields[field.name], _extend_path(path, field.name), found)
            else:
                found[_extend_path(path, field.name)] += max(1, len(child) - child.null_count)
    elif isinstance(named, Items) and pa.types.is_list(array.type):
        _note_array(array.flatten(), named.of, f"{path}[]", found)


def _note_documents(texts: pa.BinaryArray, named: Named, found: Counter[str]) -> None:
    for text in texts.to_pylist():
        _note_document(text, named, found)


def _note_document(text: bytes, named: Named, found: Counter[str]) -> None:
    try:
        _note_value(json.loads(text), named, "", found)
    except (ValueError, RecursionError):
        return


def _note_value(value: Any, named: Named, path: str, found: Counter[str]) -> None:
    if isinstance(named, Struct) and isinstance(value, dict):
        for name, inner in value.items():
            if name in named.fields:
                _note_value(inner, named.fields[name], _extend_path(path, name), found)
            else:
                found[_extend_path(path, name)] += 1
    elif isinstance(named, Items) and isinstance(value, list):
        for inner in value:
            _note_value(inner, named.of, f"{path}[]", found)
    elif isinstance(named, Values) and isinstance(value, dict):
        for inner in value.values():
            _note_value(inner, named.of, f"{path}{{}}", found)


def _extend_path(path: str, name: str) -> str:
    return f"{path}.{name if _NAME.fullmatch(name) else _UNSHOWN}"
