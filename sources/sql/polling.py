"""A poll: which tables have new rows that are settled, asked in groups of tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_not
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from psql_streamer.errors import SourceError, SourceRefused
from sources.sql.database import Database, StatementGivenUp, TookTooLong
from sources.sql.engines.engine import AnyEngine
from sources.sql.engines.table_keys import TableKeys
from sources.sql.groups import split_in_groups
from sources.sql.locked_tables import LockedTables
from sources.sql.settling import Key
from sources.sql.watched_table import WatchedTable


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows of a table behind its cursor. to: the largest key that is settled. first: the smallest one of all, where
    there is no cursor.
    """

    table: WatchedTable
    to: Key
    first: Key | None


class Poll:
    """Of tables of a database. One statement tells which tables of a group have other largest keys than were read; only
    these are looked at one by one. locked: tables that are left out for a while.
    """

    def __init__(self, database: Database, tables: Sequence[WatchedTable], locked: LockedTables) -> None:
        self._database = database
        self._locked = locked
        self._groups = [_Group(tables, database) for tables in split_in_groups(tables)]

    def find_new_rows(self, cursors: Mapping[str, Key | None]) -> Iterator[NewRows]:
        """Of each table that has settled ones."""
        for group in self._groups:
            tables = [table for table in group.tables if not self._locked.is_left_alone(table.id)]
            changed = group.find_changed(tables, cursors)
            yield from self._find_new_rows_of(changed, cursors)
            for table in tables:
                if table not in changed:
                    self._locked.note_read(table.id)

    def _find_new_rows_of(self, tables: Sequence[WatchedTable], cursors: Mapping[str, Key | None]) -> list[NewRows]:
        """A table that is locked is left alone, and the others are looked at once more, which changes nothing."""
        left = list(tables)
        while left:
            at = _Place()
            look = partial(self._find_settled, left, cursors, at)
            try:
                found = self._database.look(look, at.describe)
            except StatementGivenUp as error:
                if at.table is None:
                    raise
                self._locked.leave_alone(at.table.id, error, time.monotonic() - at.since)
                left.remove(at.table)
            except SourceRefused:
                if at.table is not None:
                    at.table.require_the_same_key()  # which says what happened, if it is the key
                raise
            else:
                for table in left:
                    self._locked.note_read(table.id)
                return found
        return []

    def _find_settled(
        self,
        tables: Sequence[WatchedTable],
        cursors: Mapping[str, Key | None],
        at: _Place,
        connection: Connection,
    ) -> list[NewRows]:
        newest: dict[str, Key | None] = {}
        for table in tables:
            at.move_to(table)
            newest[table.id] = table.find_newest(connection, cursors[table.id])
            connection.rollback()  # a lock on one table is not held while another one is waited for
        # Behind the largest keys: who took a smaller one holds a lock by then, or has ended.
        at.move_to(None)
        asked = [one for one in tables if one.asks_for_writers and (newest[one.id] is not None or one.pending)]
        writers = dict(
            zip(
                (table.id for table in asked),
                self._database.kind.find_writers_of(connection, [(one.name, one.table.key) for one in asked])
                if asked
                else (),
                strict=True,
            )
        )
        connection.rollback()
        found = []
        for table in tables:
            at.move_to(table)
            cursor = cursors[table.id]
            table.note_newest(newest[table.id], writers.get(table.id))
            if (to := table.find_settled(connection, cursor)) is not None:
                wanted = cursor is None and table.table.has_integer_key
                found.append(NewRows(table, to, table.table.find_smallest(connection) if wanted else None))
            connection.rollback()
        return found


class _Place:
    """Which table a look has come to, and when; None where it is about all of them."""

    def __init__(self) -> None:
        self.table: WatchedTable | None = None
        self.since = time.monotonic()

    def move_to(self, table: WatchedTable | None) -> None:
        """Go on to a table."""
        self.table, self.since = table, time.monotonic()

    def describe(self) -> str:
        """What is done there, for messages."""
        return "asking who writes" if self.table is None else f"looking for new rows in {self.table.id}"


class _Group:
    """Tables that are asked together. One by one after a failure, which then names the table that it is about."""

    def __init__(self, tables: Sequence[WatchedTable], database: Database) -> None:
        self.tables = tables
        self._database = database
        self._may_ask_together = database.kind.selects_without_table and len(tables) > 1
        self._together = self._may_ask_together
        self._asked: list[sa.ScalarSelect[Any]] = []
        self._statement: sa.Select[Any] = sa.select()

    def find_changed(self, tables: Sequence[WatchedTable], cursors: Mapping[str, Key | None]) -> Sequence[WatchedTable]:
        """Those of some of its tables that may have new rows or other keys, or were waited for."""
        largest = {table.id: one for table in tables if (one := table.table.make_largest_key()) is not None}
        asked = [table for table in tables if table.id in largest and not table.is_due]
        if not self._together or len(asked) < 2:
            self._together = self._may_ask_together
            return tables
        statement = self._make_statement([largest[table.id] for table in asked])
        due = [table for table in asked if table.are_keys_due]
        kind = self._database.kind
        what = f"looking for new rows in {asked[0].id} and {len(asked) - 1} other tables"
        try:
            found, keys = self._database.look(kind.make_impatient(partial(_look, statement, due, kind)), what)
        except TookTooLong:
            self._together = False
            raise
        except SourceError:
            if self._database.interrupted:
                raise
            return tables
        for table, known in zip(due, keys, strict=True):
            table.note_keys(known)
        pairs = zip(asked, found, strict=True)
        same = {table.id for table, key in pairs if _is_key(key, cursors[table.id]) and not table.are_keys_due}
        return [table for table in tables if table.id not in same]

    def _make_statement(self, asked: list[sa.ScalarSelect[Any]]) -> sa.Select[Any]:
        """One for all. To make it, and have it compiled, takes far longer than to run it; most polls ask the same."""
        if len(asked) != len(self._asked) or any(map(is_not, asked, self._asked)):
            self._asked = asked
            self._statement = sa.select(*(one.label(f"t{at}") for at, one in enumerate(asked)))
        return self._statement


def _look(
    statement: sa.Select[tuple[object, ...]], due: Sequence[WatchedTable], kind: AnyEngine, connection: Connection
) -> tuple[Sequence[object], Sequence[TableKeys]]:
    """The largest keys; then, while what was read holds a lock on the tables, of some of them what their keys are."""
    found = tuple(connection.execute(statement).one())
    return found, kind.read_keys_of(connection, [table.name for table in due]) if due else ()


def _is_key(found: object, cursor: Key | None) -> bool:
    """Whether a driver's value is the key. A driver may give numbers as texts."""
    return found is None if cursor is None else str(found) == str(cursor[0])
