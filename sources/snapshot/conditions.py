"""SQL conditions on the rows of a snapshot, which people write: what they must be in every dialect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from psql_streamer.errors import SourceRefused
from psql_streamer.snapshots import TableRequest
from psql_streamer.table_patterns import TablePatterns


def require_balanced(text: str, pieces: Iterable[str], quotes: Collection[str]) -> None:
    """ValueError unless the text stays within the parentheses that are put around it, and is a part of one statement.

    Whether it is a condition on the table's columns, the server says. Its last line may be a comment.

    pieces: of the text: names, strings, single characters; a comment between `/*` and `*/` by its beginning alone.
    quotes: those which as a piece of their own begin what does not end.
    """
    if not text.strip():
        raise ValueError("is empty: leave it out to read all rows")
    depth = 0
    for piece in pieces:
        if piece in quotes:
            raise ValueError(f"has a {piece} that is not closed")
        if piece in (";", "\0"):
            raise ValueError(f"has a {'semicolon' if piece == ';' else 'NUL'}: it must be one condition")
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if depth < 0:
            raise ValueError("closes a parenthesis that it does not open")
    if depth:
        raise ValueError("has a parenthesis that is not closed")


def require_conditions(where: Mapping[str, str], require: Callable[[str], None]) -> Mapping[str, str]:
    """ValueError where a name is no pattern, or `require` says it of a condition."""
    TablePatterns(where)
    for table, condition in where.items():
        try:
            require(condition)
        except ValueError as error:
            raise ValueError(f"the condition of {table} {error}") from None
    return where


def make_table_matcher(requested: Sequence[TableRequest], where: Mapping[str, str]) -> Callable[[str, str], str | None]:
    """(schema, table) -> the condition on the rows of a table that is asked for, empty for none; None for one that is
    not. No request stands for every table.

    where: name or pattern -> condition on a table whose request has none. Its entries need not be spelled as those
    that ask for the tables.
    """
    tables = TablePatterns({one.table: one.where for one in requested} or {"*.*": ""})
    conditions = TablePatterns(where)

    def match(schema: str, table: str) -> str | None:
        asked = tables.find(schema, table)
        if asked is None:
            return None
        condition = conditions.find(schema, table)
        return asked.value or (condition.value if condition is not None else "")

    return match


def require_requested(tables: Iterable[TableRequest], require: Callable[[str], None]) -> None:
    """SourceRefused where `require` raises ValueError for a condition, which comes from outside and must not reach out
    of the query."""
    for one in tables:
        try:
            require(one.where or "true")
        except ValueError as error:
            raise SourceRefused(f"the condition of {one.table} {error}", "write one SQL condition") from None
