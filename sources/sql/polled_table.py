"""A table that is polled: the statements, and what is known of its columns and its key."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from psql_streamer.errors import SourceRefused
from psql_streamer.model import Column, Relation, TextType
from psql_streamer.pgtypes.builtin import OIDS
from sources.sql import values
from sources.sql.basis import Basis, KeyType
from sources.sql.engines.engine import AnyEngine, Described, make_type
from sources.sql.engines.table_keys import TableKeys
from sources.sql.names import TableName
from sources.sql.options import TableOptions
from sources.sql.row_sizes import READ_BYTES, RowsTooWide, fetch_rows
from sources.sql.settling import Key
from sources.sql.statements import Statements, make_query
from sources.sql.values import NO_UTF8, Misfit, render_value

_INTEGER = "-?[0-9]+"
_INTEGERS = re.compile(f"{_INTEGER}(?: {_INTEGER})*")

_MOMENTS = {OIDS["date"], OIDS["timestamp"], OIDS["timestamptz"]}
_TIMES = _MOMENTS | {OIDS["time"], OIDS["timetz"]}


@dataclass(frozen=True, slots=True)
class Keyed:
    """What tells the rows of a table apart. key: the columns that it is read by. identity: those of events' keys."""

    key: tuple[str, ...]
    identity: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table in one shape, in the order of their keys. key: its columns, each with a value for each row.

    cut: whether there are more of those that were asked for, because these hold enough.
    """

    relation: Relation
    arrays: tuple[pa.Array, ...]
    key: Sequence[Sequence[int | str]]
    times: pa.Array | None
    cut: bool = False

    def __len__(self) -> int:
        return len(self.key[0])

    @property
    def last(self) -> Key:
        """The key of the last row."""
        return tuple(column[-1] for column in self.key)


class ShapeChanged(Exception):
    """The columns are not those that were asked for."""


class PolledTable:
    """One entry of `tables`. Its methods run in a transaction of their caller's.

    default_schema: that of a table whose name has none.
    """

    def __init__(self, options: TableOptions, engine: AnyEngine, default_schema: str) -> None:
        self.options = options
        self.name = TableName.parse(options.called)
        self.id = str(TableName(self.name.schema or default_schema, self.name.table))
        self.schema = self.name.schema or default_schema
        self._engine = engine
        self._described: tuple[Described, ...] = ()
        self._keys = TableKeys()
        self._keyed = Keyed(options.key, options.key)
        self._statements = self._make_statements()

    @property
    def is_query(self) -> bool:
        """Whether it is a query, of which the database says nothing but its columns."""
        return bool(self.options.query)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that it is read by."""
        return self._keyed.key

    @property
    def has_integer_key(self) -> bool:
        """Whether its key is one column of whole numbers."""
        return len(self.key) == 1 and self._find(self.key[0]).is_integer

    @property
    def has_time_in_key(self) -> bool:
        """Whether a part of its key is a time, which is not given when the row is written."""
        return any(self._find(name).type.like.oid in _TIMES for name in self.key)

    @property
    def basis(self) -> Basis:
        """What its keys rest on."""
        types = () if self.is_query else tuple(self._make_key_type(self._find(name)) for name in self.key)
        return Basis(self.key, types, self._keys.identity)

    def convert_key(self, key: Key) -> Key:
        """A key of a position, whose integers may have been texts."""
        return tuple(
            int(value) if self._find(name).is_integer else value for name, value in zip(self.key, key, strict=True)
        )

    def look(self, connection: Connection) -> Relation:
        """Ask for its columns and its key; its shape now, version 1. SourceRefused when it cannot be read."""
        self._described = tuple(self._describe(connection))
        self._keys = self._read_keys(connection)
        self._keyed = self._find_key()
        for name in (*self.key, *self.options.columns, *self.options.text, *filter(None, [self.options.timestamp])):
            self._find(name)
        for name in self.key:
            self._require_order(self._find(name))
        if self.options.timestamp:
            self._require_moments(self._find(self.options.timestamp))
        self._statements = self._make_statements()
        return self._make_shape()

    def require_unique_key(self) -> None:
        """SourceRefused when several rows may have the same key, for a batch could end between them, or when the
        database shows only some rows.
        """
        if self._keys.problem:
            raise SourceRefused(self._keys.problem, self._keys.remedy)
        if self._is_without_keys or self._keys.cover(self.key):
            return
        invalid = ", ".join(self._keys.invalid)
        raise SourceRefused(
            f"table {self.id}: its key ({', '.join(self.key)}) is not unique, and rows with equal keys could be "
            "left out",
            f"index {invalid} is not valid: remove the rows that are there twice and REINDEX it, or name another key"
            if invalid
            else "add the columns of the primary key to it; an index that compares texts by another collation than the "
            "column's makes it unique only if there are no texts that are equal by the column's",
        )

    @property
    def _is_without_keys(self) -> bool:
        """Whether the database knows no keys of it: the configuration alone says that no two rows have the same one."""
        return self.is_query or self._keys.is_view

    def has_the_same_keys(self, connection: Connection) -> bool:
        """Whether all is as it was in the last look, of what a change could make rows be left out."""
        return self._read_keys(connection) == self._keys

    def has_keys(self, found: TableKeys) -> bool:
        """The same of what somebody else has asked for."""
        return found == self._keys

    def has_index(self, connection: Connection) -> bool:
        """Whether an index begins with the key, so that a poll need not read the whole table."""
        if self._is_without_keys:
            return True  # nobody can say
        inspector, place = self._engine.inspect(connection), (self.name.table, self.name.schema or None)
        leading: list[Sequence[str | None]] = [inspector.get_pk_constraint(*place)["constrained_columns"]]
        leading += [one["column_names"] for one in inspector.get_unique_constraints(*place)]
        leading += [one["column_names"] for one in inspector.get_indexes(*place)]
        return any(tuple(columns[: len(self.key)]) == self.key for columns in leading)

    def find_sequence_problem(self, connection: Connection) -> str:
        """Why the values of its key are not given in ascending order; empty where they are, or nobody says."""
        return "" if self.is_query else self._engine.find_sequence_problem(connection, self.name, self.key)

    def list_nullable_key_columns(self) -> list[str]:
        """Columns of the key that may be NULL."""
        return [] if self.is_query else [name for name in self.key if self._find(name).nullable]

    def has_endless_keys(self, connection: Connection) -> bool:
        """Whether there are rows whose key begins with what no value comes behind."""
        statement = self._statements.select_endless()
        if statement is None or self._is_without_keys or not self.has_index(connection):
            return False  # it is not worth reading a whole table
        return connection.execute(statement).first() is not None

    def require_start(self, start: Sequence[int | str]) -> None:
        """SourceRefused when no row can have this key."""
        if len(start) != len(self.key):
            raise SourceRefused(
                f"startAt has {len(start)} values, and the key of {self.id} is {', '.join(self.key)}",
                "give a value for each column of the key",
            )
        if self.has_integer_key and not isinstance(start[0], int):
            raise SourceRefused(
                f"startAt of {self.id} is no whole number, and its key is",
                'write "beginning", "now" or a number without quotes',
            )

    def find_largest(self, connection: Connection, cursor: Key | None = None, to: Key | None = None) -> Key | None:
        """The largest key behind the cursor, up to another one; None when there is none."""
        return self._read_key(connection, self._statements.select_largest(cursor, to))

    def find_last_keys(self, connection: Connection, most: int) -> list[Key]:
        """The largest keys, the largest first."""
        with connection.execute(self._statements.select_last(most)) as result:
            found = result.cursor.fetchall() if result.cursor is not None else []
        return [tuple(map(self._convert_key_value, self.key, row)) for row in found]

    def make_largest_key(self) -> sa.ScalarSelect[Any] | None:
        """The largest key, as a value among others; None where it is more than one number."""
        if self.is_query or not self.has_integer_key:
            return None
        return self._statements.largest

    def find_smallest(self, connection: Connection) -> Key | None:
        """The smallest key; None when there are no rows."""
        return self._read_key(connection, self._statements.select_smallest())

    def has_rows_behind(self, connection: Connection, cursor: Key) -> bool:
        """Whether there are larger keys than this one."""
        return self._read_key(connection, self._statements.select_behind(cursor)) is not None

    def find_key_at(self, connection: Connection, cursor: Key | None, to: Key, place: int) -> Key | None:
        """The key of the row at this place (from 0) behind the cursor; None when there are not so many up to `to`."""
        return self._read_key(connection, self._statements.select_at(cursor, to, place))

    def count(self, connection: Connection, cursor: Key | None, most: int) -> int:
        """How many rows are behind the cursor; `most` if there are more."""
        return int(connection.execute(self._statements.count(cursor, most)).scalar_one())

    def try_conditions(self, connection: Connection, cursor: Key | None) -> None:
        """Have the database say whether it takes `where`, and a key to start behind; no row is read."""
        connection.execute(self._statements.try_conditions(cursor)).close()

    def make_rows_statement(
        self, cursor: Key | None, to: Key, most: int, skipped: Sequence[Key] = ()
    ) -> sa.Select[Any]:
        """Rows behind the cursor, up to a key, at most so many, without those that have a key of `skipped`."""
        return self._statements.select_rows([self._find(name) for name in self._names], cursor, to, most, skipped)

    def read_rows(
        self, connection: Connection, cursor: Key | None, to: Key, most: int, skipped: Sequence[Key] = ()
    ) -> Rows | None:
        """Rows behind the cursor, up to a key; None for none. Fewer than there are when they hold enough bytes.

        ShapeChanged when columns or keys are others by now; RowsTooWide when fewer rows must be asked for.
        """
        at_once = self._engine.count_rows_at_once(connection, None if self.is_query else self.name, most)
        statement = self.make_rows_statement(cursor, to, most, skipped)
        # Rows that a driver does not hold, so that it can be left alone when there are enough.
        with connection.execute(statement, execution_options={"stream_results": at_once < most}) as result:
            found, cut = fetch_rows(result.fetchmany, at_once, READ_BYTES)
            if cut and at_once < most and not self._engine.leave_rows(connection):
                raise RowsTooWide(len(found))
        if not found:
            return None
        # What was read holds a lock, or a snapshot, in which the columns cannot change.
        before = self._described
        if not self.is_query and (
            [(one.name, one.type) for one in self._describe(connection)] != [(one.name, one.type) for one in before]
            or (self._engine.keys_are_near and not self.has_the_same_keys(connection))
        ):
            raise ShapeChanged
        rows = self._make_rows(list(zip(*found, strict=True)), cut)
        if self._is_without_keys:
            self._require_other_keys(connection, rows, ends=len(found) < most and not cut)
        return rows

    def _require_other_keys(self, connection: Connection, rows: Rows, ends: bool) -> None:
        """SourceRefused when several rows have the same key, of which one was read. ends: whether no row is left."""
        keys = zip(*rows.key, strict=True)
        twice = next((one for one, following in pairwise(keys) if one == following), None)
        if twice is None and not ends and len(connection.execute(self._statements.select_at_key(rows.last)).all()) > 1:
            twice = rows.last
        if twice is None:
            return
        key = ", ".join(f"{name} {value}" for name, value in zip(self.key, twice, strict=True))
        raise SourceRefused(
            f"table {self.id}: several rows have the key {key}, and rows with equal keys could be left out",
            "add columns to its key that tell them apart",
        )

    def _make_rows(self, columns: Sequence[Sequence[Any]], cut: bool) -> Rows:
        names = self._names
        keys = [
            self._convert_key_values(name, column) for name, column in zip(self.key, columns[len(names) :], strict=True)
        ]
        arrays = tuple(
            self._render(self._find(name), column, keys) for name, column in zip(names, columns, strict=False)
        )
        times = None
        if self.options.timestamp in names:
            times = arrays[names.index(self.options.timestamp)]
        return Rows(self._make_shape(), arrays, keys, times, cut)

    def _render(self, column: Described, given: Sequence[Any], keys: Sequence[Sequence[int | str]]) -> pa.Array:
        try:
            return column.render(given)
        except pa.ArrowCapacityError:
            raise SourceRefused(
                f"table {self.id}: column {column.name} has a value of more than 2 GiB, as text",
                "make the value smaller, or leave the column out with columns",
            ) from None
        except Misfit as misfit:
            key = ", ".join(f"{name} {values[misfit.row]}" for name, values in zip(self.key, keys, strict=True))
            # A text that is none cannot be given as text either.
            as_text = "" if misfit.kind == NO_UTF8 else f', or have the column given as text (text = ["{column.name}"])'
            raise SourceRefused(
                f"table {self.id}: column {column.name} of the row with {key} holds {misfit.kind}, and is declared "
                f"{column.type.native}",
                f"correct the row{as_text}, or leave it out with columns",
            ) from None

    @property
    def _names(self) -> tuple[str, ...]:
        """The columns that events have."""
        return self.options.columns or tuple(one.name for one in self._described)

    def _make_shape(self) -> Relation:
        columns = tuple(Column(name, self._find(name).type, name in self._keyed.identity) for name in self._names)
        return Relation(self.id, self.schema, self.name.table, columns)

    def _describe(self, connection: Connection) -> list[Described]:
        if self.is_query:
            found = self._engine.describe_query(connection, make_query(self.options))
        else:
            found = self._engine.describe(connection, self.name)
        return [_as_text(one) if one.name in self.options.text else one for one in found]

    def _make_statements(self) -> Statements:
        key = [self._find(name) for name in self.key] if self._described else []
        return Statements(self.options, self.name, self._described, key, self._engine.compares_rows)

    def _find(self, name: str) -> Described:
        for one in self._described:
            if one.name == name:
                return one
        raise SourceRefused(
            f"table {self.id} has no column {name}",
            f"correct its entry in tables: {_describe_columns(self._described)}",
        )

    def _read_keys(self, connection: Connection) -> TableKeys:
        return TableKeys() if self.is_query else self._engine.read_keys(connection, self.name)

    def _find_key(self) -> Keyed:
        if self.is_query:
            return Keyed(self.options.key, self.options.key)
        primary = self._keys.primary
        key = self.options.key or primary
        if not key:
            raise SourceRefused(
                f"table {self.id} has no primary key to read it by",
                'name columns that are unique and ascend: { table = "...", key = "..." }',
            )
        shown = set(self._names)
        return Keyed(key, primary if primary and set(primary) <= shown else key)

    def _make_key_type(self, column: Described) -> KeyType:
        collation = "" if column.is_integer else dict(self._keys.collations).get(column.name, "")
        return KeyType(column.type.native, column.is_integer, collation)

    def _require_moments(self, column: Described) -> None:
        if column.type.like.oid not in _MOMENTS or column.name not in self._names:
            raise SourceRefused(
                f"table {self.id}: {column.name}, which is {column.type.native}, cannot be the time of its events",
                "name a date or a timestamp among its columns, or take timestamp away",
            )

    def _require_order(self, column: Described) -> None:
        if column.name in self.options.text:
            raise SourceRefused(
                f"table {self.id}: {column.name} is a part of its key, and cannot be sent as text",
                "take it out of text, or name other columns as the key",
            )
        if not column.ordered:
            raise SourceRefused(
                f"table {self.id}: rows cannot be read in the order of {column.name}, which is {column.type.native}",
                "name other columns as its key: integers, texts, dates or decimals",
            )

    def _convert_key_values(self, name: str, column: Sequence[Any]) -> Sequence[int | str]:
        if self._find(name).is_integer:
            return self._convert_integers(name, column)
        return [value if isinstance(value, int | str) else self._make_key_text(name, value) for value in column]

    def _convert_integers(self, name: str, column: Sequence[Any]) -> list[int]:
        """SQLite stores in a column of integers whatever it is given: what is none is not taken for one."""
        if _INTEGERS.fullmatch(" ".join(map(str, column))):
            with contextlib.suppress(ValueError):  # of a text with several numbers
                return list(map(int, column))
        raise self._make_order_error(name, next(value for value in column if not re.fullmatch(_INTEGER, str(value))))

    def _make_key_text(self, name: str, value: Any) -> str:
        """What the database compares as the value. Of a query nobody says beforehand what a column holds."""
        if isinstance(value, float | bytes | bytearray | memoryview | None):
            raise self._make_order_error(name, value)
        return render_value(value)

    def _make_order_error(self, name: str, value: Any) -> SourceRefused:
        kind = {float: "floats", str: "texts", type(None): "NULL", Decimal: "decimals"}.get(type(value), "blobs")
        return SourceRefused(
            f"table {self.id}: rows cannot be read in the order of {name}, which holds {kind}",
            "correct its values, or name other columns as its key: integers, texts, dates or decimals",
        )

    def _read_key(self, connection: Connection, statement: sa.Select[Any]) -> Key | None:
        with connection.execute(statement) as result:
            row = result.cursor.fetchone() if result.cursor is not None else None
        return None if row is None else tuple(map(self._convert_key_value, self.key, row))

    def _convert_key_value(self, name: str, value: Any) -> int | str:
        return self._convert_key_values(name, (value,))[0]


def _as_text(column: Described) -> Described:
    return Described(
        column.name,
        TextType(column.type.native, make_type("text")),
        column.nullable,
        column.select,
        values.as_text,
        False,
    )


def _describe_columns(columns: Sequence[Described]) -> str:
    return "its columns are " + ", ".join(one.name for one in columns)
