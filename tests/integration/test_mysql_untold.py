"""What a binary log does not have, and what nothing is sent for, is told: by `check`, in the log and in the stats."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from psql_streamer.embedded.mysql import EmbeddedMysql
from tests.mariadb import Schema, fresh_schema
from tests.mysql_accounts import documented_account
from tests.mysql_source import fold, read_all, seen, source_of, streaming
from tests.source_at_work import wait_for

ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY)"
ITEMS = (
    "CREATE TABLE items (id INT PRIMARY KEY, o INT, CONSTRAINT `of`` order` FOREIGN KEY (o) REFERENCES orders (id) "
    "ON DELETE CASCADE ON UPDATE SET NULL)"
)
NOTES = "CREATE TABLE notes (id INT PRIMARY KEY, o INT, CONSTRAINT noted FOREIGN KEY (o) REFERENCES orders (id))"


def findings(schema: Schema, **options: object) -> list[str]:
    """What `check` says of a source of this schema."""
    return [str(finding) for finding in source_of(schema, **options).check()]


@pytest.fixture
def native_mysql() -> Iterator[Schema]:
    """On a MySQL that leaves foreign keys to InnoDB, as all did before 9.6."""
    with (
        EmbeddedMysql(settings={"innodb_native_foreign_keys": "ON"}) as server,
        fresh_schema(server.host, server.port, server.version, "native") as schema,
    ):
        yield schema


def require_the_warning(schema: Schema, caplog: pytest.LogCaptureFixture) -> None:
    """Of the one table of three that foreign keys change, with the account of the page."""
    schema.execute(ORDERS, ITEMS, NOTES)
    told = (
        f"foreign keys change rows of {schema.name}.items, which the server does not write to its binary log "
        f"(of` order: ON DELETE CASCADE ON UPDATE SET NULL of {schema.name}.orders): these changes are not sent: "
    )
    with documented_account(schema, on_tables="SELECT") as dsn:
        [found] = findings(schema, dsn=dsn)
        assert found.startswith(f"warning: {told}")
        assert f"psql-streamer snapshot start --source db1 --table {schema.name}.items" in found
        assert findings(schema, dsn=dsn, tables=[f"{schema.name}.items"]) == [found], "whether the parent is wanted"
        assert findings(schema, dsn=dsn, excludeTables=["items"]) == [], "of no table that is not wanted"
        with caplog.at_level(logging.WARNING), streaming(schema, dsn=dsn) as source:
            wait_for(lambda: "cascaded_tables" in source.stats(), "the look at the tables")
            assert source.stats()["cascaded_tables"] == 1
    assert [told in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.behaviour("B1", "B6")
def test_tables_that_foreign_keys_change_without_the_log_are_named(
    schema: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    require_the_warning(schema, caplog)


@pytest.mark.behaviour("B6")
def test_tables_that_foreign_keys_change_are_told_apart_by_the_case_of_their_names(schema: Schema) -> None:
    schema.execute(
        ORDERS,
        *(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, o INT, "
            f"CONSTRAINT {key} FOREIGN KEY (o) REFERENCES orders (id) ON DELETE CASCADE)"
            for name, key in (("items", "a"), ("ITEMS", "b"))
        ),
    )
    assert [found.partition(", which")[0] for found in findings(schema)] == [
        f"warning: foreign keys change rows of {schema.name}.{name}" for name in ("ITEMS", "items")
    ]


@pytest.mark.soak
@pytest.mark.behaviour("B1", "B6")
def test_tables_that_foreign_keys_change_without_the_log_are_named_on_mysql(
    native_mysql: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    require_the_warning(native_mysql, caplog)


@pytest.mark.behaviour("B1", "B6")
def test_a_server_that_logs_what_foreign_keys_do_is_not_warned_of(mysql: EmbeddedMysql) -> None:
    with fresh_schema(mysql.host, mysql.port, mysql.version, "cascades_logged") as schema:
        if schema.value("SELECT VERSION()") < "9.6":
            pytest.skip("InnoDB carries foreign keys out, and does not log it, before MySQL 9.6")
        schema.execute(ORDERS, ITEMS)
        assert findings(schema) == []
        with streaming(schema) as source:
            schema.execute("INSERT INTO orders VALUES (1)", "INSERT INTO items VALUES (10, 1)", "DELETE FROM orders")
            assert fold(seen(read_all(source, schema))) == {}


@pytest.mark.behaviour("B6")
def test_a_foreign_key_that_is_added_while_the_stream_runs_is_told(
    schema: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    schema.execute(ORDERS, "CREATE TABLE items (id INT PRIMARY KEY, o INT)")
    with streaming(schema) as source:
        wait_for(lambda: source.stats().get("cascaded_tables") == 0, "the look at the tables")
        schema.execute(
            "ALTER TABLE items ADD CONSTRAINT late FOREIGN KEY (o) REFERENCES orders (id) ON DELETE SET NULL"
        )
        read_all(source, schema)
        wait_for(lambda: source.stats().get("cascaded_tables") == 1, "another look at the tables")
    assert "late: ON DELETE SET NULL of" in caplog.text


@pytest.mark.behaviour("B1")
def test_rows_that_a_trigger_on_the_parent_deletes_are_sent(schema: Schema) -> None:
    """What docs/sources/mysql.md advises where a foreign key would delete them."""
    schema.execute(
        ORDERS,
        ITEMS,
        "CREATE TRIGGER items_first BEFORE DELETE ON orders FOR EACH ROW DELETE FROM items WHERE o = OLD.id",
    )
    with streaming(schema) as source:
        schema.execute("INSERT INTO orders VALUES (1)", "INSERT INTO items VALUES (10, 1)", "DELETE FROM orders")
        changes = seen(read_all(source, schema))
    assert [(change.op, change.table) for change in changes[-2:]] == [
        ("D", f"{schema.name}.items"),
        ("D", f"{schema.name}.orders"),
    ]


@pytest.mark.behaviour("B6")
def test_entries_that_fit_no_table_are_told(every_schema: Schema, caplog: pytest.LogCaptureFixture) -> None:
    schema = every_schema
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    wrong = ["shpo.*", f"{schema.name}.tt", "/^mysql\\./"]
    with documented_account(schema, on_tables="SELECT") as dsn:
        found = findings(schema, dsn=dsn, tables=[f"{schema.name}.*", *wrong])
        assert len(found) == len(wrong)
        for entry, told in zip(wrong, found, strict=True):
            assert f'warning: tables has "{entry}", which fits no table that the account sees: nothing is sent' in told
        [nothing_left] = findings(schema, dsn=dsn, excludeTables=["t"])
        assert "warning: excludeTables leaves none of the tables that `tables` fits" in nothing_left
        with streaming(schema, dsn=dsn, tables=["shpo.*"]) as source:
            wait_for(lambda: "cascaded_tables" in source.stats(), "the look at the tables")
    assert 'source db1: tables has "shpo.*", which fits no table that the account sees' in caplog.text


@pytest.mark.behaviour("B6")
def test_an_account_that_sees_no_tables_is_told_what_is_not_known(
    every_schema: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    every_schema.execute(ORDERS)
    with documented_account(every_schema) as dsn:
        [found] = findings(every_schema, dsn=dsn)
        with streaming(every_schema, dsn=dsn) as source:
            wait_for(lambda: "the account sees no tables" in caplog.text, "the look at the tables")
            assert "cascaded_tables" not in source.stats()
    assert "warning: the account sees no tables: whether `tables` fits any is not known" in found
    assert "GRANT SELECT" in found


@pytest.mark.behaviour("B2", "B6")
def test_tables_that_keep_their_history_and_sequences_are_not_taken_for_dropped(schema: Schema) -> None:
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY) WITH SYSTEM VERSIONING", "CREATE SEQUENCE s")
    [found] = findings(schema)
    assert f"warning: {schema.name}.t is system-versioned" in found
    with streaming(schema) as source:
        schema.execute("INSERT INTO t VALUES (1)", "DELETE FROM t", "SELECT NEXTVAL(s)")
        batches = read_all(source, schema)
        changes = seen(batches)
        shown = [change.relation for batch in batches for change in batch.schema_changes]
        assert [(change.op, change.table) for change in changes] == [
            ("I", f"{schema.name}.t"),
            ("U", f"{schema.name}.t"),
            ("I", f"{schema.name}.s"),
        ]
        dropped = source.find_dropped(shown)
    assert dropped is not None
    assert [str(one) for one in dropped[1]] == []
