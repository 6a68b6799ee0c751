"""A `sql` source on MariaDB and MySQL: no row is left out, and values are what the server sends."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from psql_streamer.embedded.mariadb import EmbeddedMariadb
from psql_streamer.errors import SourceRefused, SourceUnavailable
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch, Position
from sources.sql.source import SqlSource
from tests.encoding import encoder_of
from tests.mariadb import Schema
from tests.mysql_source import read_all, streaming
from tests.source_at_work import wait_for
from tests.sql_sources import (
    bound_batches,
    identities_of,
    notes,
    read,
    read_beside_writers,
    read_quiet,
    read_rows,
    require_bounded_batches,
    require_that_deletions_do_not_matter,
    rows_of,
    sql_source,
)
from tests.started_source import started


def url_of(schema: Schema, user: str = "root") -> str:
    return f"mysql+pymysql://{user}@{schema.host}:{schema.port}/{schema.name}"


@contextmanager
def polling(schema: Schema, *tables: Any, **options: Any) -> Iterator[SqlSource]:
    with started(sql_source(url_of(schema), *(tables or ("orders",)), **options)) as source:
        yield source


@contextmanager
def transaction(schema: Schema) -> Iterator[Any]:
    """A cursor in a transaction that is not committed by itself."""
    with schema.session() as cursor:
        cursor.execute("START TRANSACTION")
        yield cursor


_ORDERS = "CREATE TABLE orders (id bigint AUTO_INCREMENT PRIMARY KEY, note varchar(20))"


@pytest.fixture
def orders(schema: Schema) -> Schema:
    schema.execute(_ORDERS)
    return schema


@pytest.fixture
def every_orders(every_schema: Schema) -> Schema:
    every_schema.execute(_ORDERS)
    return every_schema


@pytest.mark.behaviour("P2")
def test_a_row_that_commits_late_with_a_smaller_key_is_not_left_out(every_orders: Schema) -> None:
    with transaction(every_orders) as late, polling(every_orders) as source:
        late.execute("INSERT INTO orders (note) VALUES ('late')")
        every_orders.execute("INSERT INTO orders (note) VALUES ('early')")
        assert rows_of(read_quiet(source, 1.0)) == []
        assert "smaller keys (1)" in source.status().reason
        late.execute("COMMIT")
        assert notes(source, 2) == ["late", "early"]


@pytest.mark.behaviour("P2")
def test_a_prepared_transaction_is_waited_for_though_its_client_is_gone(every_orders: Schema) -> None:
    name = f"'{every_orders.name}'"
    with polling(every_orders) as source:
        with every_orders.session() as late:
            late.execute(f"XA START {name}")
            late.execute("INSERT INTO orders (note) VALUES ('late')")
            every_orders.execute("INSERT INTO orders (note) VALUES ('early')")
            assert rows_of(read_quiet(source, 0.7)) == []
            assert "smaller keys (1)" in source.status().reason
            late.execute(f"XA END {name}")
            late.execute(f"XA PREPARE {name}")
        try:
            assert rows_of(read_quiet(source, 0.7)) == []
            assert "smaller keys (1)" in source.status().reason
        finally:
            every_orders.execute(f"XA COMMIT {name}")
        assert notes(source, 2) == ["late", "early"]


def test_wide_rows_behind_narrow_ones_are_not_read_together(
    every_schema: Schema, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    every_schema.execute("CREATE TABLE orders (id bigint AUTO_INCREMENT PRIMARY KEY, note text)")
    asked = bound_batches(monkeypatch, 100_000, 4)
    require_bounded_batches(
        sql_source(url_of(every_schema), "orders"),
        lambda given: every_schema.execute(
            "INSERT INTO orders (note) VALUES " + ", ".join(f"('{note}')" for note in given)
        ),
        200_000,
    )
    assert max(asked) == 4
    assert not caplog.records


def test_a_table_whose_engine_has_transactions_of_its_own_is_read_by_time(
    orders: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """innodb_trx does not show them. An engine of which nothing is known stands for one."""
    monkeypatch.setattr("sources.sql.engines.mysql._TELLING", ("None", "InnoDB"))
    orders.execute("CREATE TABLE others (id int PRIMARY KEY) ENGINE = Aria")
    with polling(orders, "orders", "others") as source:
        assert source.status().reason.endswith(
            f"rows of {orders.name}.others are read 5 s after they were seen: the server does not say who writes"
        )


def test_the_status_names_a_transaction_as_the_server_does(every_orders: Schema) -> None:
    with transaction(every_orders) as late, polling(every_orders) as source:
        late.execute("INSERT INTO orders (note) VALUES ('late')")
        every_orders.execute("INSERT INTO orders (note) VALUES ('early')")
        read_quiet(source, 0.7)
        mine = "trx_mysql_thread_id = CONNECTION_ID()"
        late.execute(f"SELECT trx_id FROM information_schema.innodb_trx WHERE {mine}")
        [(number,)] = late.fetchall()
        assert source.status().reason.endswith(f"smaller keys (1): {number}")


def test_a_transaction_that_reads_holds_nothing_up_and_every_poll_sees_what_is_new(orders: Schema) -> None:
    with transaction(orders) as reader, polling(orders) as source:
        reader.execute("SELECT * FROM orders")
        for note in ("a", "b"):
            orders.execute(f"INSERT INTO orders (note) VALUES ('{note}')")
            assert notes(source, 1) == [note]


@pytest.mark.behaviour("P2")
@pytest.mark.parametrize("process", [True, False], ids=["PROCESS", "by time"])
def test_rows_of_writers_who_overlap_come_all_and_in_the_order_of_their_keys(
    every_orders: Schema, process: bool
) -> None:
    """Without the right PROCESS rows are read after `settle`, which is longer than any transaction here.

    MySQL's versions are below 10, and MariaDB's are not.
    """

    def write(seed: int, ended: threading.Event) -> None:
        moments = random.Random(seed)
        with every_orders.session() as cursor:
            while not ended.is_set():
                cursor.execute("START TRANSACTION")
                for _ in range(moments.randint(1, 4)):
                    cursor.execute("INSERT INTO orders (note) VALUES ('a'), ('b'), ('c')")
                    time.sleep(moments.uniform(0, 0.01) if moments.random() < 0.9 else 0.3)
                cursor.execute("ROLLBACK" if moments.random() < 0.2 else "COMMIT")

    user = "root"
    if not process and every_orders.version[0] < 10:
        pytest.skip("as on MariaDB")
    if not process:
        user = f"poor{every_orders.name[-8:]}"
        every_orders.execute(f"CREATE USER '{user}'@'%'", f"GRANT SELECT ON `{every_orders.name}`.* TO '{user}'@'%'")
    try:
        options = {} if process else {"settle": "2s"}
        with started(sql_source(url_of(every_orders, user), "orders", pollInterval="10ms", **options)) as source:
            assert ("does not say who writes" in source.status().reason) is not process
            batches = read_beside_writers(source, write, lambda: every_orders.value("SELECT count(*) FROM orders"), 0.5)
    finally:
        if not process:
            every_orders.execute(f"DROP USER '{user}'@'%'")
    found = [int(row["id"] or 0) for row in rows_of(batches)]
    assert len(found) > 50
    assert found == [key for (key,) in every_orders.query("SELECT id FROM orders ORDER BY id")]


VALUES = {
    "tinyint": ("-128", "-128"),
    "tinyint unsigned": ("255", "255"),
    "boolean": ("true", "1"),
    "int unsigned": ("4294967295", "4294967295"),
    "bigint": ("-9223372036854775808", "-9223372036854775808"),
    "bigint unsigned": ("18446744073709551615", "18446744073709551615"),
    "decimal(30, 10)": ("'12345678901234567890.5'", "12345678901234567890.5000000000"),
    "float": ("1.2345678", "1.2345678"),
    "double": ("0.1", "0.1"),
    "date": ("'2026-01-31'", "2026-01-31"),
    "datetime": ("'2026-01-31 10:00:10'", "2026-01-31 10:00:10"),
    "datetime(6)": ("'2026-01-31 10:00:00.500000'", "2026-01-31 10:00:00.5"),
    "timestamp(3) NULL": ("'2026-01-31 10:00:00.250'", "2026-01-31 10:00:00.25+00"),
    "time": ("'-838:59:59'", "-838:59:59"),
    "time(2)": ("'10:00:00.50'", "10:00:00.5"),
    "year": ("2026", "2026"),
    "year DEFAULT 2000": ("0", "0"),
    "int(8) zerofill": ("5", "5"),
    "bigint zerofill": ("0", "0"),
    "decimal(10, 2) zerofill": ("0.5", "0.50"),
    "double zerofill": ("0.25", "0.25"),
    "varchar(20)": ("'Zoë \U0001f600'", "Zoë \U0001f600"),
    "char(5)": ("'a'", "a"),
    "longtext": ("''", ""),
    "enum('a', 'b')": ("'b'", "b"),
    "set('a', 'b')": ("'a,b'", "a,b"),
    "varbinary(10)": ("x'00ff'", "\\x00ff"),
    "blob": ("x'dead'", "\\xdead"),
    "bit(5)": ("b'101'", "00101"),
}


def checksums(batches: list[Batch]) -> list[tuple[str, object]]:
    encoder = encoder_of("event", Router({}, "", "t"), {})
    values = [value for batch in batches if len(batch) for value in encoder.encode(batch).values.to_pylist()]
    return [(event["Checksum"], event["Columns"]) for event in map(json.loads, values)]


def test_an_unsigned_bigint_is_an_integer_key_whatever_its_size(every_schema: Schema) -> None:
    every_schema.execute("CREATE TABLE orders (id bigint unsigned PRIMARY KEY, note varchar(20))")
    every_schema.execute("INSERT INTO orders VALUES (5, 'a'), (7, 'b')")
    with polling(every_schema) as source:
        found = read(source, lambda batches: sum(map(len, batches)) >= 2)
        assert [commit for commit, _ in identities_of(found)] == [5, 7]
        every_schema.execute(f"INSERT INTO orders VALUES ({2**64 - 2}, 'c')")
        assert notes(source, 1) == ["c"]
        every_schema.execute(f"INSERT INTO orders VALUES ({2**64 - 1}, 'd')")
        assert notes(source, 1) == ["d"]
        assert source.stats()["cursors"] == {f"{every_schema.name}.orders": 2**64 - 1}


def test_a_position_whose_integers_are_texts_is_taken(schema: Schema) -> None:
    schema.execute("CREATE TABLE orders (id bigint unsigned PRIMARY KEY, note varchar(20))")
    schema.execute("INSERT INTO orders VALUES (5, 'a'), (7, 'b')")
    with polling(schema) as source:
        position = read(source, lambda batches: sum(map(len, batches)) >= 2)[-1].position
    stored = json.loads(json.dumps(dict(position.data)).replace('"last": [7]', '"last": ["7"]'))
    with started(sql_source(url_of(schema), "orders"), Position(stored, "")) as source:
        assert rows_of(read_quiet(source, 0.3)) == []
        schema.execute("INSERT INTO orders VALUES (9, 'c')")
        assert notes(source, 1) == ["c"]


@pytest.mark.behaviour("P4")
def test_values_are_those_of_the_server(every_schema: Schema) -> None:
    columns = [f"c{at}" for at in range(len(VALUES))]
    declared = ", ".join(f"{name} {kind}" for name, kind in zip(columns, VALUES, strict=True))
    every_schema.execute(f"CREATE TABLE orders (id int PRIMARY KEY, {declared}) CHARACTER SET utf8mb4")
    with streaming(every_schema) as log:
        every_schema.execute(
            "SET time_zone = '+00:00'",
            f"INSERT INTO orders VALUES (1, {', '.join(sql for sql, _ in VALUES.values())})",
            f"INSERT INTO orders VALUES (2{', NULL' * len(VALUES)})",
        )
        logged = read_all(log, every_schema)
    with polling(every_schema) as source:
        polled = read(source, lambda batches: any(map(len, batches)))
    given, nothing = rows_of(polled)
    assert {kind: given[name] for name, kind in zip(columns, VALUES, strict=True)} == {
        kind: text for kind, (_, text) in VALUES.items()
    }
    assert set(nothing.values()) == {"2", None}
    assert checksums(polled) == checksums(logged), "equal rows have equal checksums, however they are read"


@pytest.mark.behaviour("P4")
def test_equal_rows_have_the_checksums_that_they_have_in_sqlite(every_schema: Schema, tmp_path: Path) -> None:
    rows = [
        """1, -12.5, 0.1, 9007199254740993, '2026-01-31 10:00:00.500000', '2026-01-31', 'Zoë "q"', x'dead'""",
        f"2{', NULL' * 7}",
    ]
    columns = "amount decimal(10, 2), price double, big bigint, at {}, day date, note text, photo blob"
    statements = [f"INSERT INTO orders VALUES ({row})" for row in rows]
    every_schema.execute(
        f"CREATE TABLE orders (id int PRIMARY KEY, {columns.format('datetime(6)')}) CHARACTER SET utf8mb4", *statements
    )
    with polling(every_schema) as source:
        ours = checksums(read(source, lambda batches: any(map(len, batches))))
    file = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(file)) as session, session:
        session.execute(f"CREATE TABLE orders (id integer PRIMARY KEY, {columns.format('timestamp')})")
        for statement in statements:
            session.execute(statement)
    with started(sql_source(f"sqlite:///{file}", "orders", settle="0s")) as source:
        assert checksums(read(source, lambda batches: any(map(len, batches)))) == ours


def test_a_date_of_zeros_is_what_it_is(every_schema: Schema) -> None:
    every_schema.execute(
        "SET sql_mode = ''",
        "CREATE TABLE orders (id int PRIMARY KEY, d date, t datetime)",
        "INSERT INTO orders VALUES (1, '0000-00-00', '2026-00-00 00:00:00')",
    )
    with polling(every_schema) as source:
        assert read_rows(source, 1) == [{"id": "1", "d": "0000-00-00", "t": "2026-00-00 00:00:00"}]


def test_keys_of_several_columns_use_the_index(every_schema: Schema) -> None:
    every_schema.execute(
        "CREATE TABLE visits (shop varchar(10), at datetime(6), n bigint unsigned, PRIMARY KEY (shop, at, n))",
        *(f"INSERT INTO visits VALUES ('s{at % 3}', '2026-01-01 10:00:0{at % 2}.5', {at})" for at in range(20)),
    )
    with polling(every_schema, "visits", batchSize=3) as source:
        found = [row["n"] for row in read_rows(source, 20)]
        statement = source._tables[f"{every_schema.name}.visits"].table.make_rows_statement(
            ("s1", "2026-01-01 10:00:00.5", 1), ("s1", "2026-01-01 10:00:01.5", 7), 100
        )
        sql = str(statement.compile(dialect=source._url.get_dialect()(), compile_kwargs={"literal_binds": True}))
    assert found == [str(n) for (n,) in every_schema.query("SELECT n FROM visits ORDER BY shop, at, n")]
    plan = every_schema.query(f"EXPLAIN {sql.replace('%%', '%')}")
    assert "PRIMARY" in str(plan)
    assert "filesort" not in str(plan)


def test_rows_are_not_read_in_which_a_later_part_of_the_key_is_null(schema: Schema) -> None:
    schema.execute("CREATE TABLE visits (a int NOT NULL, b int, note varchar(9), UNIQUE (a, b))")
    schema.execute("INSERT INTO visits VALUES (1, 1, 'a'), (2, NULL, 'never'), (3, 1, 'b')")
    with polling(schema, {"table": "visits", "key": ["a", "b"]}) as source:
        assert notes(source, 2) == ["a", "b"]
        assert rows_of(read_quiet(source, 0.3)) == []


def test_columns_that_come_and_go_are_followed(orders: Schema) -> None:
    with polling(orders) as source:
        orders.execute("INSERT INTO orders (note) VALUES ('a')")
        batches = read(source, lambda batches: any(map(len, batches)))
        orders.execute("ALTER TABLE orders ADD COLUMN more int", "INSERT INTO orders (note, more) VALUES ('b', 7)")
        batches += read(source, lambda batches: any(map(len, batches)))
        orders.execute("ALTER TABLE orders DROP COLUMN note", "INSERT INTO orders (more) VALUES (8)")
        batches += read(source, lambda batches: any(map(len, batches)))
    assert rows_of(batches)[1:] == [{"id": "2", "note": "b", "more": "7"}, {"id": "3", "more": "8"}]


@pytest.mark.behaviour("P6")
def test_no_transaction_is_open_between_polls(every_orders: Schema) -> None:
    every_orders.execute("INSERT INTO orders (note) VALUES ('a')")
    sessions = f"SELECT id FROM information_schema.processlist WHERE db = '{every_orders.name}' AND command = 'Sleep'"
    open_ones = f"SELECT count(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id IN ({sessions})"
    with polling(every_orders, pollInterval="1h") as source:
        read_rows(source, 1)
        read_quiet(source, 0.1)
        assert every_orders.value(f"SELECT count(*) FROM ({sessions}) AS one") > 0
        assert every_orders.value(open_ones) == 0


def test_rows_that_are_deleted_behind_the_cursor_are_no_reason_to_stop(every_orders: Schema) -> None:
    with polling(every_orders) as source:
        require_that_deletions_do_not_matter(source, every_orders.execute)


def test_what_mysql_remembers_of_the_largest_key_is_not_asked_for(every_orders: Schema) -> None:
    """MySQL keeps for a day what somebody has asked information_schema.tables for."""
    remembered = f"SELECT auto_increment FROM information_schema.tables WHERE table_schema = '{every_orders.name}'"
    with polling(every_orders) as source:
        every_orders.execute("INSERT INTO orders (note) VALUES ('a')")
        every_orders.query(remembered)
        every_orders.execute("INSERT INTO orders (note) VALUES ('b'), ('c')")
        assert notes(source, 3) == ["a", "b", "c"]
        every_orders.execute("DELETE FROM orders WHERE id > 1")
        assert read_quiet(source, 1) == []


def sessions_that_wait(schema: Schema) -> int:
    """How many sessions of the schema wait for a lock of a table."""
    return sum(
        database == schema.name and "metadata lock" in str(state)
        for _, _, _, database, _, _, state, *_ in schema.query("SHOW PROCESSLIST")
    )


def test_a_table_that_is_locked_is_tried_again_and_no_statement_stays_at_the_server(every_orders: Schema) -> None:
    with every_orders.session() as owner, polling(every_orders, timeout="500ms") as source:
        owner.execute("LOCK TABLES orders WRITE")
        began = time.monotonic()
        with pytest.raises(SourceUnavailable, match=r"orders took longer than 0\.5 s.*timeout"):
            read_quiet(source, 30)
        assert time.monotonic() - began < 4
        assert ".orders took longer" in source.status().reason
        wait_for(lambda: not sessions_that_wait(every_orders), "the end of the statement at the server", 3)
        owner.execute("UNLOCK TABLES")
        every_orders.execute("INSERT INTO orders (note) VALUES ('a')")
        source.start(None)
        assert notes(source, 1) == ["a"]


@contextmanager
def reading_until_interrupted(source: SqlSource) -> Iterator[None]:
    """Reads until the block ends, which must end the reading within seconds."""
    ended: list[BaseException] = []

    def read_on() -> None:
        try:
            read_quiet(source, 60)
        except SourceUnavailable as error:
            ended.append(error)

    reading = threading.Thread(target=read_on)
    reading.start()
    yield
    reading.join(3)
    assert not reading.is_alive()
    assert "interrupted" in str(ended[0])


def require_that_an_interrupt_is_quick(source: SqlSource) -> None:
    began = time.monotonic()
    source.interrupt()
    assert time.monotonic() - began < 2.5


def threads_at_the_server() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("looking for new rows")]


def test_the_wait_for_a_lock_ends_with_an_interrupt_and_at_the_server(every_orders: Schema) -> None:
    with every_orders.session() as owner, polling(every_orders) as source:
        owner.execute("LOCK TABLES orders WRITE")
        with reading_until_interrupted(source):
            wait_for(lambda: sessions_that_wait(every_orders), "a poll that waits")
            require_that_an_interrupt_is_quick(source)
        wait_for(lambda: not sessions_that_wait(every_orders), "the end of the statement at the server", 3)


def test_the_wait_for_a_server_that_keeps_silent_ends_with_an_interrupt_that_says_what_may_be_left(
    mariadb: EmbeddedMariadb, orders: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    with orders.session() as owner, polling(orders) as source:
        owner.execute("LOCK TABLES orders WRITE")
        with reading_until_interrupted(source):
            wait_for(lambda: sessions_that_wait(orders), "a poll that waits")
            os.kill(mariadb.pid, signal.SIGSTOP)
            try:
                require_that_an_interrupt_is_quick(source)
                wait_for(lambda: not threads_at_the_server(), "the end of the thread that waits for the server", 3)
            finally:
                os.kill(mariadb.pid, signal.SIGCONT)
    assert "may still wait at" in caplog.text


def test_a_look_that_was_given_up_runs_nothing_when_the_server_answers_late(
    mariadb: EmbeddedMariadb, orders: Schema
) -> None:
    with orders.session() as owner, polling(orders, timeout="500ms") as source:
        owner.execute("LOCK TABLES orders WRITE")
        os.kill(mariadb.pid, signal.SIGSTOP)
        try:
            with pytest.raises(SourceUnavailable, match="took longer"):
                read_quiet(source, 30)
        finally:
            os.kill(mariadb.pid, signal.SIGCONT)
        wait_for(lambda: not threads_at_the_server(), "the end of the look", 3)
        assert not sessions_that_wait(orders)


def test_check_recommends_the_log_and_names_what_is_missing(orders: Schema) -> None:
    user = f"poor{orders.name[-8:]}"
    orders.execute(f"CREATE USER '{user}'@'%'", f"GRANT SELECT ON `{orders.name}`.* TO '{user}'@'%'")
    try:
        found = "\n".join(map(str, sql_source(url_of(orders, user), "orders", "nowhere").check()))
    finally:
        orders.execute(f"DROP USER '{user}'@'%'")
    assert 'type = "mysql"' in found
    assert "nowhere does not exist" in found
    assert "GRANT PROCESS" in found


def test_a_replica_is_read_by_time(every_orders: Schema) -> None:
    with (
        pymysql.connect(host=every_orders.host, port=every_orders.port, user="root", autocommit=True) as own,
        own.cursor() as root,
    ):
        root.execute("SET GLOBAL read_only = 1")
        try:
            assert "is a replica" in "\n".join(map(str, sql_source(url_of(every_orders), "orders").check()))
            with polling(every_orders) as source:
                assert "are read 5 s after they were seen" in source.status().reason
        finally:
            root.execute("SET GLOBAL read_only = 0")


@pytest.mark.parametrize(
    ("columns", "is_refused"),
    [
        ("id bigint AUTO_INCREMENT, day date, PRIMARY KEY (id, day)", True),
        ("day date, id bigint AUTO_INCREMENT UNIQUE, PRIMARY KEY (day, id)", True),
        ("id bigint DEFAULT NEXTVAL(ids) PRIMARY KEY", True),
        ("day date PRIMARY KEY, id bigint AUTO_INCREMENT UNIQUE", False),
    ],
)
def test_servers_that_share_keys_are_refused_whatever_of_the_key_they_give(
    schema: Schema, columns: str, is_refused: bool
) -> None:
    schema.execute("CREATE SEQUENCE ids", f"CREATE TABLE orders ({columns})")
    with pymysql.connect(host=schema.host, port=schema.port, user="root", autocommit=True) as own, own.cursor() as root:
        root.execute("SET GLOBAL auto_increment_increment = 2")
        try:
            refused = [one for one in sql_source(url_of(schema), "orders").check() if "increment is 2" in one.problem]
        finally:
            root.execute("SET GLOBAL auto_increment_increment = 1")
    assert bool(refused) == is_refused


@pytest.mark.behaviour("P5")
def test_servers_that_begin_to_share_keys_stop_the_source(orders: Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.sql.watched_table._SEQUENCE_SECONDS", 0.2)
    with (
        pymysql.connect(host=orders.host, port=orders.port, user="root", autocommit=True) as own,
        own.cursor() as root,
        polling(orders) as source,
    ):
        orders.execute("INSERT INTO orders (note) VALUES ('a')")
        assert notes(source, 1) == ["a"]
        root.execute("SET GLOBAL auto_increment_increment = 2")
        try:
            with pytest.raises(SourceRefused, match="auto_increment_increment is 2"):
                read_quiet(source, 3)
        finally:
            root.execute("SET GLOBAL auto_increment_increment = 1")


@pytest.mark.parametrize(("sequence", "named"), [("INCREMENT BY -1", "INCREMENT -1"), ("MAXVALUE 9 CYCLE", "CYCLE")])
def test_a_sequence_of_mariadb_that_does_not_ascend_is_refused(schema: Schema, sequence: str, named: str) -> None:
    schema.execute(
        f"CREATE SEQUENCE `the ids` {sequence} NOCACHE",
        "CREATE TABLE orders (id bigint DEFAULT NEXTVAL(`the ids`), day date, PRIMARY KEY (id, day))",
    )
    with pytest.raises(SourceRefused, match=f"the ids.*{named}"):
        sql_source(url_of(schema), "orders").start(None)


def test_servers_that_share_keys_are_refused(orders: Schema) -> None:
    with pymysql.connect(host=orders.host, port=orders.port, user="root", autocommit=True) as own, own.cursor() as root:
        root.execute("SET GLOBAL auto_increment_increment = 2")
        try:
            with pytest.raises(SourceRefused, match="auto_increment_increment is 2"):
                sql_source(url_of(orders), "orders").start(None)
        finally:
            root.execute("SET GLOBAL auto_increment_increment = 1")
