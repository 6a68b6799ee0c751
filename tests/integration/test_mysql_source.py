"""The `mysql` source on servers of MariaDB and MySQL: transactions, tables, positions."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from psql_streamer.embedded.mariadb import EmbeddedMariadb
from psql_streamer.embedded.mysql import EmbeddedMysql
from psql_streamer.errors import PositionRefused, SourceRefused, SourceUnavailable
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch, Position
from sources.mysql.positions import make_override_position
from sources.mysql.server_errors import SameServerId
from tests.encoding import encoder_of
from tests.mariadb import Schema, fresh_schema
from tests.mysql_source import (
    ABSENT,
    identities,
    purge_all_but_the_last,
    read_all,
    read_until,
    seen,
    source_of,
    streaming,
)
from tests.source_at_work import wait_for


@pytest.fixture
def schema(every_schema: Schema) -> Schema:
    """Every test runs on MariaDB and on MySQL, but those that have a server of their own."""
    return every_schema


TABLE = "CREATE TABLE t (id INT PRIMARY KEY, note VARCHAR(20))"


def ids(batches: list[Batch]) -> list[str]:
    """The ids of the new rows, in order."""
    return [change.after["id"] for change in seen(batches) if change.after is not None]


@pytest.mark.behaviour("B1")
def test_every_change_has_its_rows_before_and_after(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        schema.execute("INSERT INTO t VALUES (1, 'a')", "UPDATE t SET note = NULL", "DELETE FROM t")
        changes = seen(read_all(source, schema))
    a, null = {"id": "1", "note": "a"}, {"id": "1", "note": None}
    assert [(change.op, change.before, change.after) for change in changes] == [
        ("I", None, a),
        ("U", a, null),
        ("D", null, None),
    ]


def test_events_go_to_a_topic_of_their_schema_and_table(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        schema.execute("INSERT INTO t VALUES (1, 'a')")
        batches = [batch for batch in read_all(source, schema) if len(batch)]
    records = encoder_of("event", Router({"*": "{schema}_{table}"}, "", ""), {}).encode(batches[-1])
    assert [records.look_up_topic(at) for at in range(len(records))] == [f"{schema.name}_t"]


@pytest.mark.behaviour("B1")
def test_the_key_of_an_event_is_that_of_its_table_and_null_without_one(schema: Schema) -> None:
    schema.execute("CREATE TABLE keyed (note TEXT, b INT, a INT, PRIMARY KEY (a, b))", "CREATE TABLE keyless (id INT)")
    with streaming(schema) as source:
        schema.execute("INSERT INTO keyed VALUES ('x', 2, 1)", "INSERT INTO keyless VALUES (1), (1)")
        schema.execute("UPDATE keyless SET id = 2", "DELETE FROM keyed")
        batches = [batch for batch in read_all(source, schema) if len(batch)]
    encoder = encoder_of("event", Router({"*": "{table}"}, "", ""), {})
    records = [
        (records.look_up_topic(at), key)
        for records in map(encoder.encode, batches)
        for at, key in enumerate(records.keys.to_pylist())
    ]
    assert {key for topic, key in records if topic == "keyed"} == {b'{"b":2,"a":1}'}
    assert [key for topic, key in records if topic == "keyless"] == [None] * 4


@pytest.mark.behaviour("B1")
def test_a_statement_of_many_rows_is_one_transaction_whose_rows_are_numbered(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        schema.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')", "INSERT INTO t VALUES (4, 'd')")
        changes = seen(read_all(source, schema))
    assert [change.seq for change in changes] == [0, 1, 2, 0]
    assert len({change.commit for change in changes}) == 2


@pytest.mark.behaviour("B1")
def test_what_is_rolled_back_never_comes(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        schema.execute("BEGIN", "INSERT INTO t VALUES (1, 'a')", "ROLLBACK")
        schema.execute(
            "BEGIN",
            "INSERT INTO t VALUES (2, 'b')",
            "SAVEPOINT s",
            "INSERT INTO t VALUES (3, 'c')",
            "ROLLBACK TO SAVEPOINT s",
            "INSERT INTO t VALUES (4, 'd')",
            "COMMIT",
        )
        assert ids(read_all(source, schema)) == ["2", "4"]


def test_a_start_without_a_position_begins_at_the_end(schema: Schema) -> None:
    schema.execute(TABLE, "INSERT INTO t VALUES (1, 'before')")
    with streaming(schema) as source:
        schema.execute("INSERT INTO t VALUES (2, 'after')")
        assert ids(read_all(source, schema)) == ["2"]


@pytest.mark.behaviour("B4")
def test_a_restart_inside_a_transaction_goes_on_behind_what_was_delivered(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema, batchSize=4) as source:
        schema.transaction(*(f"INSERT INTO t VALUES ({number}, 'x')" for number in range(10)))
        whole = read_all(source, schema)
    everything = identities(whole)
    assert [seq for _, seq in everything] == list(range(10))
    inside = [batch for batch in whole if batch.position.data["open"]]
    assert len(inside) > 3
    for batch in inside[::3]:
        had = batch.position.data["open"]["changes"]
        with streaming(schema, batch.position) as again:
            assert identities(read_all(again, schema)) == everything[had:]


def test_other_tables_stay_out(schema: Schema) -> None:
    schema.execute(TABLE, "CREATE TABLE _t_gho (id INT PRIMARY KEY)", "CREATE TABLE other (id INT PRIMARY KEY)")
    with streaming(schema, tables=["*.t", "*._t*"], excludeTables=["_*_gho"]) as source:
        schema.execute(
            "INSERT INTO _t_gho VALUES (1)",
            "INSERT INTO other VALUES (2)",
            "INSERT INTO t VALUES (3, 'c')",
        )
        batches = read_all(source, schema)
    assert {change.table for change in seen(batches)} == {f"{schema.name}.t"}


@pytest.mark.parametrize("tables", ["*", "*.*", "/./", "mysql.*"])
def test_system_schemas_stay_out_whatever_tables_says(schema: Schema, tables: str) -> None:
    """Rows of a table that somebody has made there are in the binary log like others."""
    schema.execute(TABLE)
    places = [f"{system}.audit_{schema.name}" for system in ("mysql", "sys")]
    with streaming(schema, tables=[tables, f"{schema.name}.t"]) as source:
        try:
            schema.execute("CREATE USER IF NOT EXISTS somebody")
            schema.execute(*(f"CREATE TABLE {place} (id INT PRIMARY KEY)" for place in places))
            schema.execute(*(f"INSERT INTO {place} VALUES (1)" for place in places), "INSERT INTO t VALUES (2, 'b')")
            batches = read_all(source, schema)
            published = source.list_published() or ()
        finally:
            schema.execute(*(f"DROP TABLE IF EXISTS {place}" for place in places))
    assert {change.table for change in seen(batches)} == {f"{schema.name}.t"}
    assert not {str(relation) for relation in published} & set(places)


@pytest.mark.behaviour("B2")
def test_each_row_has_the_shape_of_its_time(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        beginning = source.find_dropped([])
        schema.execute(
            "INSERT INTO t VALUES (1, 'a')",
            "ALTER TABLE t ADD COLUMN more INT DEFAULT 7 FIRST",
            "INSERT INTO t (id) VALUES (2)",
            "ALTER TABLE t DROP COLUMN note, CHANGE more renamed BIGINT",
            "INSERT INTO t (id) VALUES (3)",
        )
        read_all(source, schema)
    assert beginning is not None
    with streaming(schema, beginning[0]) as again:  # over a binary log older than the table's shape
        batches = read_all(again, schema)
    assert [change.after for change in seen(batches)] == [
        {"id": "1", "note": "a"},
        {"more": "7", "id": "2", "note": None},
        {"renamed": None, "id": "3"},
    ]
    versions = [change.relation.version for batch in batches for change in batch.schema_changes]
    assert versions == [1, 2, 3]


@pytest.mark.behaviour("B2")
def test_a_table_that_is_renamed_comes_under_its_new_name(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        schema.execute("INSERT INTO t VALUES (1, 'a')", "RENAME TABLE t TO u", "INSERT INTO u VALUES (2, 'b')")
        changes = seen(read_all(source, schema))
    assert [change.table for change in changes] == [f"{schema.name}.t", f"{schema.name}.u"]


@pytest.mark.behaviour("B2")
def test_a_truncate_is_one_change_of_its_table(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        schema.execute("INSERT INTO t VALUES (1, 'a')", "TRUNCATE TABLE t", "DROP TABLE t")
        batches = read_all(source, schema)
    truncates = [truncate for batch in batches for truncate in batch.truncates]
    assert [str(truncate.relation) for truncate in truncates] == [f"{schema.name}.t"]
    assert [column.name for column in truncates[0].relation.columns] == ["id", "note"]


@pytest.mark.behaviour("B2")
@pytest.mark.parametrize("table", ["t/* nightly */", "t#", "table1", "tables1", "online", "`t`-- now"])
def test_a_truncate_is_told_whatever_stands_around_its_name(schema: Schema, table: str) -> None:
    name = table.strip("`").partition("/")[0].partition("#")[0].partition("`")[0]
    schema.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    with streaming(schema) as source:
        schema.execute(f"INSERT INTO {name} VALUES (1)", f"TRUNCATE {table}")
        batches = read_all(source, schema)
    truncates = [truncate for batch in batches for truncate in batch.truncates]
    assert [truncate.relation.table for truncate in truncates] == [name]


@pytest.mark.behaviour("B2")
def test_a_statement_about_a_table_is_told_when_it_comes_with_the_shape_that_the_table_had(schema: Schema) -> None:
    name = schema.name
    schema.execute(TABLE)
    with streaming(schema) as source:
        schema.execute(
            "INSERT INTO t VALUES (1, 'a')",
            "ALTER TABLE t ADD COLUMN secret VARCHAR(20) DEFAULT 'hush'",
            "RENAME TABLE t TO u",
            "CREATE TABLE v (id INT PRIMARY KEY)",
            "ALTER TABLE v ADD COLUMN a INT DEFAULT 5, RENAME TO w",
            "CREATE TEMPORARY TABLE mine (id INT)",
            "DROP TEMPORARY TABLE mine",
            "DROP TABLE u, w",
        )
        batches = read_all(source, schema)
    topics = schema_records(batches)
    shape = ["id", "note"]
    assert [(one["statement"], one["table"], columns_before(one)) for one in topics if one["op"] == "DDL"] == [
        (f"ALTER TABLE {name}.t", "t", shape),
        (f"RENAME TABLE {name}.t TO {name}.u", "t", shape),
        (f"RENAME TABLE {name}.t TO {name}.u", "u", None),
        (f"CREATE TABLE {name}.v", "v", None),
        (f"ALTER TABLE {name}.v RENAME TO {name}.w", "v", None),
        (f"ALTER TABLE {name}.v RENAME TO {name}.w", "w", None),
        (f"DROP TABLE {name}.u, {name}.w", "u", None),
        (f"DROP TABLE {name}.u, {name}.w", "w", None),
    ]
    assert topics[0]["op"] == "SCHEMA"
    assert all(one["after"] is None and one["source"]["commit"] for one in topics[1:])
    assert "hush" not in str(topics)


def test_tables_that_go_with_their_schema_are_told(schema: Schema) -> None:
    other = f"{schema.name}_other"
    schema.execute(
        f"CREATE DATABASE {other}", *(f"CREATE TABLE {other}.{table} (id INT PRIMARY KEY)" for table in "tu")
    )
    with streaming(schema, tables=[f"{other}.*"]) as source:
        schema.execute(*(f"INSERT INTO {other}.{table} VALUES (1)" for table in "tu"), f"DROP DATABASE {other}")
        batches = read_all(source, schema)
    told = [(one["statement"], one["table"]) for one in schema_records(batches) if one["op"] == "DDL"]
    assert told == [(f"DROP DATABASE {other}", table) for table in "tu"]


def schema_records(batches: list[Batch]) -> list[dict[str, Any]]:
    encoder = encoder_of("event", Router({}, "", "rows"), {}, schema_topic="shapes")
    records = [encoder.encode(batch) for batch in batches]
    return [
        json.loads(some.values[at].as_py())
        for some in records
        for at in range(len(some))
        if some.look_up_topic(at) == "shapes"
    ]


def columns_before(record: dict[str, Any]) -> list[str] | None:
    return record["before"] and [column["name"] for column in record["before"]["columns"]]


def test_a_shape_that_is_remembered_is_no_change(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        schema.execute("INSERT INTO t VALUES (1, 'a')")
        batches = read_all(source, schema)
        shapes = [change.relation for batch in batches for change in batch.schema_changes]
        schema.execute("INSERT INTO t VALUES (2, 'b')")
    assert len(shapes) == 1
    with streaming(schema, batches[-1].position, shapes) as again:
        batches = read_all(again, schema)
    assert ids(batches) == ["2"]
    assert not any(batch.schema_changes for batch in batches)


def test_what_the_catalog_says_is_what_the_stream_says(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        schema.execute("INSERT INTO t VALUES (1, 'a')")
        batches = read_all(source, schema)
        assert source.list_published() == [change.relation for batch in batches for change in batch.schema_changes]


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
@pytest.mark.behaviour("B3")
def test_what_a_row_image_lacks_is_told_apart_from_null(schema: Schema, image: str) -> None:
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT)", "INSERT INTO t VALUES (1, NULL, 'x')")
    with streaming(schema) as source:
        schema.execute(f"SET SESSION binlog_row_image = '{image}'", "UPDATE t SET a = 2", "UPDATE t SET a = NULL")
        changes = seen(read_all(source, schema))
    expected = {"a": "2", "b": ABSENT}
    assert {name: changes[0].after[name] for name in expected} == expected  # type: ignore[index]
    assert changes[1].after["a"] is None  # type: ignore[index]


@pytest.mark.behaviour("B4")
def test_rotations_and_restarts_of_the_server_are_followed(own_mariadb: EmbeddedMariadb) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "s") as schema:
        schema.execute(TABLE)
        source = source_of(schema)
        source.read_stream_identity()
        source.start(None)
        try:
            schema.execute("INSERT INTO t VALUES (1, 'a')", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 'b')")
            batches = read_all(source, schema)
            assert ids(batches) == ["1", "2"]
            server.restart()
            schema.execute("INSERT INTO t VALUES (3, 'c')")
            with pytest.raises(SourceUnavailable, match=r"was lost|ended the stream"):
                read_until(source, lambda _: False)
            assert not source.status().ok
            source.start(batches[-1].position)
            assert ids(read_all(source, schema)) == ["3"]
            assert source.stats()["reconnects"] == 1
        finally:
            source.stop()


@pytest.mark.behaviour("B4")
def test_a_failover_to_a_replica_goes_on_without_a_gap(own_mariadb: EmbeddedMariadb) -> None:
    primary = own_mariadb
    with EmbeddedMariadb(settings={"server_id": "2"}) as replica:
        at_replica = Schema("s", replica.host, replica.port, replica.version)
        Schema("mysql", replica.host, replica.port, replica.version).execute(
            f"CHANGE MASTER TO MASTER_HOST = '{primary.host}', MASTER_PORT = {primary.port}, MASTER_USER = 'root', "
            "MASTER_USE_GTID = slave_pos",
            "START SLAVE",
        )
        with fresh_schema(primary.host, primary.port, primary.version, "s") as schema:
            schema.execute(TABLE)
            with streaming(schema) as source:
                schema.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')", "INSERT INTO t VALUES (3, 'c')")
                batches = read_all(source, schema)
            schema.execute("INSERT INTO t VALUES (4, 'd')")
            end = schema.value("SELECT @@gtid_binlog_pos")
            wait_for(lambda: bool(at_replica.value("SELECT @@gtid_slave_pos") == end), "the replica to catch up")
            at_replica.execute("STOP SLAVE", "RESET SLAVE ALL", "INSERT INTO t VALUES (5, 'e')")
            with streaming(at_replica, batches[-1].position) as source:
                there = read_all(source, at_replica)
                schema.execute("INSERT INTO t VALUES (9, 'lost')")
            assert ids(there) == ["4", "5"]
            commits = [commit for commit, _ in identities(batches + there)]
            assert commits == sorted(commits)
            with streaming(at_replica, batches[0].position) as source:
                repeated = set(identities(read_all(source, at_replica)))
            assert repeated <= set(identities(batches + there)), "a repeat has the identity that it had"


@pytest.mark.behaviour("B4")
def test_a_server_without_transactions_that_were_delivered_is_refused(own_mariadb: EmbeddedMariadb) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "s") as schema:
        schema.execute(TABLE, "INSERT INTO t VALUES (1, 'a')")
        with streaming(schema) as source:
            schema.execute("INSERT INTO t VALUES (2, 'b')")
            position = read_all(source, schema)[-1].position
        schema.execute("RESET MASTER")
        with pytest.raises(PositionRefused, match=r"transactions that were delivered are not in the binary log"):
            source_of(schema).start(position)


def lose_two_transactions(schema: Schema) -> Position:
    """Where a source stood before them; the server has removed the logs that they are in."""
    schema.execute(TABLE)
    with streaming(schema) as source:
        schema.execute("INSERT INTO t VALUES (1, 'a')")
        position = read_all(source, schema)[-1].position
    schema.execute("INSERT INTO t VALUES (2, 'b')", "INSERT INTO t VALUES (3, 'c')", "FLUSH BINARY LOGS")
    purge_all_but_the_last(schema)
    return position


@pytest.mark.behaviour("B4")
def test_binary_logs_that_were_removed_stop_it_with_the_size_of_the_gap(own_mariadb: EmbeddedMariadb) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "s") as schema:
        position = lose_two_transactions(schema)
        source = source_of(schema)
        with pytest.raises(PositionRefused, match=r"2 transactions .* no longer in .* --accept-gap"):
            source.start(position)
        assert [str(finding) for finding in source.check_position(position)] != []
        assert not source.status().ok


@pytest.mark.behaviour("B7")
def test_a_second_client_with_the_same_server_id_is_told_so(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema, serverId=4711) as first, streaming(schema, serverId=4711):
        with pytest.raises(SameServerId, match="give this source a serverId of its own"):
            read_until(first, lambda _: False, 10)
        assert not first.status().ok


def test_two_sources_have_server_ids_of_their_own(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as one, streaming(schema) as other:
        schema.execute("INSERT INTO t VALUES (1, 'a')")
        assert ids(read_all(one, schema)) == ids(read_all(other, schema)) == ["1"]
        assert one.stats()["server_id"] != other.stats()["server_id"]


@pytest.mark.behaviour("B7")
def test_an_idle_server_sends_heartbeats_and_a_silent_one_counts_as_lost(schema: Schema) -> None:
    with streaming(schema, receiveTimeout="1s") as source:
        began = time.monotonic()
        while time.monotonic() - began < 1.6:
            source.read(0.2)
        assert source.status().ok
        server = schema.value("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'")
        schema.execute(f"KILL {server}")
        with pytest.raises(SourceUnavailable):
            read_until(source, lambda _: False, 10)


@pytest.mark.behaviour("B10")
def test_packets_above_16_mb_are_put_together(own_mariadb: EmbeddedMariadb) -> None:
    server = own_mariadb
    server.settings["max_allowed_packet"] = "128M"
    server.restart()
    with fresh_schema(server.host, server.port, server.version, "s") as schema:
        schema.execute("CREATE TABLE big (id INT PRIMARY KEY, doc LONGTEXT)")
        with streaming(schema) as source:
            schema.execute("INSERT INTO big VALUES (1, REPEAT('0123456789abcdef', 2200000)), (2, 'small')")
            changes = seen(read_all(source, schema))
    assert [len(change.after["doc"]) for change in changes] == [35_200_000, 5]  # type: ignore[index]
    assert changes[0].after["doc"].endswith("cdef")  # type: ignore[index]


def test_an_interrupt_ends_a_start_that_waits(schema: Schema) -> None:
    source = source_of(schema, dsn="mysql://root@127.0.0.1:9/", timeout="30s")
    source.interrupt()
    failed: list[BaseException] = []

    def start() -> None:
        try:
            source.start(None)
        except SourceUnavailable as error:
            failed.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    starting.join(5)
    assert failed


def test_what_accepts_a_connection_and_keeps_silent_is_named_when_waiting_for_it_is_given_up(schema: Schema) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        source = source_of(schema, dsn=f"mysql://root@127.0.0.1:{port}/")
        failed: list[str] = []

        def start() -> None:
            with pytest.raises(SourceUnavailable) as error:
                source.start(None)
            failed.append(str(error.value))

        starting = threading.Thread(target=start)
        starting.start()
        with silent.accept()[0]:
            source.interrupt()
            starting.join(5)
    what = f"127.0.0.1:{port} had not answered when waiting for it was given up"
    assert failed == [f"{what}: check host and port in the dsn"]


@pytest.mark.behaviour("B1")
def test_xa_rows_come_when_the_transaction_is_committed_and_not_before(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        schema.execute("XA START 'x'", "INSERT INTO t VALUES (1, 'xa')", "XA END 'x'", "XA PREPARE 'x'")
        schema.execute("INSERT INTO t VALUES (2, 'between')")
        before = read_until(source, lambda batches: "2" in ids(batches))
        assert ids(before) == ["2"]
        assert "rows wait for XA transactions that are prepared and not committed (1)" in source.status().reason
        schema.execute("XA COMMIT 'x'")
        after = read_until(source, lambda batches: "1" in ids(batches))
        assert "prepared" not in source.status().reason
        schema.execute("XA START 'y'", "INSERT INTO t VALUES (3, 'y')", "XA END 'y'", "XA PREPARE 'y'")
        schema.execute("XA ROLLBACK 'y'", "INSERT INTO t VALUES (4, 'end')")
        assert ids(read_all(source, schema)) == ["4"]
    assert ids(after) == ["1"]
    with streaming(schema, before[-1].position) as again:  # the prepared rows come again with the restart
        assert ids(read_all(again, schema))[-2:] == ["1", "4"]


@pytest.mark.behaviour("B5")
def test_compressed_binary_logs_are_read(every_schema: Schema) -> None:
    schema = every_schema
    mariadb = "mariadb" in schema.value("SELECT VERSION()").lower()
    schema.execute("CREATE TABLE big (id INT PRIMARY KEY, doc TEXT)")
    with streaming(schema) as source:
        on = "GLOBAL log_bin_compress = 1" if mariadb else "SESSION binlog_transaction_compression = 1"
        try:
            schema.execute(
                f"SET {on}", "INSERT INTO big VALUES (1, REPEAT('compress me ', 500))", "UPDATE big SET doc = 'y'"
            )
        finally:
            if mariadb:
                schema.execute("SET GLOBAL log_bin_compress = 0")
        changes = seen(read_all(source, schema))
    assert [change.op for change in changes] == ["I", "U"]
    assert (changes[0].after or {})["doc"] == "compress me " * 500


@pytest.mark.behaviour("B5")
def test_rows_that_come_as_statements_stop_it_by_name(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        with schema.session() as cursor:
            cursor.execute("SELECT CONNECTION_ID()")
            [number] = cursor.fetchone()
            cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
            cursor.execute("INSERT INTO t VALUES (1, 'a value')")
        told = (
            rf"INSERT in '{schema.name}' as a statement, not as rows, of session {number} before .*: "
            r"INSERT INTO t VALUES \(\?, \?\): .*PROCESSLIST"
        )
        with pytest.raises(SourceRefused, match=told) as failure:
            read_all(source, schema)
        assert "a value" not in str(failure.value)
        assert not source.status().ok


@pytest.mark.behaviour("B5")
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT f()", "SELECT"),
        ("CREATE TABLE u AS SELECT 7 AS id, 'a value' AS note", "CREATE TABLE"),
        ("ANALYZE INSERT INTO t VALUES (7, 'a value')", "ANALYZE"),
        ("SET STATEMENT max_statement_time = 9 FOR INSERT INTO t VALUES (7, 'a value')", "INSERT"),
        ("LOAD DATA INFILE '{file}' INTO TABLE t FIELDS TERMINATED BY ','", "LOAD"),
    ],
)
def test_a_statement_that_does_not_begin_with_its_rows_stops_it_too(schema: Schema, statement: str, told: str) -> None:
    file = f"{schema.value('SELECT @@tmpdir')}/{schema.name}.csv"
    schema.execute(
        TABLE,
        "CREATE FUNCTION f() RETURNS INT MODIFIES SQL DATA DETERMINISTIC "
        "BEGIN INSERT INTO t VALUES (7, 'a value'); RETURN 1; END",
        f"SELECT 7, 'a value' INTO OUTFILE '{file}' FIELDS TERMINATED BY ','",
    )
    with streaming(schema) as source:
        schema.execute("SET SESSION binlog_format = 'STATEMENT'", statement.format(file=file))
        with pytest.raises(SourceRefused, match=rf"{told} in '{schema.name}' as a statement, not as rows") as failure:
            read_all(source, schema)
        assert "a value" not in str(failure.value)


def test_a_truncate_with_settings_of_its_own_is_told(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        schema.execute("SET STATEMENT lock_wait_timeout = 5 FOR TRUNCATE TABLE t")
        [truncate] = [found for batch in read_all(source, schema) for found in batch.truncates]
        assert str(truncate.relation) == f"{schema.name}.t"


def test_a_table_that_is_made_of_a_query_comes_with_its_rows(schema: Schema) -> None:
    schema.execute(TABLE, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    with streaming(schema) as source:
        schema.execute("CREATE TABLE u AS SELECT * FROM t")
        assert [change.table for change in seen(read_all(source, schema))] == [f"{schema.name}.u"] * 2


def test_transactions_are_counted_by_table_also_over_a_restart(schema: Schema) -> None:
    schema.execute(TABLE, "CREATE TABLE u (id INT PRIMARY KEY)")
    source = source_of(schema, batchSize=4)
    source.provide_transaction_metadata()
    source.read_stream_identity()
    source.start(None)
    schema.transaction(
        *(f"INSERT INTO t VALUES ({number}, 'x')" for number in range(5)),
        "INSERT INTO u VALUES (1)",
        "UPDATE t SET note = 'y' WHERE id < 2",
    )
    schema.execute("INSERT INTO u VALUES (2)")
    whole = read_all(source, schema)
    source.stop()
    inside = next(batch.position for batch in whole[1:] if batch.position.data["open"])
    again = source_of(schema)
    again.provide_transaction_metadata()
    again.start(inside)
    rest = read_all(again, schema)
    again.stop()

    def said(batches: list[Batch]) -> tuple[int, list[dict[str, int]]]:
        begun, ended = 0, []
        for metadata in filter(None, (batch.transaction_metadata for batch in batches)):
            begun += len(metadata.begins)
            for tx in metadata.ends.tx.tolist():
                counted = zip(metadata.counts.tx, metadata.counts.table, metadata.counts.count, strict=True)
                ended.append(
                    {str(metadata.counts.tables[table])[-1]: int(count) for of, table, count in counted if of == tx}
                )
        return begun, ended

    assert said(whole) == (2, [{"t": 7, "u": 1}, {"u": 1}])
    assert said(rest) == (1, [{"t": 7, "u": 1}, {"u": 1}])
    for batches in (whole, rest):
        of_t = [
            seq
            for batch in batches
            for changes in batch.changes
            if changes.relation.table == "t" and changes.table_seq is not None
            for seq in changes.table_seq.tolist()
        ]
        assert of_t == list(range(7))[-len(of_t) :]


def test_tagged_gtids_are_followed(mysql: EmbeddedMysql) -> None:
    with fresh_schema(mysql.host, mysql.port, mysql.version, "tagged") as schema:
        schema.execute(TABLE)
        with streaming(schema) as source:
            schema.execute(
                "SET SESSION gtid_next = 'AUTOMATIC:my_tag'",
                "INSERT INTO t VALUES (1, 'a')",
                "SET SESSION gtid_next = 'AUTOMATIC'",
                "INSERT INTO t VALUES (2, 'b')",
            )
            batches = read_all(source, schema)
        assert ids(batches) == ["1", "2"]
        assert ":my_tag:" in batches[-1].position.shown
        schema.execute("INSERT INTO t VALUES (3, 'c')")
        with streaming(schema, batches[-1].position) as source:
            assert ids(read_all(source, schema)) == ["3"]


@pytest.fixture
def without_gtids(mysql: EmbeddedMysql) -> Iterator[Schema]:
    """A schema on a MySQL whose gtid_mode is OFF until the test ends."""
    steps = ["ON", "ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"]
    with fresh_schema(mysql.host, mysql.port, mysql.version, "without_gtids") as schema:
        schema.execute(*(f"SET GLOBAL gtid_mode = {step}" for step in steps))
        try:
            yield schema
        finally:
            schema.execute(*(f"SET GLOBAL gtid_mode = {step}" for step in reversed(steps)))


@pytest.mark.behaviour("B4")
def test_without_gtids_positions_are_files_and_offsets(without_gtids: Schema) -> None:
    schema = without_gtids
    schema.execute(TABLE)
    with streaming(schema, batchSize=3) as source:
        assert source.read_stream_identity()["server uuid"] == schema.value("SELECT @@server_uuid")
        assert "gtid_mode is OFF: positions are files of this server" in "\n".join(map(str, source.check()))
        schema.transaction(*(f"INSERT INTO t VALUES ({number}, 'x')" for number in range(8)))
        schema.execute("FLUSH BINARY LOGS", "INSERT INTO t VALUES (30, 'z')")
        whole = read_all(source, schema)
    everything = identities(whole)
    assert everything == sorted(set(everything))
    assert len(everything) == 9
    had = 0
    for batch in whole:
        had += len(batch)
        if batch.position.data["open"]:
            with streaming(schema, batch.position) as again:
                assert identities(read_all(again, schema)) == everything[had:]
    gone = Position({**whole[0].position.data, "file": "binlog.000000"}, "binlog.000000:4")
    with pytest.raises(PositionRefused, match="in a file that the server does not have any more: the oldest is"):
        source_of(schema).start(gone)
    elsewhere = Position({**whole[0].position.data, "server": "another"}, "another")
    with pytest.raises(PositionRefused, match="in the binary log of the server another"):
        source_of(schema).start(elsewhere)


def test_transactions_that_a_mysql_has_purged_are_counted(mysql: EmbeddedMysql) -> None:
    with fresh_schema(mysql.host, mysql.port, mysql.version, "purged") as schema:
        position = lose_two_transactions(schema)
        with pytest.raises(PositionRefused, match=r"2 transactions .* no longer in .* --accept-gap"):
            source_of(schema).start(position)


def test_a_first_start_gives_its_position_before_anything_comes(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema) as source:
        [batch] = read_until(source, bool)
    assert batch.idle
    schema.execute("INSERT INTO t VALUES (1, 'meanwhile')")
    with streaming(schema, batch.position) as again:
        assert ids(read_all(again, schema)) == ["1"]


def test_an_operator_may_send_it_to_gtids_or_to_a_place(schema: Schema) -> None:
    schema.execute(TABLE)
    gtids = schema.value(
        "SELECT @@GLOBAL.gtid_binlog_pos" if "Maria" in schema.value("SELECT VERSION()") else "SELECT @@gtid_executed"
    )
    with streaming(schema) as source:
        place = next(iter(source.find_dropped([]) or ())).data
    schema.execute("INSERT INTO t VALUES (1, 'a')")
    for override in (gtids, f"{place['file']}:{place['offset']}"):
        source = source_of(schema, positionOverride=override)
        assert source.position_override is not None
        with streaming(schema, source.position_override) as started:
            assert ids(read_until(started, lambda batches: bool(ids(batches)))) == ["1"]


@pytest.mark.behaviour("B4")
def test_other_tables_are_refused_inside_a_transaction_and_taken_behind_it(schema: Schema) -> None:
    other = {"tables": [f"{schema.name}.t", f"{schema.name}.u"]}
    schema.execute(TABLE, "CREATE TABLE u (id INT PRIMARY KEY)")
    with streaming(schema, tables=f"{schema.name}.t", batchSize=2) as source:
        rows = ", ".join(f"({number}, 'a')" for number in range(2000))
        schema.transaction(
            "INSERT INTO u VALUES (1), (2)", f"INSERT INTO t VALUES {rows}", "INSERT INTO t VALUES (-1, 'b')"
        )
        batches = read_all(source, schema)
    inside = next(batch.position for batch in batches if batch.position.data["open"])
    refused = source_of(schema, **other)
    with pytest.raises(
        SourceRefused, match=r"tables or excludeTables .* inside a transaction.*positionOverride"
    ) as told:
        refused.start(inside)
    assert [finding.problem for finding in refused.check_position(inside)] == [told.value.what]
    same = {"tables": [f"{schema.name}.t", f"{schema.name}.t"]}
    with streaming(schema, inside, **same) as source:
        assert len(ids(read_all(source, schema))) == 2001 - inside.data["open"]["changes"]
    with streaming(schema, batches[-1].position, **other) as source:
        schema.execute("INSERT INTO u VALUES (3)")
        assert ids(read_all(source, schema)) == ["3"]
    assert told.value.remedy is not None
    override = told.value.remedy.partition("set positionOverride to ")[2].partition(" and ")[0]
    with streaming(schema, source_of(schema, positionOverride=override).position_override, **other) as source:
        assert ids(read_all(source, schema))[:3] == ["1", "2", "0"]


@pytest.mark.behaviour("B4")
def test_a_position_inside_a_transaction_that_names_no_tables_is_still_read(schema: Schema) -> None:
    schema.execute(TABLE)
    with streaming(schema, batchSize=2) as source:
        schema.transaction(*(f"INSERT INTO t VALUES ({number}, '{'x' * 20}')" for number in range(2000)))
        inside = next(batch.position for batch in read_all(source, schema) if batch.position.data["open"])
    opened = {name: value for name, value in inside.data["open"].items() if name != "tables"}
    with streaming(schema, Position({**inside.data, "open": opened}, inside.shown)) as source:
        assert len(ids(read_all(source, schema))) == 2000 - opened["changes"]


@pytest.mark.behaviour("B4")
def test_mariadb_goes_over_to_gtids_behind_a_place(own_mariadb: EmbeddedMariadb) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "s") as schema:
        schema.execute(TABLE, "SET SESSION gtid_domain_id = 7", "INSERT INTO t VALUES (1, 'a')")
        file, offset = schema.query("SHOW MASTER STATUS")[0][:2]
        with streaming(schema, make_override_position(f"{file}:{offset}")) as source:
            schema.execute("INSERT INTO t VALUES (2, 'b')")
            first = read_until(source, lambda batches: bool(ids(batches)))
            schema.execute("INSERT INTO t VALUES (3, 'c')")
            rest = read_all(source, schema)
        assert ids(first + rest) == ["2", "3"]
        assert rest[-1].position.data["executed"] == schema.value("SELECT @@GLOBAL.gtid_binlog_pos")
        assert ",7-" in rest[-1].position.data["executed"], "what lay before the place counts"
        with streaming(schema, first[-1].position) as again:
            repeated = read_all(again, schema)
            assert ids(repeated) == ["3"]
            assert identities(repeated) == identities(rest)
        schema.execute("RESET MASTER")
        with pytest.raises(PositionRefused, match="it is another server"):
            source_of(schema).start(rest[-1].position)


@pytest.mark.behaviour("B4")
def test_a_transaction_that_is_open_by_its_place_is_known_again_by_it(schema: Schema) -> None:
    if schema.on_mysql:
        pytest.skip("MySQL without gtid_mode has positions of its own")
    schema.execute(TABLE)
    file, offset = schema.query("SHOW MASTER STATUS")[0][:2]
    schema.transaction(*(f"INSERT INTO t VALUES ({number}, 'x')" for number in range(5)))
    schema.execute("INSERT INTO t VALUES (5, 'x')")
    number = int(file.rpartition(".")[2])
    opened = {"source": None, "commit": number << 32 | offset, "changes": 2}
    place = Position({"executed": None, "file": file, "offset": offset, "server": "", "open": opened}, "inside")
    with streaming(schema, place) as source:
        batches = read_all(source, schema)
        assert ids(batches) == ["2", "3", "4", "5"]
    with streaming(schema, batches[-1].position) as source:
        schema.execute("INSERT INTO t VALUES (6, 'x')")
        last = read_all(source, schema)
    assert ids(last) == ["6"]
    assert last[-1].position.data["executed"] is not None


def test_domains_of_mariadb_go_on_each_from_where_they_are(own_mariadb: EmbeddedMariadb) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "s") as schema:
        schema.execute(TABLE)
        with streaming(schema) as source:
            schema.execute(
                "INSERT INTO t VALUES (1, 'a')",
                "SET SESSION gtid_domain_id = 5",
                "INSERT INTO t VALUES (2, 'b')",
                "SET SESSION gtid_domain_id = 0",
                "INSERT INTO t VALUES (3, 'c')",
            )
            batches = read_all(source, schema)
        assert ids(batches) == ["1", "2", "3"]
        assert {batch.source.identity for batch in batches if len(batch)} == {"0", "5"}
        assert batches[-1].position.shown.endswith(",5-1-1")
        had: list[str] = []
        for batch in batches:
            had += ids([batch])
            if 0 < len(had) < 3:
                with streaming(schema, batch.position) as again:
                    assert ids(read_all(again, schema)) == ["1", "2", "3"][len(had) :]
