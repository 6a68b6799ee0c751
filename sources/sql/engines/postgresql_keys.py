"""Keys of PostgreSQL's tables, by the catalogs: which indexes are unique for all rows, and who gives the values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from psql_streamer.interfaces import Finding, Severity
from sources.sql.engines.table_keys import TableKeys

FAMILY = """
WITH RECURSIVE family(oid) AS (
    SELECT to_regclass(:table)::oid
    UNION
    SELECT inhrelid FROM pg_inherits JOIN family ON inhparent = family.oid
), calls(attname, class, object) AS (
    SELECT c.attname, 'pg_attrdef'::regclass::oid, e.oid
    FROM family f
    JOIN pg_attribute c ON c.attrelid = f.oid AND c.attname = ANY (:key)
    JOIN pg_attrdef e ON e.adrelid = f.oid AND e.adnum = c.attnum
    UNION
    SELECT calls.attname, d.refclassid, d.refobjid
    FROM calls
    JOIN pg_depend d ON d.classid = calls.class AND d.objid = calls.object AND d.refclassid = 'pg_proc'::regclass
), sequences AS (
    SELECT s.oid, c.attname
    FROM family f
    JOIN pg_attribute c ON c.attrelid = f.oid AND c.attname = ANY (:key)
    JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
        AND d.refobjid = f.oid AND d.refobjsubid = c.attnum AND d.deptype IN ('a', 'i')
    JOIN pg_class s ON s.relkind = 'S' AND s.oid = d.objid
    UNION
    SELECT s.oid, calls.attname
    FROM calls
    JOIN pg_depend d ON d.classid = calls.class AND d.objid = calls.object AND d.refclassid = 'pg_class'::regclass
    JOIN pg_class s ON s.relkind = 'S' AND s.oid = d.refobjid
)
"""
"""The table with what inherits from it, what its key's defaults call, and the sequences that feed the key: those that a
column owns, and those that a default names, by itself or in functions whose bodies the server has parsed.
"""

_KEYS = sa.text("""
SELECT c.oid::text, c.relkind IN ('v', 'm'), row_security_active(c.oid),
    c.relkind IN ('r', 'f') AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid),
    i.indexrelid::regclass::text, i.indisprimary,
    i.indisvalid AND i.indisready AND i.indislive AND i.indpred IS NULL AND i.indexprs IS NULL,
    i.indpred IS NULL AND i.indexprs IS NULL, a.attname
FROM pg_class c
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique
LEFT JOIN LATERAL generate_series(0, i.indnkeyatts - 1) place ON true
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[place]
WHERE c.oid = to_regclass(:table)
ORDER BY i.indexrelid, place
""")

_GIVERS = sa.text(
    FAMILY
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


def read_table_keys(connection: Connection, table: str, named: str) -> TableKeys:
    """table: as it stands in SQL. named: for messages."""
    found = connection.execute(_KEYS, {"table": table}).all()
    if not found:
        return TableKeys()
    identity, is_view, hides_rows, has_children, *_ = found[0]
    usable: dict[str, list[str]] = {}
    invalid: dict[str, list[str]] = {}
    primary: list[str] = []
    for *_, index, is_primary, is_usable, of_all_rows, column in found:
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


def find_unknown_givers(connection: Connection, table: str, key: Sequence[str], named: str) -> Iterable[Finding]:
    """Functions and triggers that may give the values of a key, of which the server does not say what they use."""
    for kind, name in connection.execute(_GIVERS, {"table": table, "key": list(key)}):
        if name is None:
            continue
        what = f"function {name} gives its key" if kind == "function" else f"a trigger may give its key ({name})"
        yield Finding(
            Severity.WARNING,
            f"table {named}: {what}, and the server does not say which sequences are used there: neither are they "
            "looked at, nor waited for",
            _SETTLE,
        )
