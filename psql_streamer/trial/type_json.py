"""Types of columns in a file of events: a name where that says all of a type, an object elsewhere."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from psql_streamer.model import ArrowType, ColumnType, TextType
from psql_streamer.pgtype import Attribute, JsonForm, Logical, PgType, PostgresType
from psql_streamer.pgtypes.builtin import BUILT_IN, BY_OID
from psql_streamer.pgtypes.modifiers import VARHDRSZ
from psql_streamer.pgtypes.names import name_type

_BY_NAME = {name: kind for kind in BUILT_IN for name in (kind.name, kind.sql) if name} | {
    alias: BY_OID[oid] for alias, oid in (("int", 23), ("decimal", 1700), ("float", 701), ("char", 1042))
}
_WITH_MODIFIER = re.compile(r"([a-z ]+?) *\((\d+)(?:, *(-?\d+))?\)")


def _make_numeric_typmod(precision: int, scale: int) -> int:
    """As make_numeric_typmod has it (PostgreSQL source, numeric.c)."""
    return (precision << 16 | scale & 0x7FF) + VARHDRSZ


_MODIFIERS: Mapping[str, Callable[[int, int], int]] = {
    "numeric": _make_numeric_typmod,
    "varchar": lambda length, _: length + VARHDRSZ,
    "bpchar": lambda length, _: length + VARHDRSZ,
    "bit": lambda length, _: length,
    "varbit": lambda length, _: length,
}


def render_type(kind: ColumnType) -> Any:
    """A name, or an object that `parse_type` reads."""
    if isinstance(kind, TextType):
        return {"native": kind.native, "like": render_type(kind.like)}
    if isinstance(kind, ArrowType):
        return {"native": kind.native, "arrow": str(kind.arrow), "schema": _encode_schema(kind.arrow)}
    name, own = name_type(kind), _own_description(kind)
    if own is None and _find_type(name) == kind:
        return name
    described = {"name": name, "oid": kind.oid, "typmod": kind.typmod}
    return described if own is None else {**described, "known": _render_known(own)}


def parse_type(given: Any) -> ColumnType:
    """The type. ValueError for what is none."""
    if isinstance(given, str):
        kind = _find_type(given)
        if kind is None:
            raise ValueError(f'there is no built-in type "{given}"')
        return kind
    if "schema" in given:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(given["schema"])))
        return ArrowType(schema.field(0).type, given.get("native", ""))
    if "like" in given:
        like = parse_type(given["like"])
        if not isinstance(like, PostgresType):
            raise ValueError("like: is no type of PostgreSQL's")
        return TextType(given["native"], like)
    known = given.get("known")
    oid = int(given["oid"])
    return PostgresType(oid, int(given.get("typmod", -1)), BY_OID.get(oid) if known is None else _parse_known(known))


def _find_type(text: str) -> PostgresType | None:
    """The built-in type that a name stands for: `numeric(12,2)`, `text[]`."""
    name = text.strip().lower()
    if name.endswith("[]"):
        element = _find_type(name[:-2])
        known = None if element is None else BY_OID.get(BY_OID[element.oid].array_oid)
        return None if known is None or element is None else PostgresType(known.oid, element.typmod, known)
    if (found := _WITH_MODIFIER.fullmatch(name)) is not None:
        known = _BY_NAME.get(found[1])
        modifier = None if known is None else _MODIFIERS.get(known.name)
        if known is None or modifier is None:
            return None
        return PostgresType(known.oid, modifier(int(found[2]), int(found[3] or 0)), known)
    known = _BY_NAME.get(name)
    return None if known is None else PostgresType(known.oid, -1, known)


def _own_description(kind: PostgresType) -> PgType | None:
    """What the source says of the type, where that is not what is known of built-in types anyway."""
    return None if kind.known == BY_OID.get(kind.oid) else kind.known


def _encode_schema(kind: pa.DataType) -> str:
    """Arrow's own description, in its IPC format."""
    return base64.b64encode(pa.schema([("", kind)]).serialize().to_pybytes()).decode()


def _render_known(kind: PgType) -> dict[str, Any]:
    return {
        "name": kind.name,
        "oid": kind.oid,
        "array_oid": kind.array_oid,
        "form": kind.form.name,
        "delimiter": kind.delimiter,
        "logical": kind.logical.name,
        "sql": kind.sql,
        "element": None if kind.element is None else _render_known(kind.element),
        "attributes": [
            {"name": one.name, "type": _render_known(one.type), "typmod": one.typmod} for one in kind.attributes
        ],
        "base_oid": kind.base_oid,
        "base_typmod": kind.base_typmod,
        "labels": list(kind.labels),
    }


def _parse_known(given: Mapping[str, Any]) -> PgType:
    attributes = (Attribute(one["name"], _parse_known(one["type"]), one["typmod"]) for one in given["attributes"])
    return PgType(
        **{
            **given,
            "form": JsonForm[given["form"]],
            "logical": Logical[given["logical"]],
            "element": None if given["element"] is None else _parse_known(given["element"]),
            "attributes": tuple(attributes),
            "labels": tuple(given["labels"]),
        }
    )
