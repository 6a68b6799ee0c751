"""SQL of what a chunk reads."""

from __future__ import annotations

from collections.abc import Sequence

from sources.mysql.snapshot.tables import SnapshotTable
from sources.mysql.snapshot.values import quote_literal, select_value


def select_behind(table: SnapshotTable, after: Sequence[str] | None, where: str, rows: int) -> str:
    """The next rows in the order of the primary key. after: text forms of the key's values behind which they are, in
    the order of the relation's columns; None: from the first.
    """
    order = ", ".join(f"{_name_key_column(table, at)}{' DESC' * one.descending}" for at, one in enumerate(table.key))
    bound = "" if after is None else _make_bound(table, after)
    # The planner would rather sort a table than walk through its index. With a condition it may know a better one.
    index = "" if where else " FORCE INDEX (PRIMARY)"
    conditions = _join_conditions(where, bound)
    return f"{_select_columns(table)} FROM {table.name}{index}{conditions} ORDER BY {order} LIMIT {rows}"


def select_keys(table: SnapshotTable, keys: Sequence[Sequence[str]], where: str) -> str:
    """The rows with these keys. keys: at least one, each as select_behind has `after`."""
    names = ", ".join(_name_key_column(table, at) for at in range(len(table.key)))
    values = ", ".join(f"({', '.join(_quote_literals(table, key))})" for key in keys)
    return f"{_select_columns(table)} FROM {table.name}{_join_conditions(where, f'({names}) IN ({values})')}"


def select_nothing(table: SnapshotTable) -> str:
    """No row. A transaction that has asked for it has the lock that keeps ALTER, TRUNCATE and DROP out to its end."""
    return f"SELECT 1 FROM {table.name} LIMIT 0"


def select_condition(table: SnapshotTable, where: str) -> str:
    """The rows of which a condition is true."""
    return f"SELECT 1 FROM {table.name}{_join_conditions(where, '')}"


def _select_columns(table: SnapshotTable) -> str:
    return f"SELECT {', '.join(select_value(column, table.name) for column in table.columns)}"


def _join_conditions(where: str, bound: str) -> str:
    # A condition may end with a comment, which lasts to the end of its line.
    there = " AND ".join(filter(None, [f"({where}\n)" if where else "", f"({bound})" if bound else ""]))
    return f" WHERE {there}" if there else ""


def _name_key_column(table: SnapshotTable, at: int) -> str:
    return f"{table.name}.{table.columns[table.key[at].column].quoted}"


def _quote_literals(table: SnapshotTable, key: Sequence[str]) -> list[str]:
    """Of a key's values, in the order of the index."""
    places = dict(zip(sorted(one.column for one in table.key), key, strict=True))
    return [quote_literal(places[one.column], table.columns[one.column]) for one in table.key]


def _make_bound(table: SnapshotTable, after: Sequence[str]) -> str:
    """True of the rows behind a key. Rows as such are not compared by ranges of the index (MySQL 8.4 Reference Manual,
    "Range Optimization of Row Constructor Expressions").
    """
    last = _quote_literals(table, after)
    names = [_name_key_column(table, at) for at in range(len(table.key))]
    parts = []
    for at, one in enumerate(table.key):
        equal = [f"{name} = {value}" for name, value in zip(names[:at], last[:at], strict=True)]
        parts.append(" AND ".join([*equal, f"{names[at]} {'<' if one.descending else '>'} {last[at]}"]))
    return " OR ".join(f"({part})" for part in parts) if len(parts) > 1 else parts[0]
