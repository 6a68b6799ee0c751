"""Statements that make, change and remove tables: what the log says of them, and that none stops the stream."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pymysql
import pytest

from psql_streamer.embedded.mariadb import EmbeddedMariadb
from tests.mariadb import Schema, fresh_schema
from tests.mysql_source import fold, read_all, seen, streaming

TABLE = "CREATE TABLE {} (id INT PRIMARY KEY, note VARCHAR(40))"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the source has logged of statements."""
    return [record.getMessage() for record in caplog.records if record.name == "sources.mysql.batches"]


@pytest.mark.behaviour("B8")
def test_a_table_that_is_dropped_renamed_or_altered_is_a_line_in_the_log(
    every_schema: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    schema, name = every_schema, every_schema.name
    schema.execute(*map(TABLE.format, ("t", "u", "_t_gho", "other")), f"CREATE DATABASE {name}_2")
    caplog.set_level(logging.INFO)
    with streaming(schema, tables=[f"{name}.*", f"{name}_2.*"], excludeTables=["_*", "other"]) as source:
        schema.execute(
            "ALTER TABLE other ADD n INT",
            "ALTER TABLE t ADD n INT",
            "RENAME TABLE t TO _t_del, _t_gho TO t",
            "DROP TABLE other, u, t",
            "DROP TABLE IF EXISTS _t_del",
            f"DROP DATABASE {name}_2",
        )
        assert seen(read_all(source, schema)) == []
    assert told(caplog) == [
        f"source db1: ALTER TABLE {name}.t",
        f"source db1: RENAME TABLE {name}.t TO {name}._t_del, {name}._t_gho TO {name}.t",
        f"source db1: DROP TABLE {name}.other, {name}.u, {name}.t",
        f"source db1: DROP DATABASE {name}_2",
    ]


@pytest.mark.behaviour("B8")
def test_the_table_that_is_exchanged_for_a_partition_is_told_too(every_schema: Schema) -> None:
    """Its rows go as those of the partition do."""
    schema = every_schema
    schema.execute(
        f"{TABLE.format('t')} PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (10))", TABLE.format("u")
    )
    with streaming(schema, tables=[f"{schema.name}.u"]) as source:
        schema.execute("INSERT INTO u (id) VALUES (1)", "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u")
        told = [one for batch in read_all(source, schema) for one in batch.statements]
    assert [(str(one.relation), one.text) for one in told] == [
        (f"{schema.name}.u", f"ALTER TABLE {schema.name}.t EXCHANGE PARTITION WITH TABLE {schema.name}.u")
    ]


@pytest.mark.behaviour("B8")
def test_what_a_new_table_or_schema_replaces_is_told(schema: Schema, caplog: pytest.LogCaptureFixture) -> None:
    """MariaDB alone has such statements. The rows and tables of before go with them."""
    other = f"{schema.name}_other"
    schema.execute(f"CREATE DATABASE {other}", TABLE.format("t"), *(TABLE.format(f"{other}.{one}") for one in "uv"))
    caplog.set_level(logging.INFO)
    try:
        with streaming(schema, tables=[f"{schema.name}.t", f"{other}.*"]) as source:
            schema.execute(
                *(f"INSERT INTO {table} (id) VALUES (1)" for table in ("t", f"{other}.u", f"{other}.v")),
                f"CREATE OR REPLACE {TABLE.format('t').removeprefix('CREATE ')}",
                f"CREATE OR REPLACE DATABASE {other}",
            )
            statements = [one for batch in read_all(source, schema) for one in batch.statements]
    finally:
        schema.execute(f"DROP DATABASE {other}")
    table, database = f"CREATE OR REPLACE TABLE {schema.name}.t", f"CREATE OR REPLACE DATABASE {other}"
    assert [(str(one.relation), one.text) for one in statements] == [
        (f"{schema.name}.t", table),
        (f"{other}.u", database),
        (f"{other}.v", database),
    ]
    assert told(caplog) == [f"source db1: {table}", f"source db1: {database}"]


@pytest.mark.behaviour("B8")
def test_statements_about_a_sequence_are_told(schema: Schema) -> None:
    """They change its row, and the binary log has no row of it."""
    about = [f"{words} SEQUENCE {schema.name}.s" for words in ("CREATE", "ALTER", "CREATE OR REPLACE", "DROP")]
    with streaming(schema) as source:
        schema.execute(about[0], "SELECT NEXTVAL(s)", f"{about[1]} RESTART 50", about[2], about[3])
        batches = read_all(source, schema)
    assert [(str(one.relation), one.text) for batch in batches for one in batch.statements] == [
        (f"{schema.name}.s", text) for text in about
    ]


ODD = (
    "CREATE VIEW v AS SELECT id FROM t",
    "CREATE TRIGGER counted AFTER INSERT ON t FOR EACH ROW SET @rows = COALESCE(@rows, 0) + 1",
    "CREATE PROCEDURE p() BEGIN INSERT INTO t VALUES (0, 'never called; DROP TABLE t'); END",
    "CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN 1",
    "/* a comment; DROP TABLE t */ ALTER /*!50000 TABLE */ t -- and another\n ADD COLUMN `drop``table t` INT",
    "CREATE TABLE `insert into t` (`values (` INT PRIMARY KEY, `update` VARCHAR(9) DEFAULT 'a''b\\\\')",
    "ALTER TABLE t ADD CONSTRAINT `c` CHECK (note <> 'TRUNCATE TABLE t'), COMMENT = 'RENAME TABLE t TO u'",
    "CREATE OR REPLACE VIEW v AS SELECT note FROM t",
    "ANALYZE TABLE t",
    "OPTIMIZE TABLE t",
    "CREATE INDEX i ON t (note)",
    "DROP INDEX i ON t",
    "CREATE USER {user}@'%' IDENTIFIED BY 'INSERT INTO t VALUES (1)'",
    "GRANT SELECT ON *.* TO {user}@'%'",
    "FLUSH TABLES",
    "DROP USER {user}@'%'",
    "DROP PROCEDURE p",
    "DROP FUNCTION f",
    "DROP TRIGGER counted",
    "DROP VIEW v",
)
"""Statements of all kinds, some of which look like others in quotes and comments."""

TEMPORARY = (
    "CREATE TEMPORARY TABLE mine AS SELECT * FROM t",
    "INSERT INTO mine (id) VALUES (77)",
    "UPDATE mine SET note = 'mine'",
    "DROP TEMPORARY TABLE mine",
)


@pytest.mark.behaviour("B8")
def test_statements_of_any_kind_neither_stop_the_stream_nor_show_what_is_in_them(
    every_schema: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    schema = every_schema
    schema.execute(TABLE.format("t"))
    caplog.set_level(logging.INFO)
    with streaming(schema) as source:
        for number, statement in enumerate(ODD):
            schema.execute(statement.format(user=f"u{schema.name[-8:]}"), f"INSERT INTO t (id) VALUES ({number})")
        schema.execute(*TEMPORARY, f"INSERT INTO t (id) VALUES ({len(ODD)})")
        changes = seen(read_all(source, schema))
    numbers = [str(number) for number in range(len(ODD) + 1)]
    assert [(change.op, change.after and change.after["id"]) for change in changes] == [("I", one) for one in numbers]
    assert not any("VALUES" in line or "comment" in line for line in told(caplog))


SPELLED = (
    "INSERT INTO {0} VALUES (1)",
    "TRUNCATE TABLE {0}",
    "INSERT INTO {0} VALUES (2)",
    "ALTER TABLE {0} ADD n INT",
)


def follow_another_spelling(schema: Schema, table: str, written: str, run: Callable[..., None]) -> None:
    """Statements of a table whose name they write in another way than row events have it."""
    schema.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", "CREATE TABLE other (id INT PRIMARY KEY)")
    with streaming(schema, tables=[f"{schema.name}.{table}"]) as source:
        run(*(statement.format(written) for statement in SPELLED), f"DROP TABLE {written}")
        batches = read_all(source, schema)
    assert [change.table for change in seen(batches)] == [f"{schema.name}.{table}"] * 2
    assert [str(one.relation) for batch in batches for one in batch.truncates] == [f"{schema.name}.{table}"]
    assert [(str(one.relation), one.text) for batch in batches for one in batch.statements] == [
        (f"{schema.name}.{table}", f"{words} {schema.name}.{table}") for words in ("ALTER TABLE", "DROP TABLE")
    ]


@pytest.mark.behaviour("B1", "B8")
def test_statements_of_a_client_whose_character_set_is_not_utf_8_are_followed(every_schema: Schema) -> None:
    def run(*statements: str) -> None:
        with (
            pymysql.connect(
                host=every_schema.host,
                port=every_schema.port,
                user="root",
                database=every_schema.name,
                charset="latin1",
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
                connection.commit()

    follow_another_spelling(every_schema, "été", "`été`", run)


@pytest.mark.soak
@pytest.mark.behaviour("B1", "B8")
def test_statements_that_write_names_in_other_cases_are_followed_where_the_server_does_so() -> None:
    with (
        EmbeddedMariadb(settings={"lower_case_table_names": "1"}) as server,
        fresh_schema(server.host, server.port, server.version, "s") as schema,
    ):
        follow_another_spelling(schema, "orders", "S.Orders", schema.execute)


@pytest.mark.behaviour("B1", "B8")
def test_statements_about_a_temporary_table_leave_the_table_alone_that_it_hides(every_schema: Schema) -> None:
    schema = every_schema
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with streaming(schema) as source:
        schema.execute(
            "INSERT INTO t VALUES (1)",
            "SET SESSION binlog_format = STATEMENT",
            "CREATE TEMPORARY TABLE t (x INT)",
            "TRUNCATE TABLE t",
            "ALTER TABLE t ADD y INT",
            "DROP TEMPORARY TABLE t",
            "ALTER TABLE t ADD y INT",
        )
        batches = read_all(source, schema)
    assert not [truncate for batch in batches for truncate in batch.truncates]
    assert [statement.text for batch in batches for statement in batch.statements] == [f"ALTER TABLE {schema.name}.t"]
    assert list(fold(seen(batches))) == ["1"]
