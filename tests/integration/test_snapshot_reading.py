"""Chunks of tables: every row once, in the order of the key, with the bytes that the stream has."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from itertools import cycle

import psycopg2.errors
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psql_streamer.embedded.postgres import find_server_binaries
from psql_streamer.snapshot.likeness import Likeness
from sources.postgres.identifiers import quote_identifier
from sources.postgres.snapshot import copying
from sources.postgres.snapshot.likenesses import list_likenesses
from sources.postgres.snapshot.selects import select_behind
from sources.postgres.snapshot.tables import SnapshotTable
from tests.database import Database, fresh_database
from tests.keyed_tables import KEYS, SCHEMA
from tests.snapshot_reading import EVERY_BYTE, Reader, Row, reading, rows_of
from tests.source_at_work import read_all, streaming
from tests.type_values import CUSTOM_COLUMNS, CUSTOM_TYPES, ODD_SETTINGS, columns_on, inserted

ZONES = {"TZ": "Asia/Kathmandu", "PGTZ": "America/New_York", "PGDATESTYLE": "SQL, DMY"}


@pytest.mark.behaviour("N12")
def test_n12_a_value_of_every_type_has_the_bytes_of_the_stream_whatever_the_settings(
    every_postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = every_postgres
    for name, value in ZONES.items():
        monkeypatch.setenv(name, value)
    database.execute(CUSTOM_TYPES)
    every = [(sql, values) for sql, _, values in columns_on(database)] + list(CUSTOM_COLUMNS.items())
    every += [
        (f"{sql}[]", (f"ARRAY[({values[0]})::{sql}, NULL]::{sql}[]", "'{}'")) for sql, values in CUSTOM_COLUMNS.items()
    ]
    listed = ", ".join(f"c{at} {sql}" for at, (sql, _) in enumerate(every))
    database.execute(f"CREATE TABLE every (id int PRIMARY KEY, {listed}); CREATE PUBLICATION p FOR TABLE every")
    for setting, value in ODD_SETTINGS.items():
        database.execute(f"ALTER DATABASE \"{database.name}\" SET {setting} = '{value}'")
    with streaming(database) as source, reading(database) as reader:
        inserted(database, "every", [values for _, values in every])
        streamed = [change.after.columns for batch in read_all(source, database) for change in batch.changes]
        table = reader.tables()["every"]
        with reader.transaction(table):
            chunk = copying.read_chunk(reader.connection, table, None, "", 1000, EVERY_BYTE)
    assert chunk.rows > 5
    for at, column in enumerate(chunk.columns):
        assert column.to_pylist() == [value for columns in streamed for value in columns[at].to_pylist()], every[
            at - 1
        ][0]


def name_of(key: str) -> str:
    return "by_" + re.sub(r"\W", "_", key).lower()


@pytest.fixture(scope="module")
def readers(postgres_servers: Callable[[int | None], str]) -> Iterator[Callable[[bool], Reader]]:
    """False: a reader of a database with the tables of KEYS that any server can have; True: of one with the others."""
    with ExitStack() as stack:

        @cache
        def reader(others: bool) -> Reader:
            # Debian's PostgreSQL has ICU and the extensions, the embedded ones have not.
            dsn = postgres_servers(min(find_server_binaries(), default=None) if others else None)
            database = stack.enter_context(fresh_database(dsn, f"keys_{others}_{random.getrandbits(40)}".lower()))
            database.execute(SCHEMA + "; CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root)")
            for key, table in KEYS.items():
                if bool(table.needs) == others:
                    with suppress(psycopg2.errors.FeatureNotSupported, psycopg2.errors.UndefinedObject):
                        database.execute(f"{table.needs}; {table.create(name_of(key))}")
            return stack.enter_context(reading(database))

        yield reader


@pytest.fixture(params=KEYS)
def keyed(request: pytest.FixtureRequest, readers: Callable[[bool], Reader]) -> tuple[Reader, SnapshotTable, list[Row]]:
    """A table for each of KEYS, and its rows in the order of the key."""
    reader = readers(bool(KEYS[request.param].needs))
    table = reader.tables().get(name_of(request.param))
    if table is None and KEYS[request.param].needs:
        pytest.skip(f"this server cannot do {KEYS[request.param].needs}")
    assert table is not None
    names = [quote_identifier(column.name) for column in table.relation.columns]
    columns = ", ".join(f"format('%s', t.{name}) AS text_{at}" for at, name in enumerate(names))
    return (
        reader,
        table,
        reader.session.read_rows(f"SELECT {columns} FROM {table.name} t ORDER BY {KEYS[request.param].order}"),
    )


def chunks(
    reader: Reader, table: SnapshotTable, sizes: Iterator[int], most_bytes: int = EVERY_BYTE
) -> Iterator[copying.Chunk]:
    """All chunks of a table, each in a transaction of its own."""
    after: tuple[str, ...] | None = None
    complete = False
    while not complete:
        with reader.transaction(table):
            chunk = copying.read_chunk(reader.connection, table, after, "", next(sizes), most_bytes)
        yield chunk
        complete = chunk.complete
        after = key_of(table, rows_of(chunk)[-1]) if chunk.rows else after


def key_of(table: SnapshotTable, row: Row) -> tuple[str, ...]:
    return tuple(row[at] or "" for at in table.relation.key_columns)


Case = tuple[Reader, SnapshotTable, list[Row]]


@pytest.mark.behaviour("N13")
def test_n13_chunks_of_any_size_bring_every_row_once_in_the_order_of_the_key(keyed: Case) -> None:
    reader, table, expected = keyed

    @given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    @settings(max_examples=8, deadline=None, derandomize=True, database=None)
    def check(sizes: list[int]) -> None:
        assert [row for chunk in chunks(reader, table, cycle(sizes)) for row in rows_of(chunk)] == expected

    check()


@pytest.mark.behaviour("N13")
def test_n13_a_chunk_begins_where_the_index_has_its_first_row_and_nothing_is_sorted(keyed: Case) -> None:
    reader, table, rows = keyed
    with reader.transaction(table):
        reader.session.read_rows(
            "SELECT set_config('enable_sort', 'off', true), set_config('enable_seqscan', 'off', true)"
        )
        for select in select_behind(table, key_of(table, rows[0]), "", lambda text: f"$q${text}$q$"):
            plan = "\n".join(line for (line,) in reader.session.read_rows(f"EXPLAIN (COSTS OFF) {select} LIMIT 2"))
            assert "Index Cond" in plan, plan
            assert "Sort\n" not in plan, plan
            assert "Filter" not in plan, plan


@pytest.mark.behaviour("N13")
def test_n13_rows_are_read_again_by_their_keys_each_once(keyed: Case) -> None:
    reader, table, rows = keyed
    keys = [key_of(table, row) for row in rows[::2]]
    with reader.transaction(table):
        chunk = copying.read_keys(reader.connection, table, [*keys, *keys], "")
    assert sorted(rows_of(chunk), key=str) == sorted(rows[::2], key=str)
    assert chunk.complete


@pytest.mark.parametrize(
    ("kind", "likeness"),
    [
        *((kind, Likeness.EXACT) for kind in ("text", "varchar(9)", "timestamp", "time", "bit(3)", '"char"', "int8")),
        ("numeric", Likeness.DECIMAL),
        ("char(4)", Likeness.PADDED),
        ("float8", Likeness.FLOAT),
        ("interval", Likeness.ANY),
    ],
)
def test_a_key_is_as_like_another_as_its_type_says_whether_sql_quotes_the_name_of_that_or_not(
    database: Database, kind: str, likeness: Likeness
) -> None:
    database.execute(f"CREATE TABLE t (k {kind} PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    with reading(database) as reader:
        assert list_likenesses(reader.tables()["t"]) == (likeness,)
