"""Which types have several texts for one value, as their equality goes (PostgreSQL documentation, "Data Types")."""

from __future__ import annotations

from psql_streamer.model import find_text_form
from psql_streamer.snapshot.likeness import Likeness
from sources.postgres.snapshot.tables import KeyColumn, SnapshotTable

_EQUAL = "OPERATOR(pg_catalog.=)"

_EXACT = (
    *("bool", "bytea", "int2", "int4", "int8", "oid", "uuid", "xid8", "pg_lsn", "char", "bit", "varbit"),
    *("date", "time", "timetz", "timestamp", "timestamptz", "inet", "cidr", "macaddr", "macaddr8"),
)
_TEXTS = ("text", "varchar", "name")

_OF_TYPES = {
    **dict.fromkeys(_EXACT, Likeness.EXACT),
    **dict.fromkeys(_TEXTS, Likeness.EXACT),
    "bpchar": Likeness.PADDED,
    "numeric": Likeness.DECIMAL,
    "float4": Likeness.FLOAT,
    "float8": Likeness.FLOAT,
}


def list_likenesses(table: SnapshotTable) -> tuple[Likeness, ...]:
    """Of the columns of the key, in the order of the relation's columns."""
    return tuple(_choose_likeness(table, column) for column in sorted(table.key, key=lambda column: column.column))


def _choose_likeness(table: SnapshotTable, column: KeyColumn) -> Likeness:
    if column.equal != _EQUAL or not column.deterministic:
        return Likeness.ANY
    kind = find_text_form(table.relation.columns[column.column].type)
    if kind is not None and kind.known is not None and kind.known.labels:
        return Likeness.EXACT  # the values of an enum are its labels
    return _OF_TYPES.get(column.built_in_type, Likeness.ANY)
