"""SQL of what a chunk reads: the columns and rows of one table as the stream has them.

Tables are named with their schema, so that a condition that people write may name them too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sources.postgres.identifiers import quote_identifier
from sources.postgres.snapshot.tables import KeyColumn, Part, SnapshotTable

Quote = Callable[[str], str]
"""A text -> SQL of a literal."""


def select_behind(table: SnapshotTable, after: Sequence[str] | None, where: str, quote: Quote) -> list[str]:
    """SELECTs whose rows, one's behind the other's, are those behind a key, in the order of the key's index.

    after: text forms of the key's values in the order of the relation's columns; None: from the beginning. There is
    more than one SELECT where rows cannot be compared as such, and each of them finds its first row by the index.
    Behind the relation's columns come the numbers of the objects in list_name_columns.
    """
    order = ", ".join(_render_order(table, column) for column in table.key)
    bounds = (
        [""]
        if after is None
        else _render_bounds(table, dict(zip(sorted(_list_places(table)), after, strict=True)), quote)
    )
    numbers = (f"CAST({_name_column(table, column)} AS pg_catalog.oid)" for column in list_name_columns(table))
    columns = ", ".join([_render_columns(table, table.name), *numbers])
    select = f"SELECT {columns} FROM {_render_source(table)}"
    return [f"{select}{_render_conditions(table, where, bound)} ORDER BY {order}" for bound in bounds]


def list_name_columns(table: SnapshotTable) -> list[KeyColumn]:
    """The columns of the key whose values are objects: when rows are read on, a name may be another object's."""
    return [column for column in table.key if column.is_name]


def select_keys(table: SnapshotTable, keys: Sequence[Sequence[str]], where: str, quote: Quote) -> str:
    """A SELECT of the rows with these keys. keys: at least one, each as select_behind has `after`."""
    wanted, on = _render_wanted_keys(table, keys, quote, "DISTINCT ")
    # The table stands in a query of its own, where a condition's names are those of its columns first.
    return (
        f"SELECT found.* FROM {wanted} "
        f"CROSS JOIN LATERAL (SELECT {_render_columns(table, table.name)} FROM {_render_source(table)}"
        f"{_render_conditions(table, where, on)}) found"
    )


def select_gone(table: SnapshotTable, keys: Sequence[Sequence[str]], quote: Quote) -> str:
    """A SELECT of those of these keys that no streamed row has, in the order of the relation's columns. keys: as above.

    Their text forms are those of the server, whatever texts were given.
    """
    wanted, on = _render_wanted_keys(table, keys, quote)
    names = {column.column: f"key{at}" for at, column in enumerate(table.key)}
    columns = ", ".join(f"{_name_wanted_keys(table)}.{names[place]}" for place in sorted(names))
    streamed = f"{_render_source(table)}{_render_conditions(table, '', on)}"
    return f"SELECT {columns} FROM {wanted} WHERE NOT EXISTS (SELECT FROM {streamed})"


def _render_wanted_keys(
    table: SnapshotTable, keys: Sequence[Sequence[str]], quote: Quote, distinct: str = ""
) -> tuple[str, str]:
    """Keys as a table for FROM, and the condition that a row has one of them."""
    places = sorted(_list_places(table))
    values = dict(zip(places, zip(*keys, strict=True), strict=True))
    arrays = ", ".join(
        f"unnest(ARRAY[{', '.join(map(quote, values[column.column]))}]::pg_catalog.text[])" for column in table.key
    )
    names = [f"key{at}" for at in range(len(table.key))]
    typed = ", ".join(
        f"{_add_collation(f'CAST({name} AS {column.type})', column)} AS {name}"
        for name, column in zip(names, table.key, strict=True)
    )
    alias = _name_wanted_keys(table)
    wanted = f"(SELECT {distinct}{typed} FROM ROWS FROM ({arrays}) AS given({', '.join(names)})) {alias}"
    return wanted, " AND ".join(
        f"{_render_value(table, column)} {column.equal} {alias}.{name}"
        for name, column in zip(names, table.key, strict=True)
    )


def _name_wanted_keys(table: SnapshotTable) -> str:
    """Another one than the table's, which would hide it."""
    return "wanted_keys" if table.relation.table == "wanted" else "wanted"


def select_places(table: SnapshotTable, part: Part, after: str, before: str, where: str) -> str:
    """A SELECT of the rows of a part between two places, in their order, with the place as the last column.

    after, before: `(page,item)`, both excluded; an empty `before`: up to the end, however far it has moved.
    """
    alias = quote_identifier(table.relation.table)
    bounds = f"{alias}.ctid > '{after}'::pg_catalog.tid"
    bounds += f" AND {alias}.ctid < '{before}'::pg_catalog.tid" if before else ""
    columns = ", ".join(filter(None, [_render_columns(table, alias), f"{alias}.ctid"]))
    conditions = _render_conditions(table, where, bounds)
    return f"SELECT {columns} FROM ONLY {part.name} AS {alias}{conditions} ORDER BY {alias}.ctid"


def select_all(table: SnapshotTable) -> str:
    """A SELECT of all rows, in any order."""
    return (
        f"SELECT {_render_columns(table, table.name)} FROM {_render_source(table)}{_render_conditions(table, '', '')}"
    )


def select_condition(table: SnapshotTable, where: str) -> str:
    """A SELECT of the rows of which a condition is true, without columns."""
    return f"SELECT FROM {_render_source(table)}{_render_conditions(table, where, '')}"


def _render_columns(table: SnapshotTable, name: str) -> str:
    return ", ".join(f"{name}.{quote_identifier(column.name)}" for column in table.relation.columns)


def _render_source(table: SnapshotTable) -> str:
    return f"ONLY {table.name}" if table.only else table.name


def _render_conditions(table: SnapshotTable, where: str, bound: str) -> str:
    # A condition may end with a comment, which lasts to the end of its line.
    given = [f"({table.row_filter})" if table.row_filter else "", f"({where}\n)" if where else "", bound]
    there = " AND ".join(filter(None, given))
    return f" WHERE {there}" if there else ""


def _list_places(table: SnapshotTable) -> list[int]:
    return [column.column for column in table.key]


def _render_value(table: SnapshotTable, column: KeyColumn) -> str:
    name = _name_column(table, column)
    # The server finds the operators of an enum for none of its domains.
    return f"CAST({name} AS {column.type})" if column.labels else _add_collation(name, column)


def _name_column(table: SnapshotTable, column: KeyColumn) -> str:
    return f"{table.name}.{quote_identifier(table.relation.columns[column.column].name)}"


def _add_collation(value: str, column: KeyColumn) -> str:
    return f"{value} COLLATE {column.collation}" if column.collation else value


def _render_order(table: SnapshotTable, column: KeyColumn) -> str:
    nulls = f"NULLS {'FIRST' if column.nulls_first else 'LAST'}"
    if column.labels:
        # By the order that an enum has of itself: the index has the order of the column, not that of a cast.
        return f"{_name_column(table, column)} {'DESC' if column.descending else 'ASC'} {nulls}"
    using = column.greater if column.descending else column.less
    return f"{_render_value(table, column)} USING {using} {nulls}"


def _render_bounds(table: SnapshotTable, after: dict[int, str], quote: Quote) -> list[str]:
    """Conditions that are true of the rows behind a key, each of other rows, the nearest first."""
    values = [_render_value(table, column) for column in table.key]
    last = [f"CAST({quote(after[column.column])} AS {column.type})" for column in table.key]
    behind = [column.less if column.descending else column.greater for column in table.key]
    if len(set(behind)) == 1 and len({column.descending for column in table.key}) == 1:
        return [f"ROW({', '.join(values)}) {behind[0]} ROW({', '.join(last)})"]
    equal = [f"{value} {column.equal} {of}" for value, column, of in zip(values, table.key, last, strict=True)]
    return [" AND ".join([*equal[:at], f"{values[at]} {behind[at]} {last[at]}"]) for at in reversed(range(len(values)))]
