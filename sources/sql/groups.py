"""Looks at many tables, some tens in one transaction: a look has a price of its own, however little it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from sqlalchemy.engine import Connection

from sources.sql.database import Database
from sources.sql.names import TableName

GROUP_TABLES = 50
"""Tables of a look. All their statements together must not take longer than `timeout`."""


class Named(Protocol):
    """name: in the database. id: for messages."""

    @property
    def name(self) -> TableName: ...

    @property
    def id(self) -> str: ...


One = TypeVar("One", bound=Named)
Table = TypeVar("Table")
Found = TypeVar("Found")


def split_in_groups(tables: Sequence[Table]) -> Iterator[Sequence[Table]]:
    """Groups of tables, in their order."""
    return (tables[at : at + GROUP_TABLES] for at in range(0, len(tables), GROUP_TABLES))


def look_at_each(
    database: Database, tables: Sequence[One], work: Callable[[Connection, One], Found], doing: str
) -> Iterator[Found]:
    """What `work` gives for each table. doing: what is done, for messages, which name the table behind it."""
    for group in split_in_groups(tables):
        yield from database.look(*_make_work(database, group, work, doing))


def _make_work(
    database: Database, group: Sequence[One], work: Callable[[Connection, One], Found], doing: str
) -> tuple[Callable[[Connection], list[Found]], Callable[[], str]]:
    at = [group[0]]

    def look_at_group(connection: Connection) -> list[Found]:
        found = []
        with database.kind.reflect(connection, [one.name for one in group]):
            for one in group:
                at[0] = one
                found.append(work(connection, one))
                connection.rollback()  # a lock on one table is not held while another one is waited for
        return found

    return look_at_group, lambda: f"{doing} {at[0].id}"
