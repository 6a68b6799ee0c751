"""Numbers of JSON documents in places that a type has as strings: they keep their digits.

Spark's `from_json` reads such a number as a double and writes that: 19.90 becomes 19.9, and 20 digits become 17. A
string it takes as it is. So the number, or the array or object around it, is made one before Spark sees the document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_WITH_FRACTION = r"[:\[,]\s*-?[0-9]+(?:\.[0-9]|[eE])"
"""Where a document may have a number that a double changes. Text that looks so costs time, and stays as it is."""


class _Number(str):
    """A number as it is written."""


class _Members(list[tuple[str, Any]]):
    """Those of an object, in their order."""


@dataclass(frozen=True, slots=True)
class Strings:
    """Where a type has strings. whole: it is one. fields: of a struct. of: in items of an array or values of a map."""

    whole: bool = False
    fields: Mapping[str, Strings | None] = field(default_factory=dict)
    of: Strings | None = None


def find_strings(kind: DataType) -> Strings | None:
    """Where a type has strings; None where it has none."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, StructType):
        fields = {one.name: find_strings(one.dataType) for one in kind.fields}
        return Strings(fields=fields) if any(fields.values()) else None
    if isinstance(kind, ArrayType | MapType):
        of = find_strings(kind.elementType if isinstance(kind, ArrayType) else kind.valueType)
        return None if of is None else Strings(of=of)
    return Strings(whole=True) if isinstance(kind, StringType) else None


def quote_numbers(documents: pa.StringArray, strings: Strings) -> pa.StringArray:
    """The same documents for `from_json`, with strings where a number would lose digits."""
    found = pc.fill_null(pc.match_substring_regex(documents, _WITH_FRACTION), False)
    if not pc.any(found).as_py():
        return documents
    quoted = [_quote_in_document(text, strings) for text in documents.filter(found).to_pylist()]
    return pc.replace_with_mask(documents, found, pa.array(quoted, documents.type))


def _quote_in_document(text: str, strings: Strings) -> str:
    """What Python does not read stays, and Spark says what is wrong with it."""
    try:
        return _write(_READER.decode(text), strings)
    except (ValueError, RecursionError):
        return text


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


_READER = json.JSONDecoder(parse_float=_Number, parse_constant=_refuse_constant, object_pairs_hook=_Members)
_write_plain = json.JSONEncoder(ensure_ascii=False).encode


def _write(value: Any, strings: Strings | None) -> str:
    """JSON of a value. strings: where Spark reads some in it; None: nowhere, or it is within one."""
    kind = type(value)
    if strings is not None and strings.whole and kind in (_Number, _Members, list):
        return json.dumps(_write(value, None))
    if kind is _Number:
        return str(value)
    if kind is _Members:
        fields, of = (strings.fields, strings.of) if strings is not None else ({}, None)
        return f"{{{','.join(f'{_write_plain(name)}:{_write(inner, fields.get(name, of))}' for name, inner in value)}}}"
    if kind is list:
        of = None if strings is None else strings.of
        return f"[{','.join([_write(inner, of) for inner in value])}]"
    return _write_plain(value)
