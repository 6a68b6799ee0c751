"""Snapshots of a MySQL source, beside its binary log."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest

from psql_streamer.embedded.mariadb import EmbeddedMariadb
from psql_streamer.errors import SourceRefused, SourceUnavailable
from psql_streamer.events.routing import Router
from psql_streamer.model import RowOp
from psql_streamer.snapshots import SnapshotRequest, SnapshotState, TableRequest, TableState, Wanted
from tests.binlog_types import COLUMNS
from tests.encoding import encoder_of
from tests.mariadb import Schema, fresh_schema
from tests.mysql_snapshots import Consumer, consuming, folded, rows_of
from tests.mysql_source import read_until, seen, source_of, streaming
from tests.started_source import started

_SLOWLY = {"mode": "initial", "chunkRows": 10, "parallel": 1}


def _numbered(schema: Schema, rows: int = 100) -> None:
    with schema.session() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(100))")
        cursor.executemany("INSERT INTO t VALUES (%s, 'there')", [(number,) for number in range(1, rows + 1)])


def _ids(consumer: Consumer) -> list[int]:
    return [int(row["id"]) for row in consumer.reads()]


def test_the_first_start_gives_the_rows_that_are_there_and_then_changes(every_schema: Schema) -> None:
    schema = every_schema
    _numbered(schema)
    with consuming(schema, _SLOWLY) as consumer:
        consumer.until(lambda: consumer.fold.reads, "the first rows")
        schema.execute("UPDATE t SET v = 'changed' WHERE id IN (1, 100)", "DELETE FROM t WHERE id = 99")
        consumer.until_done()
        consumer.until_level()
        [shown] = consumer.snapshots
        assert folded(consumer.fold, schema, "t") == rows_of(schema, "t")
        assert len(_ids(consumer)) == len(set(_ids(consumer)))
        assert (shown.state, shown.on_demand, shown.tables[0].state) == (SnapshotState.DONE, False, TableState.DONE)
        assert shown.rows == len(_ids(consumer))
        assert "done" in consumer.source.status().reason


@pytest.mark.behaviour("N9")
def test_tables_whose_names_differ_in_case_alone_are_read_each_for_itself(every_schema: Schema) -> None:
    """Schemas, too. The catalog of MariaDB compares names whatever their case."""
    schema, other = every_schema, every_schema.name.upper()
    schema.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)",
        "CREATE TABLE T (c VARCHAR(9), id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 2, 3)",
        "INSERT INTO T VALUES ('x', 4)",
        f"CREATE DATABASE {other}",
        f"CREATE TABLE {other}.t (id INT PRIMARY KEY, d INT)",
        f"INSERT INTO {other}.t VALUES (5, 6)",
    )
    try:
        with consuming(schema, tables=[f"{schema.name}.*", f"{other}.*"]) as consumer:
            consumer.until_done()
            consumer.until_level()
            published = consumer.source.list_published()
            for table in ("t", "T"):
                assert folded(consumer.fold, schema, table) == rows_of(schema, table)
            assert sorted(map(str, map(list, map(dict.values, consumer.reads())))) == [
                "[b'1', b'2', b'3']",
                "[b'5', b'6']",
                "[b'x', b'4']",
            ]
    finally:
        schema.execute(f"DROP DATABASE {other}")
    assert {(one.schema, one.table): [column.name for column in one.columns] for one in published or ()} == {
        (schema.name, "t"): ["id", "a", "b"],
        (schema.name, "T"): ["c", "id"],
        (other, "t"): ["id", "d"],
    }


def test_a_position_that_is_stored_already_begins_none(schema: Schema) -> None:
    _numbered(schema)
    with streaming(schema) as source:
        batch = source.read(1)
    assert batch is not None
    stored = {key: value for key, value in batch.position.data.items() if key != "snapshots"}
    with streaming(schema, type(batch.position)(stored, ""), snapshot="initial") as source:
        assert source.list_snapshots() == []


@pytest.mark.behaviour("N9")
def test_every_type_has_the_same_bytes_from_a_snapshot_and_from_the_stream(every_schema: Schema) -> None:
    schema = every_schema
    flavor = "mysql" if schema.on_mysql else "mariadb"
    columns = [column for column in COLUMNS if column.only in ("", flavor)]
    described = ", ".join(f"{column.name} {column.type}" for column in columns)
    with consuming(schema, "never") as consumer:
        schema.execute(
            "SET SESSION sql_mode = '', time_zone = '+03:00'",
            f"CREATE TABLE t ({described}, PRIMARY KEY (id))",
            *(f"INSERT INTO t VALUES ({', '.join(column.values[row] for column in columns)})" for row in range(3)),
        )
        consumer.until_level()
        consumer.source.set_snapshots([SnapshotRequest("again")])
        consumer.until_done()
    streamed = [change.after for change in seen(consumer.batches) if change.op == chr(RowOp.INSERT)]
    read = [change.after for change in seen(consumer.batches) if change.op == chr(RowOp.READ)]
    assert read == streamed
    shapes = [change.relation for batch in consumer.batches for change in batch.schema_changes]
    assert len(shapes) == 1, "the catalog's shape is the stream's"


_KEYS = (
    ("INT", "{n} - 5"),
    ("BIGINT UNSIGNED", "18446744073709551600 + {n}"),
    ("DECIMAL(12,3)", "{n} - 6.125"),
    ("FLOAT", "{n} / 10 - 0.3"),
    ("DOUBLE", "({n} - 6) * 1e300 / 7"),
    ("DATE", "DATE('2026-01-01') + INTERVAL {n} DAY"),
    ("DATETIME(3)", "TIMESTAMP('2026-01-01 00:00:00.5') + INTERVAL {n} SECOND"),
    ("TIMESTAMP(6)", "TIMESTAMP('2026-01-01 00:00:00.25') + INTERVAL {n} HOUR"),
    ("TIME(2)", "SEC_TO_TIME({n} * 1000 - 6000.5)"),
    ("YEAR", "2020 + {n}"),
    ("BIT(9)", "{n} * 30"),
    ("VARCHAR(20) COLLATE utf8mb4_general_ci", "CONCAT(IF({n} % 2, 'É', 'e'), '''\\\\', {n})"),
    ("VARCHAR(20) CHARACTER SET latin1", "CONCAT('ü', CHAR(128 + {n} USING latin1))"),
    ("CHAR(4) COLLATE utf8mb4_bin", "CONCAT(CHAR({n} USING utf8mb4), 'a')"),
    ("VARBINARY(8)", "CHAR(0, {n}, 255 - {n})"),
    ("BINARY(3)", "CHAR({n}, 0)"),
    ("ENUM('z','y','x','w','v','u','t','s','r','q','p','o','n')", "{n} + 1"),
    ("SET('d','c','b','a')", "{n}"),
)
_ONLY_MARIADB = (
    ("UUID", "CONCAT('123e4567-e89b-12d3-a456-4266554400', LPAD({n}, 2, '0'))"),
    ("INET6", "CONCAT('::', {n})"),
)


@pytest.mark.parametrize("second", [False, True], ids=["alone", "as the second column"])
def test_keys_of_every_type_are_paged_in_the_servers_order(every_schema: Schema, second: bool) -> None:
    schema = every_schema
    kinds = _KEYS if schema.on_mysql else (*_KEYS, *_ONLY_MARIADB)
    key = "a, k" if second else "k"
    with schema.session() as cursor:
        cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
        for number, (kind, value) in enumerate(kinds):
            cursor.execute(f"CREATE TABLE t{number} (k {kind}, v INT, a CHAR(2), PRIMARY KEY ({key}))")
            rows = ", ".join(f"({value.format(n=n)}, {n}, CHAR(0, {n} % 2))" for n in range(12))
            cursor.execute(f"INSERT INTO t{number} VALUES {rows}")
    with consuming(schema, {"mode": "initial", "chunkRows": 3}) as consumer:
        consumer.until_done()
        [shown] = consumer.snapshots
        assert {table.table: (table.rows, table.chunks, table.reason) for table in shown.tables} == {
            f"{schema.name}.t{number}": (12, 5, "") for number in range(len(kinds))
        }
    assert sorted(int(row["v"]) for row in consumer.reads()) == sorted(list(range(12)) * len(kinds))


def test_a_restart_goes_on_behind_the_last_chunk_that_is_durable(schema: Schema) -> None:
    _numbered(schema)
    with consuming(schema, _SLOWLY) as consumer:
        consumer.until(lambda: len(_ids(consumer)) >= 30, "some chunks")
        consumer.keep()
        durable = _ids(consumer)
        for _ in range(3):
            consumer.read()
        consumer.lose(source_of(schema, snapshot=_SLOWLY))
        consumer.batches.clear()
        consumer.until_done()
        assert durable + _ids(consumer) == list(range(1, 101))
        assert consumer.snapshots[0].rows == 100


def test_rows_that_come_again_have_their_uuids(schema: Schema) -> None:
    _numbered(schema, 20)
    with consuming(schema, _SLOWLY) as consumer:
        consumer.until(lambda: consumer.snapshots and consumer.snapshots[0].tables, "the tables")
        consumer.keep()
        consumer.until(lambda: len(_ids(consumer)) == 20, "all rows")
        first = [uuid for batch in consumer.batches for changes in batch.changes for uuid in changes.uuid.tolist()]
        consumer.lose(source_of(schema, snapshot=_SLOWLY))
        consumer.batches.clear()
        consumer.until_done()
        again = [uuid for batch in consumer.batches for changes in batch.changes for uuid in changes.uuid.tolist()]
    assert len(set(first)) == 20
    assert set(again) <= set(first)


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE t",
        "ALTER TABLE t ADD COLUMN more INT DEFAULT 7",
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)",
        "RENAME TABLE t TO gone, other TO t",
    ],
    ids=["truncate", "another column", "another key", "another table"],
)
def test_a_statement_that_makes_another_table_of_it_in_the_middle(schema: Schema, statement: str) -> None:
    schema.execute("CREATE TABLE other (id INT PRIMARY KEY, v VARCHAR(100))", "INSERT INTO other VALUES (95, 'other')")
    _numbered(schema)
    with consuming(schema, {**_SLOWLY, "tables": ["t"]}) as consumer:
        consumer.until(lambda: len(_ids(consumer)) >= 20, "some chunks")
        schema.execute(statement)
        schema.execute("UPDATE t SET v = 'changed' WHERE id = 95", "INSERT INTO t (id, v) VALUES (1000, 'new')")
        consumer.until_done()
        consumer.until_level()
        rows = consumer.fold.tables[f"{schema.name}.t"]
        there = {str(key) for (key,) in schema.query("SELECT id FROM t")}
        found = {row["id"].decode() for row in rows.values() if row["id"] is not None}
        # What the rows of a table that is gone have become, no event says; whoever swaps tables has both the same.
        assert found - there <= ({str(number) for number in range(1, 101)} if "RENAME" in statement else set())
        assert there <= found
        assert consumer.snapshots[0].state is SnapshotState.DONE


@contextmanager
def _commits_that_wait(schema: Schema) -> Iterator[None]:
    """A transaction is in the binary log, and the stream has it, but nobody sees it: it waits for a replica."""
    names = ("rpl_semi_sync_source", "source") if schema.on_mysql else ("rpl_semi_sync_master", "master")
    if schema.on_mysql:
        try:
            schema.execute(f"INSTALL PLUGIN {names[0]} SONAME 'semisync_{names[1]}.so'")
        except pymysql.err.OperationalError:
            pytest.skip("this MySQL has no plug-in for semi-synchronous replicas")
    wait = "wait_for_replica_count = 1" if schema.on_mysql else "wait_no_slave = ON"
    schema.execute(
        f"SET GLOBAL {names[0]}_wait_point = 'AFTER_SYNC'",
        f"SET GLOBAL {names[0]}_{wait}",
        f"SET GLOBAL {names[0]}_timeout = 60000",
        f"SET GLOBAL {names[0]}_enabled = ON",
    )
    try:
        yield
    finally:
        schema.execute(f"SET GLOBAL {names[0]}_enabled = OFF")


@pytest.mark.behaviour("N6")
def test_a_row_is_not_read_as_it_was_before_a_change_that_was_streamed_and_that_nobody_sees(
    every_schema: Schema,
) -> None:
    schema = every_schema
    _numbered(schema, 3)
    update = threading.Thread(target=schema.execute, args=("UPDATE t SET v = 'new' WHERE id = 1",))
    with consuming(schema, "never") as consumer:
        try:
            with _commits_that_wait(schema):
                update.start()
                consumer.until(lambda: seen(consumer.batches), "the change that waits for a replica")
                consumer.source.set_snapshots([SnapshotRequest("now")])
                consumer.until(
                    lambda: "semi-synchronous" in consumer.snapshots[0].reason, "a word of what it waits for"
                )
                assert consumer.reads() == []
                assert schema.value("SELECT v FROM t WHERE id = 1") == "there"
        finally:
            if update.ident is not None:
                update.join(30)
        consumer.until_done()
        assert [(row["id"], row["v"]) for row in consumer.reads()] == [
            (b"1", b"new"),
            (b"2", b"there"),
            (b"3", b"there"),
        ]


def test_values_that_images_lack_are_read_again(schema: Schema) -> None:
    _numbered(schema, 1)
    schema.execute("ALTER TABLE t ADD COLUMN n INT DEFAULT 0")
    with consuming(schema, _SLOWLY) as consumer, schema.session() as cursor:
        cursor.execute("SET SESSION binlog_row_image = 'MINIMAL'")
        # Rows that were read are given where nothing of the stream waits: changes that lie there go first.
        consumer.until(lambda: consumer.source._snapshots._schedule._runs._work, "the table to be read")
        for _ in range(5):
            cursor.execute("UPDATE t SET n = n + 1 WHERE id = 1")
            time.sleep(0.02)
        consumer.until_done()
        consumer.until_level()
        assert folded(consumer.fold, schema, "t") == rows_of(schema, "t")


def test_tables_that_cannot_be_held_against_the_stream_are_named(schema: Schema) -> None:
    _numbered(schema, 1)
    schema.execute("CREATE TABLE keyless (v INT)", "CREATE TABLE isam (id INT PRIMARY KEY) ENGINE = MyISAM")
    with consuming(schema) as consumer:
        consumer.until_done()
        [shown] = consumer.snapshots
        assert shown.state is SnapshotState.FAILED
        reasons = {table.table.rpartition(".")[2]: table.reason for table in shown.tables}
        assert reasons["t"] == ""
        assert "has no primary key" in reasons["keyless"]
        assert "MyISAM" in reasons["isam"]
        with pytest.raises(SourceRefused, match="has no primary key"):
            consumer.source.review_snapshot(SnapshotRequest("a", (TableRequest("keyless"),)))
        with pytest.raises(SourceRefused, match="nowhere is not streamed"):
            consumer.source.review_snapshot(SnapshotRequest("a", (TableRequest("nowhere"),)))
        with pytest.raises(SourceRefused, match="semicolon"):
            consumer.source.review_snapshot(SnapshotRequest("a", (TableRequest("t", "1; DROP TABLE t"),)))
        with pytest.raises(SourceRefused, match=r"the server refuses the condition of .*Unknown column .*idd"):
            consumer.source.review_snapshot(SnapshotRequest("a", (TableRequest("t", "idd > 5"),)))


def test_an_account_that_may_not_read_is_told_what_to_grant(schema: Schema) -> None:
    _numbered(schema, 1)
    account = f"reader{schema.name[-8:]}"
    schema.execute(
        f"CREATE USER {account}@'%' IDENTIFIED BY 'x'",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}@'%'",
    )
    dsn = f"mysql://{account}:x@{schema.host}:{schema.port}/"
    try:
        with consuming(schema, dsn=dsn) as consumer:
            consumer.until_done()
            assert consumer.snapshots[0].state is SnapshotState.FAILED
            assert "GRANT SELECT" in consumer.snapshots[0].reason
            schema.execute("INSERT INTO t VALUES (2, 'streamed')")
            consumer.until(lambda: seen(consumer.batches), "the stream, which goes on")
    finally:
        schema.execute(f"DROP USER {account}@'%'")


def test_one_that_is_asked_for_reads_the_rows_that_fit(schema: Schema) -> None:
    _numbered(schema)
    with consuming(schema, "never") as consumer:
        asked = SnapshotRequest("some", (TableRequest("t", "id % 2 = 0 -- even"),))
        consumer.source.review_snapshot(asked)
        consumer.source.set_snapshots([asked])
        consumer.until_done()
        assert _ids(consumer) == list(range(2, 101, 2))
        assert consumer.snapshots[0].on_demand


def test_a_paused_one_goes_on_where_it_was(schema: Schema) -> None:
    _numbered(schema)
    with consuming(schema, "never", batchSize=5) as consumer:
        asked = SnapshotRequest("one", (TableRequest("t"),))
        consumer.source.set_snapshots([asked])
        consumer.until(lambda: len(_ids(consumer)) >= 10, "some rows")
        consumer.source.set_snapshots([SnapshotRequest("one", asked.tables, Wanted.PAUSE)])
        while consumer.read(0.2) is not None:
            pass
        assert len(_ids(consumer)) < 100
        consumer.source.set_snapshots([asked])
        consumer.until_done()
        assert _ids(consumer) == list(range(1, 101))


@pytest.mark.parametrize("form", ["event", "envelope", "debezium"])
def test_events_name_the_snapshot(every_schema: Schema, form: str) -> None:
    schema = every_schema
    _numbered(schema, 1)
    with consuming(schema) as consumer:
        consumer.until_done()
    encoder = encoder_of(form, Router({}, "", "t"), {})
    [event] = [
        json.loads(value)
        for batch in consumer.batches
        if len(batch)
        for value in encoder.encode(batch).values.to_pylist()
    ]
    expected: dict[str, Any] = {
        "event": {"Action": "read", "Snapshot": consumer.snapshots[0].id, "Columns": {"id": 1, "v": "there"}},
        "envelope": {"op": "READ", "after": {"id": 1, "v": "there"}, "before": None},
        "debezium": {"op": "r", "after": {"id": 1, "v": "there"}, "before": None},
    }[form]
    assert {name: event[name] for name in expected} == expected
    if form != "event":
        assert event["source"]["snapshot"] == "true"
    if form == "debezium":
        block = {name: event["source"][name] for name in ("gtid", "server_id", "db", "table")}
        assert block == {"gtid": None, "server_id": 1, "db": schema.name, "table": "t"}


def test_without_gtids_mysql_is_refused_in_words(every_schema: Schema) -> None:
    schema = every_schema
    if not schema.on_mysql:
        pytest.skip("MariaDB's transactions always have GTIDs")
    _numbered(schema, 1)
    schema.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE")
    try:
        with consuming(schema) as consumer:
            consumer.until_done()
            assert "gtid_mode is ON_PERMISSIVE" in consumer.snapshots[0].reason
    finally:
        schema.execute("SET GLOBAL gtid_mode = ON")


def test_rows_of_an_xa_transaction_that_was_committed_a_moment_ago_are_the_streams(schema: Schema) -> None:
    _numbered(schema, 3)
    with consuming(schema, "never") as consumer, schema.session() as cursor:
        for command in ("XA START 'x'", "UPDATE t SET v = 'new' WHERE id = 2", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(command)
        cursor.execute("XA COMMIT 'x'")
        consumer.until(lambda: seen(consumer.batches), "its rows")
        consumer.source.set_snapshots([SnapshotRequest("now")])
        consumer.until_done()
        assert _ids(consumer) == [1, 3]
        assert folded(consumer.fold, schema, "t") != []


def test_what_is_prepared_is_read_as_it_was_and_streamed_when_it_is_committed(schema: Schema) -> None:
    _numbered(schema, 3)
    with consuming(schema, "never") as consumer, schema.session() as cursor:
        for command in ("XA START 'y'", "UPDATE t SET v = 'new' WHERE id = 2", "XA END 'y'", "XA PREPARE 'y'"):
            cursor.execute(command)
        consumer.source.set_snapshots([SnapshotRequest("now")])
        consumer.until_done()
        assert _ids(consumer) == [1, 2, 3]
        cursor.execute("XA COMMIT 'y'")
        consumer.until_level()
        assert folded(consumer.fold, schema, "t") == rows_of(schema, "t")


def test_a_server_that_crashes_in_the_middle_delays_it(own_mariadb: EmbeddedMariadb) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "crash") as schema:
        _numbered(schema)
        with consuming(schema, _SLOWLY) as consumer:
            consumer.until(lambda: len(_ids(consumer)) >= 30, "some chunks")
            server.restart(kill=True)
            schema.execute("UPDATE t SET v = 'changed' WHERE id > 90")
            with pytest.raises(SourceUnavailable):
                consumer.until_done()
            consumer.source.read_stream_identity()
            consumer.source.start(consumer.position)
            consumer.until_done()
            consumer.until_level()
            assert folded(consumer.fold, schema, "t") == rows_of(schema, "t")
            assert consumer.snapshots[0].rows == 100


def test_a_gap_that_is_accepted_is_healed_by_a_request_for_all_tables(schema: Schema) -> None:
    _numbered(schema, 3)
    source = source_of(schema, snapshot="initial")
    source.set_snapshots([SnapshotRequest("healed")])
    with started(source) as source:
        batches = read_until(
            source, lambda _: source.list_snapshots()[0].tables and source.list_snapshots()[0].rows == 3
        )
        assert [snapshot.id for snapshot in source.list_snapshots()] == ["healed"]
        assert len([row for row in seen(batches) if row.op == chr(RowOp.READ)]) == 3


def test_rows_that_are_more_than_a_chunk_may_hold_come_in_several(schema: Schema) -> None:
    with schema.session() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)")
        for number in range(1, 6):
            cursor.execute("INSERT INTO t VALUES (%s, REPEAT('x', 300000))", (number,))
    with consuming(schema, {"mode": "initial", "chunkBytes": "500kB"}) as consumer:
        consumer.until_done()
        assert _ids(consumer) == [1, 2, 3, 4, 5]
        assert consumer.snapshots[0].chunks >= 5
        assert folded(consumer.fold, schema, "t") == rows_of(schema, "t")


def test_a_lock_that_is_not_free_is_named_and_waited_for(schema: Schema) -> None:
    _numbered(schema, 3)
    with consuming(schema, "never") as consumer, schema.session() as cursor:
        cursor.execute("LOCK TABLE t WRITE")
        consumer.source.set_snapshots([SnapshotRequest("one")])
        consumer.until(lambda: "waits for the lock of" in consumer.snapshots[0].reason, "what it waits for")
        cursor.execute("UNLOCK TABLES")
        consumer.until_done()
        assert _ids(consumer) == [1, 2, 3]
