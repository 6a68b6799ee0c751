"""A snapshot beside a binary log under writers: no READ row contradicts the stream at its place, and what is folded
equals the tables.
"""

from __future__ import annotations

import random

import pytest

from sources.mysql.source import MysqlSource
from tests.mariadb import Schema
from tests.mysql_snapshots import consuming, folded, rows_of, writing
from tests.mysql_source import source_of

_TABLES = (
    "CREATE TABLE whole (id INT PRIMARY KEY, v TEXT, n INT, big TEXT)",
    "CREATE TABLE keyed (a INT, b VARCHAR(20) COLLATE utf8mb4_general_ci, v TEXT, n INT, PRIMARY KEY (b, a))",
)
_CHANGES = (
    "INSERT INTO whole VALUES ({free}, 'new', 0, NULL)",
    "INSERT INTO keyed VALUES ({free}, 'b{n}', 'new', 0)",
    "UPDATE whole SET n = n + 1, v = 'changed {n}' WHERE id = {id}",
    "UPDATE keyed SET n = n + 1 WHERE a = {id}",
    "UPDATE whole SET n = n + 1 WHERE id BETWEEN {id} AND {id} + 20",
    "UPDATE keyed SET b = 'B{n}' WHERE a = {id}",
    "UPDATE keyed SET b = UPPER(b) WHERE a = {id}",
    "UPDATE whole SET id = {free} WHERE id = {id}",
    "DELETE FROM whole WHERE id = {id}",
    "DELETE FROM keyed WHERE a BETWEEN {id} AND {id} + 3",
)
_RARE = (
    "TRUNCATE keyed",
    "ALTER TABLE keyed MODIFY n BIGINT",
    "ALTER TABLE keyed MODIFY n INT",
    "ALTER TABLE whole FORCE",
    "RENAME TABLE whole TO aside, aside TO whole",
)


def _fill(schema: Schema) -> None:
    schema.execute(*_TABLES)
    with schema.session() as cursor:
        cursor.executemany(
            "INSERT INTO whole VALUES (%s, 'there', 0, %s)", [(number, str(number) * 20) for number in range(1, 3001)]
        )
        cursor.executemany(
            "INSERT INTO keyed VALUES (%s, %s, 'there', 0)",
            [(number, f"{'bB'[number % 2]}{number % 10}") for number in range(1, 2001)],
        )


def _snapshotting(schema: Schema) -> MysqlSource:
    return source_of(schema, snapshot=_SNAPSHOT, batchSize=70)


_SNAPSHOT = {"chunkRows": 150, "chunkTime": "50ms"}


def _check_fold(schema: Schema, seed: int, rare: tuple[str, ...] = ()) -> None:
    _fill(schema)
    moments = random.Random(seed)
    with consuming(schema, _SNAPSHOT, batchSize=70) as consumer:
        with writing(schema, _CHANGES, seed, rare):
            kills = 0
            while not consumer.done or kills < 3:
                for _ in range(moments.randint(1, 30)):
                    consumer.read(0.01)
                    if moments.random() < 0.2:
                        consumer.keep()
                if kills < 6 and moments.random() < 0.3 and consumer._kept[1] is not None:
                    consumer.lose(_snapshotting(schema))
                    kills += 1
                if consumer.done:
                    consumer.keep()
            consumer.until_done()
        consumer.until_level()
        assert consumer.fold.reads > 1000
        for table in ("whole", "keyed"):
            assert folded(consumer.fold, schema, table) == rows_of(schema, table)


@pytest.mark.behaviour("N6")
@pytest.mark.parametrize("seed", [0, *(pytest.param(more, marks=pytest.mark.soak) for more in range(1, 4))])
def test_what_is_folded_equals_the_tables_whatever_writers_do_and_wherever_the_source_is_killed(
    every_schema: Schema, seed: int
) -> None:
    _check_fold(every_schema, seed)
