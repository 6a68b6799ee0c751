"""Keys of MySQL and MariaDB, and what gives them: AUTO_INCREMENT, and sequences of MariaDB.

All sessions of a server take the values of a sequence from one cache (MariaDB source, sql_sequence.h): CACHE does not
put them out of order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from sources.sql.engines.table_keys import TableKeys
from sources.sql.names import TableName

_INDEXES = sa.text("""
SELECT NULL, 0, table_type, NULL, NULL FROM information_schema.tables
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table
UNION ALL
SELECT index_name, seq_in_index, column_name, NULL, NULL FROM information_schema.statistics
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table AND non_unique = 0
UNION ALL
SELECT NULL, 0, column_name, column_type, collation_name FROM information_schema.columns
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table
""")
"""A join of them would have MariaDB open every table there is."""

_PRIMARY = "PRIMARY"

_COLUMNS = sa.text("""
SELECT column_name, extra, column_default, (
    SELECT table_type FROM information_schema.tables
    WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table
)
FROM information_schema.columns
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table
""")

_NEXT_VALUE = re.compile(r"nextval\(((?:`(?:[^`]|``)+`\.)?`(?:[^`]|``)+`)\)", re.IGNORECASE)

_UTF8 = re.compile("^utf8(mb3)?_")
"""Collations of the short UTF-8, which has two names, put its characters in the order in which those of all do."""

_RIGHT_MISSING = 1142


def read_table_keys(connection: Connection, table: TableName) -> TableKeys:
    """No identity: what the server has, a table's number and the time when it was made, changes with OPTIMIZE, ALTER
    and TRUNCATE.
    """
    found = connection.execute(_INDEXES, {"schema": table.schema or None, "table": table.table}).all()
    places: dict[str, list[tuple[int, str | None]]] = {}
    types, collations = [], []
    is_view = False
    for index, place, name, kind, collation in found:
        if kind is not None:
            types.append((_to_text(name), _to_text(kind)))
            if collation is not None:
                collations.append((_to_text(name), _UTF8.sub("utf8mb4_", _to_text(collation))))
        elif index is None:
            is_view = is_view or "VIEW" in _to_text(name)
        else:
            column = None if name is None else _to_text(name)
            places.setdefault(_to_text(index), []).append((int(place), column))
    indexes = {index: [column for _, column in sorted(columns)] for index, columns in places.items()}
    primary = tuple(filter(None, indexes.get(_PRIMARY, ())))
    return TableKeys.from_indexes(primary, indexes, is_view, types, collations)


def find_generator_problem(connection: Connection, table: TableName, key: Sequence[str]) -> str:
    """Why the values of a key are not given in ascending order; empty where they are, or nobody says."""
    found = connection.execute(_COLUMNS, {"schema": table.schema or None, "table": table.table}).all()
    columns = [tuple(map(_to_text, one)) for one in found]
    parts = [(extra, default) for name, extra, default, _ in columns if name in key]
    sequences = [named[1] for _, default in parts if (named := _NEXT_VALUE.fullmatch(default))]
    is_view = any(kind != "BASE TABLE" for *_, kind in columns)
    if is_view or sequences or any("auto_increment" in extra.lower() for extra, _ in parts):
        step = int(_to_text(connection.exec_driver_sql("SELECT @@global.auto_increment_increment").scalar()))
        if step > 1:
            return f"auto_increment_increment is {step}: other servers give keys, too"
    return next((unsafe for name in sequences if (unsafe := _find_sequence_problem(connection, name))), "")


def _find_sequence_problem(connection: Connection, name: str) -> str:
    """name: as it stands in SQL."""
    try:
        found = connection.exec_driver_sql(f"SELECT increment, cycle_option FROM {name}".replace("%", "%%")).one()  # noqa: S608
    except sa.exc.DBAPIError as error:
        if getattr(error.orig, "args", (0,))[0] == _RIGHT_MISSING:
            return ""
        raise
    increment, cycles = (int(_to_text(one)) for one in found)
    if increment < 0:
        return f"sequence {name} has INCREMENT {increment}: its values descend"
    return f"sequence {name} has CYCLE: its values start over" if cycles else ""


def _to_text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
