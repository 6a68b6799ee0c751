"""Tables that gh-ost and pt-online-schema-change alter: a shadow table is filled beside writers and takes the name."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pymysql
import pytest

from psql_streamer.model import Batch
from tests.beside import run_beside
from tests.mariadb import Schema
from tests.mysql_source import fold, identities, read_all, seen, streaming

ROWS, CHUNK = 300, 40
_DEADLOCK = 1213
NEW_SHAPE = "ADD COLUMN status VARCHAR(10) NOT NULL DEFAULT 'new' FIRST, MODIFY id BIGINT NOT NULL, DROP COLUMN old"


class Tool(NamedTuple):
    """shadow, left: what the new table is called before, and the old one afterwards. beside: tables of its own.

    exclude: what the documentation says.
    """

    shadow: str
    left: str
    beside: tuple[str, ...]
    exclude: tuple[str, ...]


TOOLS = {
    "gh-ost": Tool("_orders_gho", "_orders_del", ("_orders_ghc",), ("_*_gho", "_*_ghc", "_*_del")),
    "pt-online-schema-change": Tool("_orders_new", "_orders_old", (), ("_*_new", "_*_old")),
}


def try_again(cursor: Any, statement: str) -> None:
    """Until it is no victim of a deadlock with the copying."""
    while True:
        try:
            cursor.execute(statement)
            return
        except pymysql.err.OperationalError as error:
            if error.args[0] != _DEADLOCK:
                raise


@contextmanager
def writing(schema: Schema) -> Iterator[None]:
    """Two sessions that change `orders` all the time, in statements that both shapes understand."""

    def write(seed: int, ended: threading.Event) -> None:
        chance, number = random.Random(seed), seed
        with schema.session() as cursor:
            while not ended.wait(0.001):
                number += 2
                one = chance.randrange(ROWS)
                statements = [
                    f"INSERT INTO orders (id, note) VALUES ({1000 + number}, 'n{number}')",
                    f"UPDATE orders SET note = 'u{number}' WHERE id = {one}",
                    f"DELETE FROM orders WHERE id = {one}",
                ]
                try_again(cursor, chance.choice(statements))

    with run_beside(partial(write, 0), partial(write, 1)):
        yield


def fill_shadow(schema: Schema, tool: Tool) -> None:
    """A shadow table in the new shape, triggers that keep it up with the table, and the rows chunk by chunk."""
    shadow = tool.shadow
    remove = f"DELETE IGNORE FROM {shadow} WHERE id = OLD.id"
    put = f"REPLACE INTO {shadow} (id, note) VALUES (NEW.id, NEW.note)"
    schema.execute(
        *(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, hint VARCHAR(64))" for table in tool.beside),
        f"CREATE TABLE {shadow} LIKE orders",
        f"ALTER TABLE {shadow} {NEW_SHAPE}",
        f"CREATE TRIGGER osc_del AFTER DELETE ON orders FOR EACH ROW {remove}",
        f"CREATE TRIGGER osc_upd AFTER UPDATE ON orders FOR EACH ROW BEGIN {remove}; {put}; END",
        f"CREATE TRIGGER osc_ins AFTER INSERT ON orders FOR EACH ROW {put}",
    )
    with schema.session() as cursor:
        for first in range(0, 2000, CHUNK):
            chunk = f"SELECT id, note FROM orders WHERE id >= {first} AND id < {first + CHUNK} LOCK IN SHARE MODE"
            try_again(cursor, f"INSERT LOW_PRIORITY IGNORE INTO {shadow} (id, note) {chunk}")
            for table in tool.beside:
                cursor.execute(f"INSERT INTO {table} VALUES ({first + 1}, 'copied')")


def cut_over(schema: Schema, tool: Tool) -> None:
    """The shadow table takes the name."""
    schema.execute(f"RENAME TABLE orders TO {tool.left}, {tool.shadow} TO orders")
    schema.execute(*(f"DROP TRIGGER IF EXISTS osc_{what}" for what in ("del", "upd", "ins")))
    schema.execute(f"DROP TABLE {', '.join((tool.left, *tool.beside))}")


@pytest.mark.behaviour("B9")
@pytest.mark.parametrize("name", TOOLS)
def test_the_stream_of_a_table_goes_on_in_the_new_shape_and_nothing_of_the_shadow_appears(
    every_schema: Schema, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema, tool = every_schema, TOOLS[name]
    schema.execute("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(20), old INT DEFAULT 7)")
    caplog.set_level(logging.INFO)
    with streaming(schema, excludeTables=list(tool.exclude)) as source:
        schema.execute(f"INSERT INTO orders (id, note) VALUES {', '.join(f'({one}, NULL)' for one in range(ROWS))}")
        with writing(schema):
            fill_shadow(schema, tool)
            cut_over(schema, tool)
        schema.execute("INSERT INTO orders VALUES ('last', 5000000000, 'behind it')")
        batches = read_all(source, schema)
    require_both_shapes(schema, batches)
    assert f"RENAME TABLE {schema.name}.orders TO {schema.name}.{tool.left}" in caplog.text
    with streaming(schema, batches[0].position, excludeTables=list(tool.exclude)) as again:
        assert identities(read_all(again, schema)) == identities(batches[1:]), "over a binary log of both shapes"


def require_both_shapes(schema: Schema, batches: list[Batch]) -> None:
    """Changes come in the old shape and then in the new one; what they add up to is what the table holds."""
    changes = seen(batches)
    assert {change.table for change in changes} == {f"{schema.name}.orders"}
    relations = [change.relation for batch in batches for change in batch.schema_changes]
    names = [tuple(column.name for column in relation.columns) for relation in relations]
    assert names == [("id", "note", "old"), ("status", "id", "note")]
    assert [relation.version for relation in relations] == [1, 2]
    shapes = [names.index(tuple(change.after or change.before or {})) for change in changes]
    assert shapes == sorted(shapes)
    assert set(shapes) == {0, 1}
    columns = ("status", "id", "note")
    selected = schema.query(f"SELECT {', '.join(columns)} FROM orders")
    there = {str(row[1]): dict(zip(columns, (row[0], str(row[1]), row[2]), strict=True)) for row in selected}
    assert {key: as_new(row) for key, row in fold(changes).items()} == there


def as_new(row: dict[str, str | None]) -> dict[str, str | None]:
    """A row that was not written since the cut-over has the old shape, and the new column's default in the table."""
    return {"status": row.get("status", "new"), "id": row["id"], "note": row["note"]}
