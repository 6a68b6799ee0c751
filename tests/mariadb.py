"""A fresh schema on a MySQL or MariaDB server for a test, and the ways a test talks to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql


@dataclass(frozen=True, slots=True)
class Schema:
    """dsn: of the account that may do everything. version: (10, 11)."""

    name: str
    host: str
    port: int
    version: tuple[int, int]

    @property
    def dsn(self) -> str:
        """As a source's `dsn` takes it."""
        return f"mysql://root@{self.host}:{self.port}/"

    @property
    def on_mysql(self) -> bool:
        """Whether the server is MySQL and no MariaDB."""
        return "mariadb" not in str(self.value("SELECT VERSION()")).lower()

    def execute(self, *statements: str) -> None:
        """Run statements in one session, each a transaction of its own."""
        with self.session() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def transaction(self, *statements: str) -> None:
        """Run statements in one transaction."""
        self.execute("START TRANSACTION", *statements, "COMMIT")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a SELECT."""
        with self.session() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def value(self, sql: str) -> Any:
        """The one value of a SELECT."""
        [(value,)] = self.query(sql)
        return value

    @contextmanager
    def session(self) -> Iterator[Any]:
        """A cursor with autocommit, in the schema; the connection is closed at the end."""
        with (
            pymysql.connect(
                host=self.host, port=self.port, user="root", database=self.name, autocommit=True, charset="utf8mb4"
            ) as connection,
            connection.cursor() as cursor,
        ):
            yield cursor


def new_schema(host: str, port: int, version: tuple[int, int], name: str) -> Schema:
    """A schema that did not exist. It is not dropped: DROP DATABASE refuses one with files that a crash has left."""
    with pymysql.connect(host=host, port=port, user="root", autocommit=True) as server, server.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    return Schema(name, host, port, version)


@contextmanager
def fresh_schema(host: str, port: int, version: tuple[int, int], name: str) -> Iterator[Schema]:
    """A schema that did not exist; afterwards it is dropped."""
    made = new_schema(host, port, version, name)
    try:
        yield made
    finally:
        with pymysql.connect(host=host, port=port, user="root", autocommit=True) as server, server.cursor() as cursor:
            cursor.execute(f"DROP DATABASE `{name}`")
