"""What a chunk holds and what it does not: bytes, locks, conditions, places, and values that COPY writes in its way."""

from __future__ import annotations

import threading
import time

import numpy as np
import psycopg2
import pytest
from psycopg2.extensions import make_dsn

from psql_streamer.errors import SourceError, SourceUnavailable
from sources.postgres.server_errors import from_psycopg2
from sources.postgres.snapshot import copying
from sources.postgres.snapshot.copying import ChunkTooSlow, LockNotFree, TableRefused
from sources.postgres.snapshot.tables import describe_shape
from tests.database import Database, fresh_database
from tests.snapshot_reading import EVERY_BYTE, Row, reading, rows_of, texts
from tests.source_at_work import wait_for

NASTY = (
    "''",
    "NULL",
    "' '",
    "'NULL'",
    r"'\N'",
    r"'\.'",
    "','",
    "'\"'",
    "'\"\"'",
    r"E'\n'",
    r"E'\r'",
    r"E'a\r\nb'",
    r"E'\t'",
    "E'\\uFEFF'",
    "E'\\uFEFFx,\"'",
    "'🐘'",
    "'x '",
    "'#'",
    r"E'\\'",
    r"E'\x01'",
)


@pytest.mark.behaviour("N12")
@pytest.mark.parametrize("columns", ["v", "v, id", "id, v, v AS w"])
def test_n12_values_that_csv_writes_in_its_own_way_come_as_they_are(database: Database, columns: str) -> None:
    values = ", ".join(f"({at}, {value})" for at, value in enumerate(NASTY))
    database.execute(
        f"CREATE TABLE t AS SELECT {columns} FROM (VALUES {values}) AS t(id, v) ORDER BY id;"
        "CREATE PUBLICATION p FOR TABLE t"
    )
    with reading(database) as reader:
        table = reader.tables()["t"]
        assert reader.rows(table) == [
            tuple(None if value is None else str(value) for value in row)
            for row in database.query(f"SELECT {columns} FROM (VALUES {values}) AS t(id, v) ORDER BY id")
        ]


@pytest.mark.behaviour("N12")
def test_n12_tables_without_rows_and_without_columns_are_read(database: Database) -> None:
    database.execute(
        "CREATE TABLE nothing (); INSERT INTO nothing DEFAULT VALUES; INSERT INTO nothing DEFAULT VALUES;"
        "CREATE TABLE empty (id int PRIMARY KEY, v text); CREATE TABLE none (); CREATE PUBLICATION p FOR ALL TABLES"
    )
    with reading(database) as reader:
        tables = reader.tables()
        assert {name: reader.rows(table) for name, table in tables.items()} == {
            "nothing": [(), ()],
            "empty": [],
            "none": [],
        }
        with reader.transaction(tables["empty"]):
            chunk = copying.read_chunk(reader.connection, tables["empty"], None, "", 10, 1000)
            assert (chunk.rows, chunk.complete, list(map(texts, chunk.columns))) == (0, True, [[], []])
            chunk = copying.read_keys(reader.connection, tables["empty"], [], "")
            assert (chunk.rows, chunk.complete, list(map(texts, chunk.columns))) == (0, True, [[], []])


@pytest.mark.behaviour("N15")
def test_n15_a_chunk_has_the_rows_that_fit_into_its_bytes_and_one_at_least(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t;"
        "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 100) i; UPDATE t SET v = NULL WHERE id > 90;"
        "UPDATE t SET v = repeat('y', 50000000) WHERE id = 12"
    )
    with reading(database) as reader:
        table = reader.tables()["t"]

        def chunk_behind(key: str, rows: int, most_bytes: int) -> tuple[int, bool]:
            """How many rows a chunk has, and whether nothing is behind it; in the one transaction."""
            chunk = copying.read_chunk(reader.connection, table, (key,), "", rows, most_bytes)
            keys = texts(chunk.columns[0])
            assert keys == [str(int(key) + 1 + at) for at in range(chunk.rows)]
            assert chunk.nbytes < most_bytes * 1.2 + 100 or chunk.rows == 1
            return chunk.rows, chunk.complete

        with reader.transaction(table):
            assert chunk_behind("0", 10, 1_000_000) == (10, False)
            assert chunk_behind("0", 10, 3_100) == (3, False)
            assert chunk_behind("0", 10, 1) == (1, False)
            assert chunk_behind("10", 10, 1_000_000) == (1, False)
            assert chunk_behind("11", 10, 1_000_000) == (1, False)
            assert chunk_behind("12", 10, 1_000_000) == (10, False)
            assert chunk_behind("90", 10, 1_000_000) == (10, False)
            assert chunk_behind("90", 11, 1_000_000) == (10, True)
            assert chunk_behind("99", 10, 1) == (1, False)
            assert chunk_behind("100", 10, 1) == (0, True)
            wide = copying.read_keys(reader.connection, table, [("12",), ("13",)], "", most_bytes=10)
            assert (wide.rows, wide.complete) == (1, False)
            (large,) = copying.read_chunk(reader.connection, table, ("11",), "", 1, EVERY_BYTE).columns[1].to_pylist()
    assert large == b"y" * 50_000_000


@pytest.mark.behaviour("N15")
def test_n15_pages_are_read_in_pieces_of_rows_and_bytes_within_one_exported_snapshot(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int, v text); CREATE PUBLICATION p FOR TABLE t WITH (publish = 'insert');"
        "INSERT INTO t SELECT i, repeat('x', i) FROM generate_series(1, 500) i; ANALYZE t"
    )
    expected = [str(at) for at in range(1, 501)]
    with database.session() as exporting, exporting.cursor() as cursor, reading(database) as reader:
        table = reader.tables()["t"]
        (part,) = table.parts
        assert part.pages > 10
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()")
        copying.begin_under_locks(reader.connection, table.name, 10)
        copying.see_snapshot(reader.connection, cursor.fetchall()[0][0])
        database.execute("UPDATE t SET v = v || 'y' WHERE id % 2 = 0; DELETE FROM t WHERE id % 3 = 0")
        for pieces in ([(0, None)], [(0, 3), (4, 7), (8, None)], [(0, part.pages), (part.pages + 1, None)]):
            for rows, most_bytes in ((1000, EVERY_BYTE), (7, EVERY_BYTE), (1000, 3000), (1000, 1)):
                found: list[Row] = []
                for first, last in pieces:
                    after, complete = "", False
                    while not complete:
                        chunk = copying.read_pages(
                            reader.connection, table, part, first, last, "", rows, most_bytes, after
                        )
                        found += rows_of(chunk)
                        after, complete = chunk.last, chunk.complete
                assert [key for key, _ in found] == expected
                assert all(value == "x" * int(key or 0) for key, value in found)
        copying.end(reader.connection)


@pytest.mark.behaviour("N16")
def test_n16_a_table_that_is_locked_is_waited_for_no_longer_than_the_lock_timeout(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    with reading(database) as reader, database.session() as altering, altering.cursor() as cursor:
        table = reader.tables()["t"]
        cursor.execute("LOCK TABLE t")
        began = time.monotonic()
        with pytest.raises(LockNotFree):
            copying.begin(reader.connection, table, 0.2)
        assert 0.1 < time.monotonic() - began < 5
        altering.rollback()
        with reader.transaction(table):
            assert reader.session.read_rows("SELECT current_setting('transaction_read_only')") == [("on",)]


@pytest.mark.behaviour("N16")
def test_n16_what_was_done_under_the_lock_before_is_seen_whole(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2); CREATE PUBLICATION p FOR TABLE t"
    )
    with reading(database) as reader, database.session() as altering, altering.cursor() as cursor:
        table = reader.tables()["t"]
        cursor.execute("TRUNCATE t; ALTER TABLE t ADD v text DEFAULT 'new'; INSERT INTO t VALUES (3)")
        fences = []
        waiting = threading.Thread(target=lambda: fences.append(copying.begin(reader.connection, table, 30)))
        waiting.start()
        wait_for(
            lambda: database.value("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 't'::regclass") == 1,
            "the reader to wait for the lock",
        )
        xid = cursor.execute("SELECT pg_current_xact_id()::text::bigint") or cursor.fetchall()[0][0]
        altering.commit()
        waiting.join(30)
        now = describe_shape(reader.session, table.oid, ["p"], lambda _: None)
        assert now is not None
        assert len(now.relation.columns) == 2
        assert rows_of(copying.read_chunk(reader.connection, now, None, "", 10, 1000)) == [("3", "new")]
        copying.end(reader.connection)
    assert fences[0].select_visible(np.array([xid], np.uint64)).all()


@pytest.mark.behaviour("N16")
def test_n16_the_fence_knows_running_transactions_and_the_end_of_the_wal(every_postgres: Database) -> None:
    database = every_postgres
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    with reading(database) as reader, database.session() as running, database.session() as ended:
        xids = []
        for session in (running, ended):
            with session.cursor() as cursor:
                cursor.execute("INSERT INTO t VALUES (%s)", [len(xids)])
                cursor.execute("SAVEPOINT s; INSERT INTO t VALUES (%s)", [len(xids) + 10])
                cursor.execute("SELECT pg_current_xact_id()::text::bigint")
                xids += [one for (one,) in cursor.fetchall()]
        ended.commit()
        before = database.value("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
        fence = copying.begin(reader.connection, reader.tables()["t"], 1)
        copying.end(reader.connection)
        now = database.value("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
    assert fence.select_visible(np.array(xids, np.uint64)).tolist() == [False, True]
    assert fence.lsn >= before
    assert 0 <= now - fence.at_us < 60_000_000


@pytest.mark.behaviour("N17")
def test_n17_a_condition_limits_the_rows_and_cannot_reach_out_of_its_place(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text, key0 int); CREATE PUBLICATION p FOR TABLE t;"
        "INSERT INTO t SELECT i, 'v%' || i, i FROM generate_series(1, 20) i"
    )
    with reading(database) as reader:
        table = reader.tables()["t"]
        assert len(reader.rows(table, "id > 5 -- x")) == 15
        assert len(reader.rows(table, "id > 5 -- x", after=("10",))) == 10
        assert len(reader.rows(table, "id < 3 OR t.id > 18 OR public.t.v LIKE '%5'")) == 6
        with reader.transaction(table):
            found = copying.read_keys(reader.connection, table, [(str(at),) for at in range(10)], "key0 > 7 -- x")
            assert sorted(rows_of(found)) == [("8", "v%8", "8"), ("9", "v%9", "9")]
            pages = copying.read_pages(reader.connection, table, table.parts[0], 0, None, "t.id > 18 -- x", 9, 999)
            assert pages.rows == 2
        with pytest.raises(TableRefused) as caught:
            reader.rows(table, "v::int > 5")
        assert "with the values of a row (InvalidTextRepresentation, SQLSTATE 22P02)" in str(caught.value)
        for wrong in ("nope", "id", "id = 'x'", "1 / (id - 5) = 1", "count(*) > 1"):
            with pytest.raises(TableRefused):
                reader.rows(table, wrong)
        assert len(reader.rows(table)) == 20


def test_a_value_of_a_key_is_no_sql(database: Database) -> None:
    odd = ["'", "''; DROP TABLE t; --", "\\", "\\'", "$$", "%s", "{0}", '"', "a\nb"]
    database.execute("CREATE TABLE t (id text PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    for value in odd:
        database.execute("INSERT INTO t VALUES (%s)", value)
    with reading(database) as reader:
        table = reader.tables()["t"]
        for value in odd:
            found = reader.rows(table, after=(value,))
            assert found == [tuple(row) for row in database.query("SELECT id FROM t WHERE id > %s ORDER BY id", value)]
            with reader.transaction(table):
                assert rows_of(copying.read_keys(reader.connection, table, [(value,)], "")) == [(value,)]


def test_a_query_that_takes_longer_than_the_statement_timeout_ends(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES (1)")
    with reading(database) as reader:
        table = reader.tables()["t"]
        copying.begin(reader.connection, table, 1, statement_timeout=0.1)
        with pytest.raises(ChunkTooSlow):
            copying.read_chunk(reader.connection, table, None, "pg_sleep(20) IS NOT NULL", 10, 100)
        copying.end(reader.connection)
        assert reader.rows(table) == [("1",)]


def test_bytes_that_are_no_text_are_refused_as_the_stream_refuses_them(postgres: str) -> None:
    with fresh_database(postgres, "snapshot_sql_ascii", "SQL_ASCII") as database:
        database.execute(
            "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t;"
            "INSERT INTO t VALUES (1, E'\\xc5\\xbc'), (2, E'\\xff')"
        )
        with reading(database) as reader:
            table = reader.tables()["t"]
            assert reader.rows(table, "id = 1") == [("1", "ż")]
            with pytest.raises(TableRefused, match="invalid byte sequence") as caught:
                reader.rows(table)
    assert "where" in caught.value.remedy


def test_a_latin_database_gives_utf_8(postgres: str) -> None:
    with fresh_database(postgres, "snapshot_latin", "LATIN1") as database:
        database.execute(
            "CREATE TABLE t (id text PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t; INSERT INTO t VALUES ('é'), ('ü')"
        )
        with reading(database) as reader:
            assert reader.rows(reader.tables()["t"], after=("é",)) == [("ü",)]


def test_the_session_says_who_it_is_and_a_connection_that_is_gone_is_unavailable(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    with reading(database) as reader:
        table = reader.tables()["t"]
        pid = reader.connection.info.backend_pid
        query = "SELECT application_name FROM pg_stat_activity WHERE pid = %s"
        assert database.value(query, pid) == "psql-streamer snapshot"
        copying.begin(reader.connection, table, 1)
        database.execute("SELECT pg_terminate_backend(%s, 10000)", pid)
        with pytest.raises(SourceUnavailable):
            copying.read_chunk(reader.connection, table, None, "", 10, 100)
        copying.end(reader.connection)  # what the server said is told already, and not hidden by another error
    with pytest.raises(SourceError):
        copying.connect_reader(make_dsn(database.dsn, dbname="no_such_database"), 5.0)


def test_a_limit_of_temporary_files_that_a_query_exceeds_is_named(database: Database) -> None:
    """The server gives it the SQLSTATE of too many replication slots."""
    sort = "SET temp_file_limit = 0; SET work_mem = '64kB'; SELECT i FROM generate_series(1, 100000) i ORDER BY -i"
    with pytest.raises(psycopg2.errors.ConfigurationLimitExceeded) as raised:
        database.query(sort)
    assert "raise it for the role: ALTER ROLE ... SET temp_file_limit" in str(from_psycopg2(raised.value, database.dsn))
