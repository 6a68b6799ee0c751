"""A `sql` source on PostgreSQL: no row is left out, whatever the order in which transactions commit."""

from __future__ import annotations

import random
import threading
import time

import pytest
from psycopg2.extensions import connection, parse_dsn
from sqlalchemy.engine import Connection

from psql_streamer.embedded.postgres import EmbeddedPostgres, find_server_binaries
from psql_streamer.errors import PositionRefused, SourceRefused, SourceUnavailable
from psql_streamer.interfaces import Finding, Severity
from psql_streamer.model import Position
from sources.sql.polled_table import PolledTable
from sources.sql.settling import Key
from sources.sql.source import SqlSource
from tests.database import Database, fresh_database
from tests.source_at_work import wait_for
from tests.sql_sources import (
    notes,
    polling,
    read,
    read_beside_writers,
    read_quiet,
    read_rows,
    require_that_deletions_do_not_matter,
    rows_of,
    sql_source,
    url_of,
)
from tests.started_source import started


@pytest.fixture
def orders(database: Database) -> Database:
    database.execute("CREATE TABLE orders (id bigserial PRIMARY KEY, note text)")
    return database


def run(session: connection, sql: str) -> None:
    with session.cursor() as cursor:
        cursor.execute(sql)


def findings(source: SqlSource) -> list[str]:
    return [finding.problem for finding in source.check() if isinstance(finding, Finding)]


@pytest.mark.behaviour("P2")
def test_a_row_that_commits_late_with_a_smaller_key_is_not_left_out(orders: Database) -> None:
    with orders.session() as late, polling(orders) as source:
        run(late, "INSERT INTO orders (note) VALUES ('late')")
        orders.execute("INSERT INTO orders (note) VALUES ('early')")
        assert rows_of(read_quiet(source)) == []
        assert "smaller keys (1)" in source.status().reason
        assert source.stats()["unsettled_rows"] == 1
        late.commit()
        assert notes(source, 2) == ["late", "early"]
        assert source.stats()["unsettled_rows"] == 0


@pytest.mark.behaviour("P2")
def test_a_row_that_commits_late_comes_though_the_row_that_was_seen_before_it_is_deleted(orders: Database) -> None:
    with orders.session() as late, polling(orders) as source:
        run(late, "INSERT INTO orders (note) VALUES ('late')")
        orders.execute("INSERT INTO orders (note) VALUES ('early')")
        assert rows_of(read_quiet(source)) == []
        orders.execute("DELETE FROM orders")
        late.commit()
        assert notes(source, 1) == ["late"]
        assert source.stats()["cursors"] == {"public.orders": 1}


def test_nothing_is_waited_for_when_the_row_that_waited_is_deleted_and_the_transaction_has_ended(
    orders: Database,
) -> None:
    with orders.session() as late, polling(orders) as source:
        run(late, "INSERT INTO orders (note) VALUES ('late')")
        orders.execute("INSERT INTO orders (note) VALUES ('early')")
        read_quiet(source, 0.3)
        assert "smaller keys (1)" in source.status().reason
        orders.execute("DELETE FROM orders")
        late.rollback()
        read_quiet(source, 0.3)
        assert source.status().reason == "polls every 0.1 s, tables: 1"


def test_a_transaction_that_is_forgotten_is_a_problem_until_it_ends(
    orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.sql.watched_table._FORGOTTEN_SECONDS", 0.6)
    with orders.session() as forgotten, polling(orders) as source:
        run(forgotten, "INSERT INTO orders (note) VALUES ('late')")
        orders.execute("INSERT INTO orders (note) VALUES ('early')")
        read_quiet(source, 0.3)
        assert source.status().ok
        assert "smaller keys (1)" in source.status().reason
        read_quiet(source, 0.6)
        assert not source.status().ok
        assert "smaller keys (1)" in source.status().reason
        forgotten.rollback()
        assert notes(source, 1) == ["early"]
        assert source.status().ok


def test_rows_that_are_read_by_time_are_no_problem_while_they_settle(
    orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.sql.watched_table._FORGOTTEN_SECONDS", 0.3)
    with polling(orders, settle="1s") as source:
        orders.execute("INSERT INTO orders (note) VALUES ('a')")
        read_quiet(source, 0.7)
        assert source.status().ok
        assert notes(source, 1) == ["a"]


@pytest.mark.behaviour("P2")
def test_a_transaction_that_begins_during_a_poll_is_waited_for(
    orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks are looked at behind the largest key: whoever holds a smaller one took his lock before."""
    look_for_largest = PolledTable.find_largest
    begun: list[str] = []

    with orders.session() as late, polling(orders) as source:

        def largest(table: PolledTable, session: Connection, **bounds: Key | None) -> Key | None:
            if not begun:
                begun.append("late")
                run(late, "INSERT INTO orders (note) VALUES ('late')")
                orders.execute("INSERT INTO orders (note) VALUES ('early')")
            return look_for_largest(table, session, **bounds)

        monkeypatch.setattr(PolledTable, "find_largest", largest)
        assert rows_of(read_quiet(source)) == []
        late.commit()
        assert notes(source, 2) == ["late", "early"]


@pytest.mark.behaviour("P2")
def test_a_transaction_that_has_taken_a_key_and_written_nothing_is_waited_for(orders: Database) -> None:
    with orders.session() as late, polling(orders) as source:
        run(late, "SELECT nextval('orders_id_seq')")
        orders.execute("INSERT INTO orders (note) VALUES ('early')")
        assert rows_of(read_quiet(source)) == []
        run(late, "INSERT INTO orders VALUES (currval('orders_id_seq'), 'late')")
        late.commit()
        assert notes(source, 2) == ["late", "early"]


def test_a_default_of_another_tables_sequence_is_watched(database: Database) -> None:
    database.execute(
        "CREATE SEQUENCE ids; CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT nextval('ids'), note text)"
    )
    with database.session() as late, polling(database) as source:
        run(late, "SELECT nextval('ids')")
        database.execute("INSERT INTO orders (note) VALUES ('early')")
        assert rows_of(read_quiet(source)) == []
        late.rollback()
        assert notes(source, 1) == ["early"]


def test_a_partition_that_is_written_directly_is_watched(database: Database) -> None:
    database.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, note text) PARTITION BY RANGE (id);"
        "CREATE TABLE few PARTITION OF orders FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE more PARTITION OF orders FOR VALUES FROM (10) TO (1000)"
    )
    with database.session() as late, polling(database) as source:
        run(late, "INSERT INTO few (id, note) VALUES (5, 'late')")
        database.execute("INSERT INTO more (id, note) VALUES (20, 'early')")
        assert rows_of(read_quiet(source)) == []
        late.commit()
        assert notes(source, 2) == ["late", "early"]


def test_a_transaction_that_reads_and_one_that_writes_elsewhere_hold_nothing_up(orders: Database) -> None:
    orders.execute("CREATE TABLE others (id int)")
    with orders.session() as reader, orders.session() as writer, polling(orders) as source:
        run(reader, "SELECT * FROM orders")
        run(writer, "INSERT INTO others VALUES (1)")
        orders.execute("INSERT INTO orders (note) VALUES ('now')")
        assert notes(source, 1) == ["now"]


def test_a_prepared_transaction_is_waited_for() -> None:
    binaries = find_server_binaries()
    settings = {"max_prepared_transactions": "5"}
    with (
        EmbeddedPostgres(binaries[max(binaries)], settings=settings) as server,
        fresh_database(server.build_dsn(), "shop") as database,
    ):
        database.execute("CREATE TABLE orders (id bigserial PRIMARY KEY, note text)")
        with database.session() as late, polling(database) as source:
            run(late, "INSERT INTO orders (note) VALUES ('late')")
            database.execute("INSERT INTO orders (note) VALUES ('early')")
            assert rows_of(read_quiet(source)) == []
            run(late, "PREPARE TRANSACTION 'later'")
            late.commit()
            assert rows_of(read_quiet(source)) == []
            with database.session(autocommit=True) as other:
                run(other, "COMMIT PREPARED 'later'")
            assert notes(source, 2) == ["late", "early"]


@pytest.mark.behaviour("P2")
@pytest.mark.parametrize("batch_size", [7, 10_000])
def test_rows_of_writers_who_overlap_come_all_and_in_the_order_of_their_keys(orders: Database, batch_size: int) -> None:
    def write(seed: int, ended: threading.Event) -> None:
        moments = random.Random(seed)
        with orders.session() as session:
            while not ended.is_set():
                for _ in range(moments.randint(1, 4)):
                    run(session, "INSERT INTO orders (note) SELECT 'n' FROM generate_series(1, 3)")
                    time.sleep(moments.uniform(0, 0.01) if moments.random() < 0.95 else 0.1)
                session.rollback() if moments.random() < 0.2 else session.commit()

    with polling(orders, pollInterval="10ms", batchSize=batch_size) as source:
        batches = read_beside_writers(source, write, lambda: orders.value("SELECT count(*) FROM orders"), 0.3)
    found = [int(row["id"] or 0) for row in rows_of(batches)]
    assert len(found) > 100
    assert found == [key for (key,) in orders.query("SELECT id FROM orders ORDER BY id")]
    assert max(map(len, batches)) <= batch_size


@pytest.mark.behaviour("P6")
def test_no_transaction_is_open_between_polls(orders: Database) -> None:
    orders.execute("INSERT INTO orders (note) VALUES ('a')")
    with polling(orders, pollInterval="1h") as source:
        read_rows(source, 1)
        read_quiet(source, 0.1)
        states = orders.query(
            "SELECT state, xact_start IS NULL, backend_xmin IS NULL FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert states == [("idle", True, True)]


def test_a_table_that_is_locked_is_tried_again(orders: Database) -> None:
    with orders.session() as owner, polling(orders, timeout="300ms") as source:
        run(owner, "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        with pytest.raises(SourceUnavailable, match=r"public\.orders.*timeout"):
            read_quiet(source, 5)
        assert time.monotonic() - began < 3
        assert "public.orders" in source.status().reason
        owner.rollback()
        orders.execute("INSERT INTO orders (note) VALUES ('a')")
        source.start(None)
        assert notes(source, 1) == ["a"]


@pytest.mark.parametrize("others", [(), ("others",)])
def test_rows_that_the_server_takes_too_long_for_are_asked_for_again_in_smaller_numbers(
    orders: Database, monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]
) -> None:
    monkeypatch.setattr("sources.sql.row_limits.FIRST_ROWS", 40)
    monkeypatch.setattr("sources.sql.locked_tables._LEFT_ALONE_SECONDS", 0.1)
    orders.execute("INSERT INTO orders (note) SELECT n FROM generate_series(1, 10) n")
    orders.execute("CREATE TABLE others (id int PRIMARY KEY)")
    orders.execute(
        "CREATE FUNCTION wait(text) RETURNS text STABLE LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_sleep(0.2); RETURN $1; END'"
    )
    orders.execute("CREATE VIEW slow AS SELECT id, wait(note) AS note FROM orders")
    said = []
    with polling(orders, {"table": "slow", "key": "id"}, *others, settle="0s", timeout="1500ms") as source:
        if not others:
            with pytest.raises(SourceUnavailable, match=r"statement timeout \(at most 40 rows; 5 are asked for next\)"):
                read_rows(source, 10)
        batches = read(source, lambda so_far: (said.append(source.status().reason), sum(map(len, so_far)) >= 10)[1])
        assert [row["note"] for row in rows_of(batches)] == [str(n) for n in range(1, 11)]
        slow = "longer than the time limit of a statement, and tried again while the other tables are read: public.slow"
        assert any(one.startswith(slow) for one in said) == bool(others)


def test_a_lost_connection_is_made_anew(orders: Database) -> None:
    with polling(orders) as source:
        orders.execute("INSERT INTO orders (note) VALUES ('a')")
        assert notes(source, 1) == ["a"]
        with orders.session(autocommit=True) as session:
            run(session, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()")  # fmt: skip
        orders.execute("INSERT INTO orders (note) VALUES ('b')")
        assert notes(source, 1) == ["b"]


@pytest.mark.parametrize(
    ("sequence", "named"),
    [("CACHE 20", "CACHE 20"), ("INCREMENT -1", "INCREMENT -1"), ("MAXVALUE 100 CYCLE", "CYCLE")],
)
def test_a_sequence_that_does_not_ascend_is_refused_unless_it_is_accepted(
    orders: Database, sequence: str, named: str
) -> None:
    orders.execute(f"ALTER SEQUENCE orders_id_seq {sequence} " + ("MINVALUE -100" if "-1" in sequence else ""))
    source = sql_source(url_of(orders), "orders")
    with pytest.raises(SourceRefused, match=named):
        source.start(None)
    [found] = [one for one in source.check() if isinstance(one, Finding) and one.severity is Severity.ERROR]
    assert named in found.problem
    with polling(orders, unsafeSequences="accept"):
        pass


def test_an_identity_column_with_a_cache_is_refused(database: Database) -> None:
    database.execute("CREATE TABLE orders (id bigint GENERATED BY DEFAULT AS IDENTITY (CACHE 5) PRIMARY KEY)")
    with pytest.raises(SourceRefused, match="CACHE 5"):
        sql_source(url_of(database), "orders").start(None)


@pytest.mark.behaviour("P5")
@pytest.mark.parametrize(
    "columns",
    [
        "id bigint DEFAULT nextval('ids'), day date DEFAULT '2026-11-24', PRIMARY KEY (id, day)",
        "id bigint DEFAULT nextval('ids'), day date DEFAULT '2026-11-24', PRIMARY KEY (day, id)",
        "id text DEFAULT 'A' || lpad(nextval('ids')::text, 9, '0') PRIMARY KEY",
        "id numeric DEFAULT nextval('ids') PRIMARY KEY",
    ],
)
def test_a_cache_is_refused_whatever_the_sequence_feeds_of_the_key(database: Database, columns: str) -> None:
    database.execute(f"CREATE SEQUENCE ids CACHE 20; CREATE TABLE orders ({columns})")
    source = sql_source(url_of(database), "orders")
    with pytest.raises(SourceRefused, match="CACHE 20"):
        source.start(None)
    assert [one for one in source.check() if one.severity is Severity.ERROR and "CACHE 20" in one.problem]


def test_a_cache_of_a_sequence_that_feeds_no_key_is_nobodys_affair(database: Database) -> None:
    database.execute(
        "CREATE SEQUENCE numbers CACHE 20;"
        "CREATE TABLE orders (id bigserial, day date, number bigint DEFAULT nextval('numbers'), PRIMARY KEY (id, day))",
    )
    with polling(database):
        pass


@pytest.mark.behaviour("P5")
def test_a_sequence_that_is_given_a_cache_while_it_is_used_stops_the_source(
    orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.sql.watched_table._SEQUENCE_SECONDS", 0.2)
    with polling(orders) as source, polling(orders, unsafeSequences="accept") as accepting:
        orders.execute("INSERT INTO orders (note) VALUES ('a')")
        assert notes(source, 1) == notes(accepting, 1) == ["a"]
        orders.execute("ALTER SEQUENCE orders_id_seq CACHE 20")
        with pytest.raises(SourceRefused, match="CACHE 20"):
            read_quiet(source, 3)
        assert not source.status().ok
        read_quiet(accepting, 0.5)


def test_the_statements_of_a_poll_use_the_index(database: Database) -> None:
    database.execute(
        "CREATE TABLE orders (id bigserial PRIMARY KEY, note text);"
        "CREATE TABLE visits (shop text, at timestamptz, n int, PRIMARY KEY (shop, at, n));"
        "INSERT INTO orders (note) SELECT 'n' FROM generate_series(1, 5000);"
        "INSERT INTO visits SELECT 's' || n % 7, now(), n FROM generate_series(1, 5000) n; ANALYZE"
    )
    ends = {
        "orders": ((4990,), (5000,)),
        "visits": (("s6", "2026-01-01 00:00:00+00", 1), ("s7", "2026-01-01 00:00:00+00", 2)),
    }
    with polling(database, *ends) as source:
        for name, (cursor, to) in ends.items():
            table = source._tables[f"public.{name}"].table
            statement = table.make_rows_statement(cursor, to, 100).compile(
                dialect=source._url.get_dialect()(), compile_kwargs={"literal_binds": True}
            )
            plan = database.query(f"EXPLAIN {statement}".replace("%%", "%"))
            assert "Index" in str(plan), name
            assert "Seq Scan" not in str(plan), name
            assert "Sort" not in str(plan), name


@pytest.mark.behaviour("P6")
def test_no_statement_of_a_poll_reads_a_whole_table(database: Database) -> None:
    """By the server's own counters: at the start, in a backlog, and when nothing comes."""
    database.execute(
        "CREATE TABLE orders (id bigserial PRIMARY KEY, note text);"
        "CREATE TABLE visits (shop text, at timestamptz, n int, PRIMARY KEY (shop, at, n));"
        "INSERT INTO orders (note) SELECT 'n' FROM generate_series(1, 20000);"
        "INSERT INTO visits SELECT 's' || n % 7, now(), n FROM generate_series(1, 20000) n; ANALYZE"
    )
    scans = "SELECT sum(seq_scan), sum(idx_scan), sum(n_tup_ins) FROM pg_stat_user_tables"
    # A session's counters are there for others when it has ended: so those of the session that made the indexes.
    wait_for(lambda: database.query(scans)[0][2] == 40_000, "the counters of the session that filled the tables")
    before = database.query(scans)[0]
    with polling(database, "orders", "visits", pollInterval="20ms", batchSize=3000, settle="0s") as source:
        read_rows(source, 40_000)
        with database.session() as late:
            run(late, "INSERT INTO orders (note) VALUES ('late')")
            database.execute("INSERT INTO orders (note) VALUES ('early')")
            read_quiet(source, 0.3)
            late.commit()
        read_rows(source, 2)
        polls = source.stats()["polls"]
    assert polls > 10
    wait_for(lambda: database.query(scans)[0][1] > before[1] + polls, "the counters of the session")
    assert database.query(scans)[0][0] == before[0]


@pytest.mark.behaviour("P2")
def test_a_row_whose_time_was_taken_before_its_transaction_wrote_is_not_left_out(database: Database) -> None:
    database.execute(
        "CREATE TABLE visits (at timestamptz DEFAULT now(), id bigserial, note text, PRIMARY KEY (at, id))"
    )
    assert [one for one in findings(sql_source(url_of(database), "visits")) if "may have been taken long before" in one]
    with database.session() as late, polling(database, "visits", settle="1s") as source:
        run(late, "SELECT 1")
        database.execute("INSERT INTO visits (note) VALUES ('early')")
        assert rows_of(read_quiet(source, 0.3)) == []
        run(late, "INSERT INTO visits (note) VALUES ('late')")
        late.commit()
        assert notes(source, 2) == ["late", "early"]


def test_a_time_in_a_key_is_waited_for_unless_settle_says_otherwise(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("CREATE TABLE visits (day date, id bigserial, note text, PRIMARY KEY (day, id))")
    with polling(database, "visits") as source:
        assert "5 s after they were seen: a time in their key" in source.status().reason
    with polling(database, "visits", settle="0s") as source:
        assert "are left out (settle = 0)" in source.status().reason
    assert "are left out (settle = 0)" in caplog.text


@pytest.mark.parametrize(("settle", "is_told"), [("0s", True), ("1ms", False), ("auto", False)])
def test_a_view_that_is_read_without_settling_is_told_to_leave_rows_out(
    orders: Database, caplog: pytest.LogCaptureFixture, settle: str, is_told: bool
) -> None:
    orders.execute("CREATE VIEW seen AS SELECT * FROM orders")
    left_out = "rows of public.seen that are committed later with smaller keys than others are left out (settle = 0)"
    entries = "orders", {"table": "seen", "key": "id"}
    assert (left_out in findings(sql_source(url_of(orders), *entries, settle=settle))) == is_told
    with polling(orders, *entries, settle=settle) as source:
        assert (left_out in source.status().reason) == (left_out in caplog.text) == is_told
        assert "rows of public.orders" not in source.status().reason, "writers of tables are told"


def test_check_recommends_the_wal_and_names_what_is_missing(orders: Database) -> None:
    orders.execute("CREATE TABLE loose (a int, b text); CREATE TABLE old (at timestamptz NOT NULL, id int PRIMARY KEY)")
    entries = ["orders", "nowhere", "loose", {"table": "old", "key": ["at", "id"]}]
    found = findings(sql_source(url_of(orders), *entries))
    assert [text for text in found if "UPDATE and DELETE are not seen" in text]
    assert [text for text in found if "nowhere does not exist" in text]
    assert [text for text in found if "public.loose has no primary key" in text]
    assert [text for text in found if "public.old has no index on its key (at, id)" in text]
    assert not [text for text in found if "public.orders" in text]


def test_check_names_a_right_that_is_missing(orders: Database) -> None:
    orders.execute(f"CREATE ROLE \"poor {orders.name}\" LOGIN PASSWORD 'secret-of-the-poor'")
    try:
        url = url_of(orders).replace("://postgres@", f"://poor%20{orders.name}:secret-of-the-poor@")
        [found] = [one for one in sql_source(url, "orders").check() if one.severity is Severity.ERROR]
        assert "permission denied" in str(found)
        assert "GRANT SELECT" in str(found)
        orders.execute(f'GRANT SELECT ON orders TO "poor {orders.name}"')
        with orders.session() as late, started(sql_source(url, "orders")) as source:
            run(late, "INSERT INTO orders (note) VALUES ('late')")
            orders.execute("INSERT INTO orders (note) VALUES ('early')")
            assert rows_of(read_quiet(source)) == [], "a role that may read nothing else sees the locks"
            late.commit()
            assert notes(source, 2) == ["late", "early"]
    finally:
        orders.execute(f'DROP OWNED BY "poor {orders.name}"; DROP ROLE "poor {orders.name}"')


def test_two_services_on_one_table_do_not_disturb_each_other(orders: Database) -> None:
    with polling(orders) as one, polling(orders) as other:
        orders.execute("INSERT INTO orders (note) VALUES ('a'), ('b')")
        assert notes(one, 2) == ["a", "b"]
        assert notes(other, 2) == ["a", "b"]


def test_rows_that_are_deleted_behind_the_cursor_are_no_reason_to_stop_where_the_sequence_goes_on(
    orders: Database,
) -> None:
    with polling(orders) as source:
        require_that_deletions_do_not_matter(source, orders.execute)


def test_a_query_of_which_the_server_does_not_say_who_writes_is_read_by_time(orders: Database) -> None:
    entry = {"query": "SELECT id, note FROM orders", "name": "view_of_orders", "key": "id"}
    orders.execute("INSERT INTO orders (note) VALUES ('a')")
    with polling(orders, entry, settle="400ms") as source:
        began = time.monotonic()
        assert notes(source, 1) == ["a"]
        assert time.monotonic() - began >= 0.4
        assert "400" in source.status().reason or "0.4 s" in source.status().reason


@pytest.mark.parametrize(("declared", "keys"), [("char(4)", ["a", "ab", "b"]), ("bit(4)", ["0001", "0010", "1000"])])
def test_a_query_is_read_by_a_key_of_a_type_that_has_a_length(
    database: Database, declared: str, keys: list[str]
) -> None:
    database.execute(f"CREATE TABLE orders (id {declared} PRIMARY KEY, note text)")
    for key in keys:
        database.execute("INSERT INTO orders VALUES (%s, %s)", key, key)
    entry = {"query": "SELECT * FROM orders", "name": "q", "key": "id"}
    with polling(database, entry, settle="0s", batchSize=1) as source:
        assert notes(source, 3) == keys
        assert rows_of(read_quiet(source, 0.3)) == []


def test_a_view_is_read_by_time_for_its_tables_are_not_known(orders: Database) -> None:
    orders.execute("CREATE VIEW shown AS SELECT * FROM orders")
    with orders.session() as late, polling(orders, {"table": "shown", "key": "id"}, settle="1s") as source:
        run(late, "INSERT INTO orders (note) VALUES ('late')")
        orders.execute("INSERT INTO orders (note) VALUES ('early')")
        assert rows_of(read_quiet(source, 0.3)) == []
        late.commit()
        assert notes(source, 2) == ["late", "early"]


def test_a_foreign_table_which_can_have_no_index_is_read_by_time(either_postgres: Database) -> None:
    if not either_postgres.query("SELECT FROM pg_available_extensions WHERE name = 'postgres_fdw'"):
        pytest.skip("this server has no postgres_fdw")
    server = parse_dsn(either_postgres.dsn)
    either_postgres.execute(
        "CREATE TABLE orders (id bigserial PRIMARY KEY, note text); CREATE EXTENSION postgres_fdw;"
        "CREATE SERVER itself FOREIGN DATA WRAPPER postgres_fdw OPTIONS "
        f"(host '{server['host']}', port '{server['port']}', dbname '{server['dbname']}');"
        "CREATE USER MAPPING FOR CURRENT_USER SERVER itself OPTIONS (password_required 'false');"
        "CREATE FOREIGN TABLE shown (id bigint NOT NULL, note text) SERVER itself OPTIONS (table_name 'orders')"
    )
    entry = {"table": "shown", "key": "id"}
    with either_postgres.session() as late, polling(either_postgres, entry, settle="1s") as source:
        run(late, "INSERT INTO orders (note) VALUES ('late')")
        either_postgres.execute("INSERT INTO orders (note) VALUES ('early')")
        assert rows_of(read_quiet(source, 0.3)) == []
        late.commit()
        assert notes(source, 2) == ["late", "early"]


def test_a_database_that_is_away_is_unavailable_and_its_password_is_not_shown(orders: Database) -> None:
    source = sql_source("postgresql+psycopg2://me:hunter2-of-mine@127.0.0.1:1/shop", "orders")
    with pytest.raises(SourceUnavailable) as caught:
        source.read_stream_identity()
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(source.options)


def test_the_wait_for_a_hanging_server_ends(orders: Database) -> None:
    with polling(orders) as source:
        ended = threading.Event()

        def read_on() -> None:
            with orders.session() as owner:
                run(owner, "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
                try:
                    read_quiet(source, 20)
                except SourceUnavailable:
                    ended.set()

        reading = threading.Thread(target=read_on)
        reading.start()
        wait_for(lambda: orders.value("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0, "a poll that waits")
        source.interrupt()
        assert ended.wait(3)
        reading.join()


def read_plan(source: SqlSource) -> Position:
    """What a poll found, of which nothing was read yet."""
    position = read(source, lambda batches: bool(batches) and bool(batches[-1].position.data["pieces"]))[-1].position
    assert position.data["pieces"][0]["done"] == 0
    return position


@pytest.mark.behaviour("P2")
def test_rows_of_a_plan_that_a_server_lacks_which_is_behind_are_read_when_it_has_them(database: Database) -> None:
    insert = "INSERT INTO visits SELECT n, '' FROM generate_series({}, {}) n"
    database.execute("CREATE TABLE visits (id int PRIMARY KEY, note text)")
    database.execute(insert.format(1, 2))
    with polling(database, "visits") as source:
        read_rows(source, 2)
        database.execute(insert.format(3, 5))
        plan = read_plan(source)
        database.execute("DELETE FROM visits WHERE id > 3")  # what a standby has that is behind by two rows
        with pytest.raises(PositionRefused, match="or this server is behind the one that was read before"):
            read_rows(source, 1)
        database.execute(insert.format(4, 5))
        source.start(plan)
        assert [row["id"] for row in read_rows(source, 3)] == ["3", "4", "5"]


def test_rows_of_a_plan_that_are_deleted_in_front_of_others_are_not_waited_for(orders: Database) -> None:
    with polling(orders) as source:
        orders.execute("INSERT INTO orders (note) VALUES ('a'), ('b')")
        read_plan(source)
        orders.execute("INSERT INTO orders (note) VALUES ('c'); DELETE FROM orders WHERE note = 'b'")
        assert notes(source, 2) == ["a", "c"]


def test_a_table_that_is_locked_for_longer_than_the_timeout_is_told_with_where_to_look(orders: Database) -> None:
    with polling(orders, timeout="1s") as source, orders.session() as other:
        run(other, "LOCK TABLE orders")
        with pytest.raises(SourceUnavailable, match=r"new rows in public\.orders: .*statement timeout.*look for locks"):
            read_quiet(source, 30.0)
        assert not source.status().ok
