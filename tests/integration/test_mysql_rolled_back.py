"""What was rolled back and is in the binary log all the same is not sent."""

from __future__ import annotations

import logging

import pymysql
import pytest

from psql_streamer.binlog.events import EventType, read_header
from psql_streamer.embedded.mariadb import EmbeddedMariadb
from psql_streamer.errors import PositionRefused
from psql_streamer.model import Position
from tests.mariadb import Schema, new_schema
from tests.mysql_source import fold, read_all, read_until, seen, streaming

TABLES = ("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE plain (id INT PRIMARY KEY) ENGINE=MyISAM")


def insert(number: int) -> tuple[str, str]:
    """A row in a table with transactions, and one in a table without: the log then has what is rolled back."""
    return f"INSERT INTO t VALUES ({number})", f"INSERT INTO plain VALUES ({number})"


XA = ("XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")


@pytest.mark.parametrize(
    "statements",
    [
        ("START TRANSACTION", *insert(1), "SAVEPOINT s", *insert(2), "ROLLBACK TO s", *insert(3), "COMMIT"),
        ("START TRANSACTION", "SAVEPOINT `s t`", *insert(1), "SAVEPOINT u", "ROLLBACK TO `S T`", *insert(2), "COMMIT"),
        ("START TRANSACTION", *insert(1), "ROLLBACK"),
        ("XA START 'x'", *insert(1), "SAVEPOINT s", *insert(2), "ROLLBACK TO s", *insert(3), *XA),
        ("XA START 'x'", *insert(1), "XA END 'x'", "XA ROLLBACK 'x'"),
    ],
)
@pytest.mark.behaviour("B1")
def test_rows_that_were_rolled_back_beside_those_of_an_engine_without_transactions_are_not_sent(
    schema: Schema, statements: tuple[str, ...]
) -> None:
    schema.execute(*TABLES)
    with streaming(schema) as source:
        schema.execute("INSERT INTO t VALUES (0)", *statements, "INSERT INTO t VALUES (9)")
        changes = seen(read_all(source, schema))
    for table in ("t", "plain"):
        sent = fold(change for change in changes if change.table == f"{schema.name}.{table}")
        assert sorted(map(int, sent)) == [row for (row,) in schema.query(f"SELECT id FROM {table} ORDER BY id")]
    assert [change.seq for change in changes if change.table == f"{schema.name}.t"][-1] == 0


@pytest.mark.behaviour("B1", "B8")
def test_a_part_of_a_transaction_that_a_crash_has_left_in_the_log_is_told_and_not_sent(
    own_mariadb: EmbeddedMariadb, caplog: pytest.LogCaptureFixture
) -> None:
    schema = new_schema(own_mariadb.host, own_mariadb.port, own_mariadb.version, "torn")
    schema.execute(*TABLES)
    with streaming(schema) as source:
        position = read_all(source, schema)[-1].position
    schema.execute("INSERT INTO t VALUES (1)")
    schema.transaction("INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)")
    torn = schema.value("SELECT @@gtid_binlog_pos")
    own_mariadb.stop(kill=True)
    tear_the_last_transaction(own_mariadb)
    own_mariadb.start()
    schema.execute("INSERT INTO t VALUES (4)")
    with streaming(schema, position) as source:
        changes = seen(read_all(source, schema))
    assert [change.after and change.after["id"] for change in changes] == ["1", "4"]
    [told] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told.startswith(f"source db1: the server crashed while it wrote transaction {torn}: ")


@pytest.mark.behaviour("B1", "B2")
def test_no_change_of_a_transaction_is_left_out_because_a_torn_one_of_its_gtid_was_delivered_in_part(
    own_mariadb: EmbeddedMariadb,
) -> None:
    schema = new_schema(own_mariadb.host, own_mariadb.port, own_mariadb.version, "torn")
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (0, '')")
    with streaming(schema) as source:
        position = read_all(source, schema)[-1].position
    schema.execute("INSERT INTO t VALUES (1, '')")
    schema.transaction(*(f"INSERT INTO t VALUES ({number}, REPEAT('x', 3000))" for number in range(2, 60)))
    torn = schema.value("SELECT @@gtid_binlog_pos")
    own_mariadb.stop(kill=True)
    tear_the_last_transaction(own_mariadb)
    own_mariadb.start()
    schema.transaction(*(f"INSERT INTO t VALUES ({number}, '')" for number in range(100, 160)))
    assert schema.value("SELECT @@gtid_binlog_pos") == torn
    with streaming(schema, position, batchBytes="20kB") as source:
        [*_, part] = read_until(source, lambda batches: len(seen(batches)) > 1)
        with pytest.raises(PositionRefused, match=r"crashed while it wrote .* rows were delivered"):
            read_all(source, schema)
    with streaming(schema, part.position, batchBytes="20kB") as source:
        with pytest.raises(PositionRefused, match=rf"wrote transaction {torn} to binlog\.000001, .* delivered"):
            read_all(source, schema)
        assert not source.status().ok


@pytest.mark.parametrize("later", [0, 2])
@pytest.mark.behaviour("B1", "B2")
def test_a_transaction_that_was_delivered_in_part_and_that_a_failover_has_lost_stops_the_source(
    schema: Schema, later: int
) -> None:
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (0)")
    with streaming(schema) as source:
        position = read_all(source, schema)[-1].position
    commit = int(str(position.data["executed"]).rpartition("-")[2]) + 1
    lost = {"source": "0-9", "commit": commit, "changes": 5, "tables": ""}
    schema.execute(*(f"INSERT INTO t VALUES ({number})" for number in range(1, later + 1)))
    with (
        pytest.raises(PositionRefused, match="not in the binary log of this server"),
        streaming(schema, Position({**position.data, "open": lost}, "")) as source,
    ):
        read_all(source, schema)


def tear_the_last_transaction(server: EmbeddedMariadb) -> None:
    """Cut the last file behind the last but one of its rows events."""
    last = max(path for path in server.data_dir.glob("binlog.0*"))
    held, at, behind = last.read_bytes(), 4, []
    while at < len(held):
        size = int.from_bytes(held[at + 9 : at + 13], "little")
        header = read_header(held[at : at + size])
        at += size
        if header.type == EventType.WRITE_ROWS_V1:
            behind.append(at)
    with last.open("r+b") as file:
        file.truncate(behind[-2])


@pytest.mark.behaviour("B8")
def test_an_alter_that_is_logged_with_its_begin_and_its_end_is_told_once_and_not_at_all_where_it_failed(
    schema: Schema,
) -> None:
    two_phases = "SET SESSION binlog_alter_two_phase = 1"
    if not schema.query("SHOW VARIABLES LIKE 'binlog_alter_two_phase'"):
        pytest.skip("MariaDB has it from 10.8 on")
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with streaming(schema) as source:
        schema.execute(two_phases, "INSERT INTO t VALUES (1)", "ALTER TABLE t ADD x INT", "INSERT INTO t VALUES (2, 2)")
        with pytest.raises(pymysql.IntegrityError):
            schema.execute(two_phases, "INSERT INTO t VALUES (3, 2)", "ALTER TABLE t ADD UNIQUE (x)")
        schema.execute(two_phases, "ALTER TABLE t ADD y INT", "INSERT INTO t VALUES (4, 4, 4)")
        batches = read_all(source, schema)
    told = [statement.text for batch in batches for statement in batch.statements]
    assert told == [f"ALTER TABLE {schema.name}.t"] * 2
    assert sorted(map(int, fold(seen(batches)))) == [1, 2, 3, 4]
