"""What a `sql` source reads from PostgreSQL is what the stream of its WAL says, value for value."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import psycopg2.errors
import pytest

from psql_streamer.events.routing import Router
from psql_streamer.model import Batch
from tests.database import Database
from tests.encoding import encoder_of
from tests.source_at_work import read_all, streaming
from tests.sql_sources import read, sql_source, url_of
from tests.started_source import started
from tests.type_values import EDGES

ODD_SETTINGS = {
    "timezone": "America/New_York",
    "datestyle": "SQL, DMY",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-3",
}
"""Of the database, so that every session has them that does not say otherwise."""


def rows_by_table(batches: Sequence[Batch]) -> dict[str, list[Any]]:
    """Table -> checksum and columns of each row, in their order."""
    encoder = encoder_of("event", Router({}, "t", ""), {})
    found: dict[str, list[Any]] = {}
    for batch in batches:
        for value in encoder.encode(batch).values.to_pylist():
            event = json.loads(value, parse_float=Decimal)
            found.setdefault(event["Table"], []).append((event["Checksum"], event["Columns"]))
    return {table: sorted(rows, key=lambda row: row[1]["id"]) for table, rows in found.items()}


@pytest.mark.behaviour("P4")
def test_every_type_and_arrays_of_it_are_what_the_wal_says(database: Database) -> None:
    for name, value in ODD_SETTINGS.items():
        database.execute(f"ALTER DATABASE \"{database.name}\" SET {name} = '{value}'")
    tables = {f"t_{at}": kind for at, kind in enumerate(EDGES)}
    made = "('ok', true, 1.5, 'a', 'b '), (NULL, NULL, NULL, '', '')"
    for table, kind in tables.items():
        quoted = f'"{kind}"'
        database.execute(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, v {quoted}, list {quoted}[])")
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN yes AS bool; CREATE DOMAIN price AS numeric(10, 2);"
        "CREATE TABLE made (id bigserial PRIMARY KEY, m mood, y yes, p price, c char(5), t varchar(9))"
    )
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    with streaming(database) as wal:
        for table, kind in tables.items():
            for literal in EDGES[kind]:
                value = f'CAST({literal} AS "{kind}")'
                with contextlib.suppress(psycopg2.errors.FeatureNotSupported):  # a server without libxml
                    database.execute(f"INSERT INTO {table} (v, list) VALUES ({value}, ARRAY[{value}, NULL])")
            database.execute(f"INSERT INTO {table} (v) VALUES (NULL)")
        database.execute(f"INSERT INTO made (m, y, p, c, t) VALUES {made}")
        expected = rows_by_table(read_all(wal, database))
    with started(sql_source(url_of(database), *tables, "made")) as source:
        count = sum(map(len, expected.values()))
        found = rows_by_table(read(source, lambda batches: sum(map(len, batches)) == count, timeout=60))
    for table, kind in {**tables, "made": "made"}.items():
        assert found[table] == expected[table], kind
