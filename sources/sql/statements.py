"""The statements that read a table in the order of its key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from sources.sql.engines.engine import Described
from sources.sql.names import TableName
from sources.sql.options import TableOptions
from sources.sql.settling import Key

_BIND = re.compile(r"(?<![:\w\x5c]):(\w+)(?!:)")
"""What SQLAlchemy's text takes for a parameter."""

_ESCAPED = re.compile(r"\x5c(?=:[\w$]*(?![:\w$]))")
"""The backslash that it takes away."""

_QUERY_ALIAS = "polled"


def make_query(options: TableOptions) -> sa.TextClause:
    """The option `query`, as a part of FROM; `()` where there is none."""
    return sa.text(f"({_escape_parameters(options.query)}) {_QUERY_ALIAS}")


class Statements:
    """Of one table or query, for one shape of it.

    columns: all that it has. key: those that it is read by, the first one decides first. compares_rows: whether
    (a, b) > (x, y) finds an index at the server.
    """

    def __init__(
        self,
        options: TableOptions,
        name: TableName,
        columns: Sequence[Described],
        key: Sequence[Described],
        compares_rows: bool,
    ) -> None:
        clauses: list[sa.ColumnClause[Any]] = [sa.column(one.name) for one in columns]
        if options.query:
            self._from: sa.FromClause = (
                sa.text(_escape_parameters(options.query)).columns(*clauses).subquery(_QUERY_ALIAS)
            )
        else:
            self._from = sa.table(name.table, *clauses, schema=name.schema or None)
        self._where = options.where
        self._key = key
        self._key_columns = [self._from.c[one.name] for one in key]
        self._compares_keys = compares_rows or len(key) == 1

    def select_largest(self, cursor: Key | None, to: Key | None) -> sa.Select[Any]:
        """The largest key behind the cursor, up to another one."""
        return self._select_last(cursor, to).limit(1)

    def select_last(self, most: int) -> sa.Select[Any]:
        """The largest keys, the largest first."""
        return self._select_last(None, None).limit(most)

    @cached_property
    def largest(self) -> sa.ScalarSelect[Any]:
        """The largest key of one column, as a value among others."""
        return self.select_last(1).scalar_subquery()

    def select_smallest(self) -> sa.Select[Any]:
        """The smallest key."""
        return self._select_keys().order_by(*self._key_columns).limit(1)

    def select_behind(self, cursor: Key) -> sa.Select[Any]:
        """Any key behind the cursor."""
        return self._select_keys().where(*self._make_range_conditions(cursor)).limit(1)

    def select_at(self, cursor: Key | None, to: Key, place: int) -> sa.Select[Any]:
        """The key of the row at this place (from 0) behind the cursor, up to another one."""
        chosen = self._select_keys().where(*self._make_range_conditions(cursor, to))
        return chosen.order_by(*self._key_columns).offset(place).limit(1)

    def select_at_key(self, key: Key) -> sa.Select[Any]:
        """Any two rows that have this key."""
        chosen = self._select_ones().where(self._make_equal_condition(key), *self._make_key_conditions())
        return chosen.where(*self._make_chosen_conditions()).limit(2)

    def select_endless(self) -> sa.Select[Any] | None:
        """Any row whose key begins with what no value comes behind; None where its type has no such value."""
        endless = self._key[0].endless
        return None if endless is None else self._select_ones().where(self._key_columns[0] >= endless).limit(1)

    def count(self, cursor: Key | None, most: int) -> sa.Select[Any]:
        """How many rows are behind the cursor; `most` if there are more."""
        chosen = self._select_ones().where(*self._make_range_conditions(cursor))
        return sa.select(sa.func.count()).select_from(chosen.limit(most).subquery())

    def try_conditions(self, cursor: Key | None) -> sa.Select[Any]:
        """No row, by the option `where` and behind the cursor."""
        chosen = self._select_ones().where(*self._make_range_conditions(cursor))
        return chosen.where(*self._make_chosen_conditions()).limit(0)

    def select_rows(
        self, columns: Sequence[Described], cursor: Key | None, to: Key, most: int, skipped: Sequence[Key]
    ) -> sa.Select[Any]:
        """Columns and then keys of rows behind the cursor, up to a key, at most so many, without those that have a key
        of `skipped`.
        """
        selected = [one.select(self._from.c[one.name]).label(f"c{at}") for at, one in enumerate((*columns, *self._key))]
        chosen = sa.select(*selected).select_from(self._from)
        chosen = chosen.where(*self._make_range_conditions(cursor, to), *self._make_key_conditions())
        chosen = chosen.where(*self._make_chosen_conditions())
        if skipped:
            chosen = chosen.where(self._make_other_condition(skipped))
        return chosen.order_by(*self._key_columns).limit(most)

    def _select_ones(self) -> sa.Select[Any]:
        return sa.select(sa.literal_column("1").label("one")).select_from(self._from)

    def _select_keys(self) -> sa.Select[Any]:
        """Keys; without rows in which a part of it is NULL, which some servers take for the largest value, or infinity,
        behind which nothing else would be seen.
        """
        pairs = zip(self._key, self._key_columns, strict=True)
        keys = [one.select(column).label(f"c{at}") for at, (one, column) in enumerate(pairs)]
        return sa.select(*keys).select_from(self._from).where(*self._make_key_conditions())

    def _select_last(self, cursor: Key | None, to: Key | None) -> sa.Select[Any]:
        chosen = self._select_keys().where(*self._make_range_conditions(cursor, to))
        return chosen.order_by(*(one.desc() for one in self._key_columns))

    def _make_range_conditions(self, cursor: Key | None, to: Key | None = None) -> list[sa.ColumnElement[bool]]:
        """That a key lies behind the cursor, and not behind another one; None for no limit."""
        behind = [] if cursor is None else [self._make_behind_condition(cursor)]
        return behind if to is None else [*behind, self._make_up_to_condition(to)]

    def _make_behind_condition(self, cursor: Key) -> sa.ColumnElement[bool]:
        if self._compares_keys:
            behind: sa.ColumnElement[bool] = self._make_key_expression() > self._bind_key(cursor)
            return behind
        return self._compare(cursor, ahead=True)

    def _make_up_to_condition(self, to: Key) -> sa.ColumnElement[bool]:
        if self._compares_keys:
            up_to: sa.ColumnElement[bool] = self._make_key_expression() <= self._bind_key(to)
            return up_to
        return sa.or_(self._compare(to, ahead=False), self._make_equal_condition(to))

    def _make_key_expression(self) -> sa.ColumnElement[Any]:
        return self._key_columns[0] if len(self._key) == 1 else sa.tuple_(*self._key_columns)

    def _bind_key(self, key: Key) -> Any:
        bound = self._bind_key_values(key)
        return bound[0] if len(key) == 1 else sa.tuple_(*bound)

    def _bind_key_values(self, key: Key) -> list[sa.ColumnElement[Any]]:
        return [one.bind(value) for one, value in zip(self._key, key, strict=True)]

    def _compare(self, key: Key, ahead: bool) -> sa.ColumnElement[bool]:
        """(a, b) > (x, y) without row values, for servers that have none or find no index for them."""
        columns, bound = self._key_columns, self._bind_key_values(key)
        cases = []
        for at, (column, value) in enumerate(zip(columns, bound, strict=True)):
            equal = [one == of for one, of in zip(columns[:at], bound[:at], strict=True)]
            cases.append(sa.and_(*equal, column > value if ahead else column < value))
        return sa.and_(columns[0] >= bound[0] if ahead else columns[0] <= bound[0], sa.or_(*cases))

    def _make_chosen_conditions(self) -> list[sa.TextClause]:
        """The option `where`, if it is given. It may end in a comment."""
        return [sa.text(f"({_escape_parameters(self._where)}\n)")] if self._where else []

    def _make_key_conditions(self) -> list[sa.ColumnElement[bool]]:
        """That no part of a key is NULL, or behind all that can come."""
        pairs = list(zip(self._key, self._key_columns, strict=True))
        known = [column.is_not(None) for one, column in pairs if one.nullable]
        return [*known, *(column < one.endless for one, column in pairs if one.endless is not None)]

    def _make_other_condition(self, keys: Sequence[Key]) -> sa.ColumnElement[bool]:
        """That a row has none of these keys."""
        if len(self._key) == 1:
            return self._key_columns[0].not_in([self._bind_key(one) for one in keys])
        return sa.and_(*(sa.not_(self._make_equal_condition(one)) for one in keys))

    def _make_equal_condition(self, key: Key) -> sa.ColumnElement[bool]:
        return sa.and_(
            *(column == of for column, of in zip(self._key_columns, self._bind_key_values(key), strict=True))
        )


def _escape_parameters(sql: str) -> str:
    """SQL in which nothing is a parameter."""
    return _BIND.sub(r"\\:\1", _ESCAPED.sub(r"\\\\", sql))
