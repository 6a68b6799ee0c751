"""Keys of PostgreSQL's tables, by the catalogs: which indexes are unique for all rows, and who gives the values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from psql_streamer.interfaces import Finding, Severity
from sources.sql.engines.table_keys import TableKeys
from sources.sql.names import TableName

FAMILIES = """
WITH RECURSIVE family(root, oid) AS (
    SELECT number, to_regclass(name)::oid FROM unnest(CAST(:tables AS text[])) WITH ORDINALITY AS given(name, number)
    UNION
    SELECT root, inhrelid FROM pg_inherits JOIN family ON inhparent = family.oid
), keys(root, attname) AS (
    SELECT * FROM unnest(CAST(:roots AS bigint[]), CAST(:keys AS text[]))
), key_columns(root, oid, attnum) AS (
    SELECT root, f.oid, c.attnum
    FROM family f JOIN keys USING (root) JOIN pg_attribute c ON c.attrelid = f.oid AND c.attname = keys.attname
), calls(root, class, object) AS (
    SELECT root, 'pg_attrdef'::regclass::oid, e.oid
    FROM key_columns c JOIN pg_attrdef e ON e.adrelid = c.oid AND e.adnum = c.attnum
    UNION
    SELECT root, d.refclassid, d.refobjid
    FROM calls
    JOIN pg_depend d ON d.classid = calls.class AND d.objid = calls.object AND d.refclassid = 'pg_proc'::regclass
), feeds(root, oid) AS (
    SELECT root, d.objid
    FROM key_columns c JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
        AND d.refobjsubid = c.attnum AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
    UNION
    SELECT root, d.refobjid
    FROM calls
    JOIN pg_depend d ON d.classid = calls.class AND d.objid = calls.object AND d.refclassid = 'pg_class'::regclass
), sequences(root, oid) AS (
    SELECT root, s.oid FROM feeds JOIN pg_class s USING (oid) WHERE s.relkind = 'S'
)
"""
"""Of each table, by its place from 1 on: itself with what inherits from it, what its key's defaults call, and the
sequences that feed the key: those that a column owns, and those that a default names, by itself or in functions whose
bodies the server has parsed.
"""

_KEYS = sa.text("""
SELECT given.number, c.oid::text, c.relkind IN ('v', 'm', 'f'), row_security_active(c.oid),
    c.relkind IN ('r', 'f') AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid),
    i.indexrelid::regclass::text, i.indisprimary,
    i.indisvalid AND i.indisready AND i.indislive AND i.indpred IS NULL AND i.indexprs IS NULL,
    i.indpred IS NULL AND i.indexprs IS NULL AND NOT EXISTS (
        SELECT FROM generate_series(0, i.indnkeyatts - 1) at
        JOIN pg_attribute k ON k.attrelid = c.oid AND k.attnum = i.indkey[at] AND k.attcollation <> i.indcollation[at]
        JOIN pg_collation o ON o.oid = k.attcollation AND NOT o.collisdeterministic
    ), a.attname, format_type(a.atttypid, a.atttypmod), o.collname
FROM unnest(CAST(:tables AS text[])) WITH ORDINALITY AS given(name, number)
JOIN pg_class c ON c.oid = to_regclass(given.name)
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique
LEFT JOIN LATERAL generate_series(0, i.indnkeyatts - 1) place ON true
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND CASE
    WHEN i.indexrelid IS NOT NULL THEN a.attnum = i.indkey[place]
    ELSE a.attnum > 0 AND NOT a.attisdropped
END
LEFT JOIN pg_collation o ON o.oid = a.attcollation
ORDER BY given.number, i.indexrelid, place
""")

_GIVERS = sa.text(
    FAMILIES
    + """
SELECT 'function', p.oid::regprocedure::text FROM calls JOIN pg_proc p ON p.oid = calls.object
    JOIN pg_language l ON l.oid = p.prolang
WHERE calls.class = 'pg_proc'::regclass AND p.prosqlbody IS NULL AND l.lanname NOT IN ('internal', 'c')
UNION ALL
SELECT 'trigger', string_agg(DISTINCT t.tgname, ', ') FROM family JOIN pg_trigger t ON t.tgrelid = family.oid
WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 7 = 7 AND NOT EXISTS (SELECT FROM sequences)
"""
)
"""tgtype: bits for ROW (1), BEFORE (2) and INSERT (4) (PostgreSQL source, pg_trigger.h)."""

_SETTLE = 'if a sequence with CACHE gives the values, set CACHE 1, or settle long enough and unsafeSequences = "accept"'


def name_families(tables: Sequence[tuple[TableName, Sequence[str]]]) -> Mapping[str, Any]:
    """Parameters of FAMILIES. tables: each with its key."""
    pairs = [(at, name) for at, (_, key) in enumerate(tables, 1) for name in key]
    return {
        "tables": [quote_table(table) for table, _ in tables],
        "roots": [at for at, _ in pairs],
        "keys": [name for _, name in pairs],
    }


def quote_table(table: TableName) -> str:
    """As it stands in SQL."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in (table.schema, table.table) if part)


def read_table_keys(connection: Connection, tables: Sequence[TableName]) -> list[TableKeys]:
    """Of each table; without anything for one that is not there."""
    found: dict[int, list[Any]] = {}
    for number, *of_column in connection.execute(_KEYS, {"tables": list(map(quote_table, tables))}):
        found.setdefault(number, []).append(of_column)
    return [
        _make_table_keys(found[at], str(table)) if at in found else TableKeys() for at, table in enumerate(tables, 1)
    ]


def _make_table_keys(found: Sequence[Any], named: str) -> TableKeys:
    """found: what the catalog says of each column of each unique index. named: for messages."""
    identity, is_view, hides_rows, has_children, *_ = found[0]
    usable: dict[str, list[str]] = {}
    invalid: dict[str, list[str]] = {}
    primary: list[str] = []
    types = frozenset((column, native) for *_, column, native, _ in found if column is not None)
    collations = frozenset((column, collation) for *_, column, _, collation in found if collation is not None)
    for *_, index, is_primary, is_usable, of_all_rows, column, _, _ in found:
        if index is None:
            continue
        if is_primary:
            primary.append(column)
        if of_all_rows:
            (usable if is_usable else invalid).setdefault(index, []).append(column)
    problem, remedy = _find_problem(hides_rows, has_children, named)
    return TableKeys(
        tuple(primary),
        frozenset(map(frozenset, usable.values())),
        tuple(sorted(invalid)),
        "" if is_view else identity,
        is_view,
        problem,
        remedy,
        types,
        collations,
    )


def _find_problem(hides_rows: bool, has_children: bool, named: str) -> tuple[str, str]:
    if has_children:
        what = (
            f"tables inherit from {named}, and its key does not count for their rows: rows with equal keys could be "
            "left out"
        )
        return what, f"read each table by itself: {_show_query(f'ONLY {named}')}"
    if hides_rows:
        remedy = (
            "ALTER ROLE ... BYPASSRLS (that needs a superuser), or connect as the table's owner; where the rows that "
            f"the policies show are enough: {_show_query(named)}"
        )
        return f"row-level security of {named} hides rows from the source's user", remedy
    return "", ""


def _show_query(of: str) -> str:
    """An entry of `tables`, for messages."""
    return f'{{ query = "SELECT * FROM {of}", name = "...", key = "..." }}'  # noqa: S608 - it is not run


def find_unknown_givers(connection: Connection, table: TableName, key: Sequence[str]) -> Iterable[Finding]:
    """Functions and triggers that may give the values of a key, of which the server does not say what they use."""
    for kind, name in connection.execute(_GIVERS, name_families([(table, key)])):
        if name is None:
            continue
        what = f"function {name} gives its key" if kind == "function" else f"a trigger may give its key ({name})"
        yield Finding(
            Severity.WARNING,
            f"table {table}: {what}, and the server does not say which sequences are used there: neither are they "
            "looked at, nor waited for",
            _SETTLE,
        )
