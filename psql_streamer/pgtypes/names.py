"""Types as PostgreSQL writes them: `numeric(12,2)`, `timestamp(3) with time zone`, `text[]`.

Source: PostgreSQL documentation, "Data Types", and for type modifiers src/backend/utils/adt/format_type.c.
"""

from __future__ import annotations

from collections.abc import Callable

from psql_streamer.pgtype import PgType, PostgresType
from psql_streamer.pgtypes.builtin import BY_OID
from psql_streamer.pgtypes.modifiers import VARHDRSZ, decode_numeric_modifier

_INTERVAL_FIELDS = {
    1 << 2: " year",
    1 << 1: " month",
    1 << 3: " day",
    1 << 10: " hour",
    1 << 11: " minute",
    1 << 12: " second",
    1 << 2 | 1 << 1: " year to month",
    1 << 3 | 1 << 10: " day to hour",
    1 << 3 | 1 << 10 | 1 << 11: " day to minute",
    1 << 3 | 1 << 10 | 1 << 11 | 1 << 12: " day to second",
    1 << 10 | 1 << 11: " hour to minute",
    1 << 10 | 1 << 11 | 1 << 12: " hour to second",
    1 << 11 | 1 << 12: " minute to second",
}
_FULL_PRECISION = 0xFFFF


def name_type(kind: PostgresType) -> str:
    """The name by format_type, without the schema of types that are not built in; `oid 16400` for an unknown type."""
    known = kind.known or BY_OID.get(kind.oid)
    return f"oid {kind.oid}" if known is None else _render_name(known, kind.typmod)


def _render_name(kind: PgType, typmod: int) -> str:
    if kind.element is not None and not kind.base_oid:
        return f"{_render_name(kind.element, typmod)}[]"
    if kind.base_oid:
        return kind.name
    if typmod >= 0 and kind.name in _WITH_MODIFIER:
        return _WITH_MODIFIER[kind.name](typmod)
    return kind.sql or kind.name


def _make_length_namer(name: str, header: int) -> Callable[[int], str]:
    return lambda typmod: f"{name}({typmod - header})"


def _make_precision_namer(name: str, zone: str) -> Callable[[int], str]:
    return lambda typmod: f"{name}({typmod}) {zone} time zone"


def _name_numeric(typmod: int) -> str:
    return "numeric({},{})".format(*decode_numeric_modifier(typmod))


def _name_interval(typmod: int) -> str:
    fields, precision = _INTERVAL_FIELDS.get(typmod >> 16, ""), typmod & 0xFFFF
    return f"interval{fields}" if precision == _FULL_PRECISION else f"interval{fields}({precision})"


_WITH_MODIFIER: dict[str, Callable[[int], str]] = {
    "varchar": _make_length_namer("character varying", VARHDRSZ),
    "bpchar": _make_length_namer("character", VARHDRSZ),
    "bit": _make_length_namer("bit", 0),
    "varbit": _make_length_namer("bit varying", 0),
    "numeric": _name_numeric,
    "interval": _name_interval,
    "time": _make_precision_namer("time", "without"),
    "timetz": _make_precision_namer("time", "with"),
    "timestamp": _make_precision_namer("timestamp", "without"),
    "timestamptz": _make_precision_namer("timestamp", "with"),
}
