"""Rows that were there, as READ changes beside the stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg2
import pytest

from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.errors import SourceRefused, SourceUnavailable
from psql_streamer.model import Batch, RowOp
from psql_streamer.snapshot.fence import Fence
from psql_streamer.snapshots import SnapshotRequest, SnapshotState, TableRequest, TableState, Wanted
from sources.postgres.snapshot import readers
from sources.postgres.snapshot.copying import Chunk, begin, read_chunk
from sources.postgres.snapshot.tables import SnapshotTable, describe_shape
from tests.beside import run_beside
from tests.database import Database
from tests.integration.test_snapshot_races import Consumer, snapshotting
from tests.snapshot_fold import Fold, Row, rows_of_changes
from tests.source_at_work import source_of, start_again, wait_for

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t;"


def started(database: Database, **more: object) -> Consumer:
    consumer = Consumer(snapshotting(database, **more))
    consumer.source.read_stream_identity()
    consumer.source.start(None)
    return consumer


@contextmanager
def reading(database: Database, rows: int, **more: object) -> Iterator[Consumer]:
    """With so many rows read, and stopped at the end."""
    consumer = started(database, **more)
    try:
        while consumer.fold.reads < rows:
            consumer.read()
        yield consumer
    finally:
        consumer.source.stop()


def reads(batch: Batch | None) -> int:
    return 0 if batch is None else sum(rows for *_, kind, rows in batch.count_changes() if kind is RowOp.READ)


@pytest.mark.behaviour("N1")
def test_the_rows_that_were_there_come_and_then_what_changes(database: Database) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 1000) i")
    consumer = started(database)
    try:
        consumer.until_done()
        database.execute("UPDATE t SET v = 'changed' WHERE id < 10; INSERT INTO t VALUES (2000, 'new')")
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    assert consumer.fold.reads == 1000
    consumer.fold.assert_equals(database, "public.t")
    [shown] = consumer.source.list_snapshots()
    assert (shown.state, shown.rows, shown.on_demand) == (SnapshotState.DONE, 1000, False)
    assert [(table.table, table.state, table.rows) for table in shown.tables] == [("public.t", TableState.DONE, 1000)]


@pytest.mark.behaviour("N2")
def test_a_start_behind_a_snapshot_that_ended_takes_none(database: Database) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i FROM generate_series(1, 10) i")
    consumer = started(database)
    consumer.until_done()
    consumer.keep()
    consumer.lose(snapshotting(database))
    try:
        database.execute("INSERT INTO t VALUES (11)")
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    assert consumer.fold.reads == 10
    consumer.fold.assert_equals(database, "public.t")


@pytest.mark.behaviour("N3")
def test_a_chunk_that_was_given_and_is_durable_is_not_read_again(database: Database) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i FROM generate_series(1, 1000) i")
    consumer = started(database, chunkRows=100, parallel=1)
    while consumer.fold.reads < 500:
        consumer.read()
    consumer.keep()
    kept = consumer.fold.reads
    while consumer.fold.reads < 700:
        consumer.read()
    consumer.lose(snapshotting(database))
    try:
        consumer.until_done()
    finally:
        consumer.source.stop()
    assert consumer.fold.reads == 1000, f"{kept} were durable"


@pytest.mark.behaviour("N6")
def test_a_commit_that_the_stream_gives_before_others_can_see_it_is_in_no_chunk(
    own_postgres: EmbeddedPostgres,
) -> None:
    database = _waiting_for_a_standby(own_postgres)
    database.execute(TABLE + "INSERT INTO t SELECT i, 'old' FROM generate_series(1, 100) i")
    consumer = started(database, mode="never")
    waiting = threading.Thread(target=_update, args=(database, 7))
    try:
        waiting.start()
        while (b"7",) not in consumer.fold.touched.get("public.t", {}):
            consumer.read()
        assert database.value("SELECT v FROM t WHERE id = 7") == "old", "the commit is visible: the test shows nothing"
        consumer.source.set_snapshots([SnapshotRequest("now", asked_at=1.0)])
        _read_for_a_second(consumer)
        assert consumer.fold.reads == 0
        assert "waits for transactions that were writing to public.t" in consumer.source.list_snapshots()[0].reason
        _let_commits_go(database)
        consumer.until_done()
    finally:
        consumer.source.stop()
        waiting.join(10)
    assert consumer.fold.reads == 100
    consumer.fold.assert_equals(database, "public.t")


@pytest.mark.parametrize("others_commit", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_start_behind_a_commit_that_others_cannot_see_reads_nothing_before_they_can(
    own_postgres: EmbeddedPostgres, others_commit: bool
) -> None:
    database = _waiting_for_a_standby(own_postgres)
    database.execute(TABLE + "INSERT INTO t SELECT 107 - i, repeat('old', 500) FROM generate_series(1, 100) i")
    few = {"chunkRows": 10, "chunkBytes": 2000, "parallel": 1}
    consumer = started(database, **few)
    waiting = threading.Thread(target=_update, args=(database, 97))
    try:
        while not consumer.fold.reads:
            consumer.read()
        waiting.start()
        while (b"97",) not in consumer.fold.touched.get("public.t", {}):
            consumer.read()
        if others_commit:
            database.execute("UPDATE t SET v = v WHERE id = 106")
        consumer.keep()
        given = consumer.fold.reads
        consumer.lose(snapshotting(database, **few))
        _read_for_a_second(consumer)
        assert consumer.fold.reads == given
        _let_commits_go(database)
        consumer.until_done()
    finally:
        consumer.source.stop()
        waiting.join(10)
    consumer.fold.assert_equals(database, "public.t")


@pytest.mark.parametrize("commits", [False, True])
def test_a_start_waits_for_a_prepared_transaction_only_while_its_commit_waits_for_a_standby(
    own_postgres: EmbeddedPostgres, commits: bool
) -> None:
    own_postgres.settings["max_prepared_transactions"] = "5"
    database = _waiting_for_a_standby(own_postgres)
    database.execute(TABLE + "INSERT INTO t SELECT 107 - i, repeat('old', 500) FROM generate_series(1, 100) i")
    few = {"chunkRows": 10, "chunkBytes": 2000, "parallel": 1}
    consumer = started(database, **few)
    committing = threading.Thread(target=_commit_prepared, args=(database,))
    try:
        while not consumer.fold.reads:
            consumer.read()
        with database.session(autocommit=True) as session, session.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("UPDATE t SET v = 'new' WHERE id = 97")
            cursor.execute("PREPARE TRANSACTION 'left'")
        if commits:
            committing.start()
            while (b"97",) not in consumer.fold.touched.get("public.t", {}):
                consumer.read()
        database.execute("UPDATE t SET v = v WHERE id = 106")
        consumer.keep()
        given = consumer.fold.reads
        consumer.lose(snapshotting(database, **few))
        if commits:
            _read_for_a_second(consumer)
            assert consumer.fold.reads == given
            _let_commits_go(database)
        consumer.until_done(20)
    finally:
        consumer.source.stop()
        if commits:
            committing.join(10)
    consumer.fold.assert_equals(database, "public.t")


def _commit_prepared(database: Database) -> None:
    with database.session(autocommit=True) as session, session.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
        cursor.execute("COMMIT PREPARED 'left'")


@pytest.mark.soak
def test_a_chunk_behind_wal_that_is_not_written_out_comes_though_no_standby_confirms_commits(
    own_postgres: EmbeddedPostgres,
) -> None:
    database = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    database.execute(TABLE + "INSERT INTO t SELECT i FROM generate_series(1, 100) i")
    database.execute("CREATE TABLE other (id int)")
    consumer = started(database, mode="never", parallel=1)
    try:
        with database.session(autocommit=True) as session, session.cursor() as cursor:
            cursor.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            cursor.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            cursor.execute("SELECT pg_reload_conf()")
        with database.session() as session, session.cursor() as cursor:
            for number in range(2):
                cursor.execute("INSERT INTO other VALUES (1)")
                consumer.source.set_snapshots(
                    [SnapshotRequest(f"s{at}", asked_at=1.0 + at) for at in range(number + 1)]
                )
                consumer.until_done(20.0)
    finally:
        consumer.source.stop()
    assert consumer.fold.reads == 200


def _read_for_a_second(consumer: Consumer) -> None:
    ends = time.monotonic() + 1.0
    while time.monotonic() < ends:
        consumer.read()


def _waiting_for_a_standby(server: EmbeddedPostgres) -> Database:
    """A server on which those commits that ask for it wait for a standby that never comes."""
    server.settings |= {"synchronous_standby_names": "nobody", "synchronous_commit": "local"}
    server.restart()
    return Database("postgres", server.build_dsn(), server.version)


def _let_commits_go(database: Database) -> None:
    with database.session(autocommit=True) as session, session.cursor() as cursor:
        cursor.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        cursor.execute("SELECT pg_reload_conf()")


def _update(database: Database, number: int) -> None:
    database.execute("SET LOCAL synchronous_commit = on; UPDATE t SET v = 'new' WHERE id = %s", number)


@pytest.mark.behaviour("N7")
def test_a_truncate_leaves_nothing_of_the_rows_that_were_read_before(database: Database) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i FROM generate_series(1, 1000) i")
    with reading(database, 100, chunkRows=100) as consumer:
        database.execute("TRUNCATE t; INSERT INTO t VALUES (5, 'behind')")
        consumer.until_done()
        consumer.until_level(database)
    consumer.fold.assert_equals(database, "public.t")


@pytest.mark.behaviour("N8")
@pytest.mark.parametrize(
    "alter",
    ["ADD COLUMN w int DEFAULT 7", "DROP COLUMN v", "ALTER id TYPE bigint", "ALTER v TYPE varchar USING upper(v)"],
)
def test_a_table_that_is_altered_meanwhile_is_read_in_its_new_shape(database: Database, alter: str) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 1000) i")
    with reading(database, 100, chunkRows=100) as consumer:
        database.execute(f"ALTER TABLE t {alter}")
        database.execute("INSERT INTO t (id) VALUES (2000)")
        consumer.until_done()
        consumer.until_level(database)
    keys = {key for (key,) in consumer.fold.tables["public.t"]}
    assert keys == {str(number).encode() for number in [*range(1, 1001), 2000]}
    last = consumer.fold.tables["public.t"][b"1000",]
    columns = "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped"
    assert [*last] == [name for (name,) in database.query(f"{columns} ORDER BY attnum")]


@pytest.mark.behaviour("N4")
def test_a_snapshot_on_demand_waits_runs_pauses_and_is_cancelled(database: Database) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i FROM generate_series(1, 1000) i")
    consumer = started(database, mode="never", chunkRows=100)
    try:
        request = SnapshotRequest("one", (TableRequest("public.t", "id <= 500"),), asked_at=1.0)
        consumer.source.review_snapshot(request)
        consumer.source.set_snapshots([request])
        while consumer.fold.reads < 100:
            consumer.read()
        consumer.source.set_snapshots([SnapshotRequest("one", request.tables, Wanted.PAUSE, 1.0)])
        for _ in range(20):
            consumer.read()
        paused = consumer.fold.reads
        assert paused < 500
        for _ in range(20):
            consumer.read()
        assert consumer.fold.reads == paused
        assert consumer.source.list_snapshots()[0].state is SnapshotState.PAUSED
        consumer.source.set_snapshots([request])
        consumer.until_done()
        assert consumer.fold.reads == 500
        second = SnapshotRequest("two", (), Wanted.RUN, 2.0)
        consumer.source.set_snapshots([request, second])
        while consumer.fold.reads < 600:
            consumer.read()
        consumer.source.set_snapshots([request, SnapshotRequest("two", (), Wanted.CANCEL, 2.0)])
        consumer.until_done()
        assert consumer.fold.reads < 1500
        assert [one.state for one in consumer.source.list_snapshots()] == [SnapshotState.DONE, SnapshotState.CANCELLED]
    finally:
        consumer.source.stop()


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (
            "public.nothing",
            r'the publication "p" has no table public\.nothing: name a table that it has; known: public',
        ),
        ("public.keyles", r"has no table public\.keyles: name a table that it has; did you mean public\.keyless\?"),
        ("keyles", r"has no table keyles: name a table that it has; did you mean keyless\?"),
        ("public.Not added", r'Not added: ALTER PUBLICATION p ADD TABLE public\."Not added", or name another table'),
        ("public.keyless", r"public\.keyless has neither a primary key"),
        ("hidden_*", r'the publication "p" has none of these tables'),
    ],
)
def test_a_request_that_cannot_be_followed_is_refused(database: Database, table: str, reason: str) -> None:
    database.execute("CREATE TABLE keyless (v text); CREATE PUBLICATION p FOR TABLE keyless")
    database.execute('CREATE TABLE "Not added" (id int PRIMARY KEY)')
    consumer = started(database, mode="never")
    try:
        with pytest.raises(SourceRefused, match=reason):
            consumer.source.review_snapshot(SnapshotRequest("x", (TableRequest(table),)))
    finally:
        consumer.source.stop()


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            TABLE + "ALTER TABLE t REPLICA IDENTITY NOTHING",
            'has REPLICA IDENTITY NOTHING: .*: ALTER TABLE "public"."t" REPLICA IDENTITY DEFAULT if it has a primary',
        ),
        (
            TABLE + "CREATE UNIQUE INDEX i ON t (id); ALTER TABLE t REPLICA IDENTITY USING INDEX i; DROP INDEX i",
            'the replica identity of public.t was dropped: ALTER TABLE "public"."t" REPLICA IDENTITY DEFAULT',
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE PUBLICATION p FOR TABLE t (v) WITH (publish = insert)",
            "a column of the key of public.t is not published: name it in the publication's column list",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE); CREATE PUBLICATION p FOR TABLE t",
            "has neither a primary key nor another replica identity, or a DEFERRABLE one",
        ),
    ],
)
def test_a_table_that_has_a_primary_key_is_not_said_to_need_one(database: Database, schema: str, reason: str) -> None:
    database.execute(schema)
    with pytest.raises(SourceRefused, match=reason):
        source_of(database).review_snapshot(SnapshotRequest("x", (TableRequest("public.t"),)))
    told = [one.remedy for one in source_of(database, snapshot="initial").check() if "has no key" in one.problem]
    assert [one.endswith("; or leave it out with snapshot.tables") for one in told] == [True]


def test_nobody_is_told_to_add_a_table_to_a_publication_of_all_tables(database: Database) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE PUBLICATION p FOR ALL TABLES")
    database.execute("CREATE UNLOGGED TABLE scratch (id int PRIMARY KEY)")
    consumer = started(database, mode="never")
    try:
        for table, said in [("public.ordres", r"did you mean public\.orders\?$"), ("public.scratch", "name a table")]:
            with pytest.raises(SourceRefused, match=said) as refused:
                consumer.source.review_snapshot(SnapshotRequest("x", (TableRequest(table),)))
            assert "ADD TABLE" not in str(refused.value)
    finally:
        consumer.source.stop()


@pytest.mark.parametrize("where", ["id > 1) OR (true", "true; DROP TABLE t", "id > 1 /*", "'"])
def test_a_condition_that_reaches_out_of_its_place_is_refused(database: Database, where: str) -> None:
    database.execute(TABLE)
    consumer = started(database, mode="never")
    try:
        with pytest.raises(SourceRefused, match=r"the condition of public\.t"):
            consumer.source.review_snapshot(SnapshotRequest("x", (TableRequest("public.t", where),)))
    finally:
        consumer.source.stop()


@pytest.mark.parametrize("table", ["public.t", "t*"])
@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("idd > 5", 'the server refuses the condition of public.t: column "idd" does not exist'),
        ("v", "argument of WHERE must be type boolean"),
        ("id IN (SELECT id FROM others)", 'relation "others" does not exist: .* need their schema'),
    ],
)
def test_a_condition_that_the_server_refuses_is_refused_when_it_is_asked_for(
    database: Database, table: str, where: str, reason: str
) -> None:
    database.execute(TABLE + "CREATE TABLE others (id int); CREATE TABLE too (v text)")
    database.execute("ALTER PUBLICATION p ADD TABLE too")
    consumer = started(database, mode="never")
    try:
        with pytest.raises(SourceRefused, match=reason):
            consumer.source.review_snapshot(SnapshotRequest("x", (TableRequest(table, where),)))
        with database.session() as other, other.cursor() as cursor:
            cursor.execute("LOCK TABLE t")
            consumer.source.review_snapshot(SnapshotRequest("x", (TableRequest(table, "id > 5"),)))
        consumer.source.review_snapshot(SnapshotRequest("x", (TableRequest(table, "id > 5 -- and so on"),)))
    finally:
        consumer.source.stop()


@pytest.mark.behaviour("N5")
def test_tables_without_a_key_come_before_the_stream_at_the_first_start(database: Database) -> None:
    database.execute(
        "CREATE TABLE keyless (v int, w text); CREATE TABLE keyed (id int PRIMARY KEY);"
        "CREATE PUBLICATION p FOR TABLE keyless, keyed WITH (publish = 'insert, truncate');"
        "INSERT INTO keyless SELECT i % 10, repeat('x', i % 500) FROM generate_series(1, 1000) i;"
        "INSERT INTO keyed SELECT i FROM generate_series(1, 100) i"
    )
    consumer = started(database, chunkRows=300)
    try:
        database.execute("INSERT INTO keyless SELECT 99, 'later' FROM generate_series(1, 50)")
        found: list[tuple[str, str]] = []
        while not consumer.done or ("insert", "99") not in found:
            batch = consumer.source.read(0.05)
            if batch is None:
                continue
            consumer.source.confirm(batch.position)
            for changes in batch.changes:
                if changes.relation.table == "keyless":
                    op = RowOp(int(changes.op[0])).action
                    found += [(op, value.decode()) for value in changes.after.columns[0].to_pylist()]
    finally:
        consumer.source.stop()
    assert [op for op, _ in found] == ["read"] * 1000 + ["insert"] * 50
    assert sorted(value for op, value in found if op == "read") == sorted(str(i % 10) for i in range(1000))


@pytest.mark.behaviour("N5")
def test_a_stop_while_tables_without_a_key_are_read_begins_with_another_slot(database: Database) -> None:
    database.execute(
        "CREATE TABLE keyless (v int); CREATE PUBLICATION p FOR TABLE keyless;"
        "INSERT INTO keyless SELECT i FROM generate_series(1, 1000) i"
    )
    consumer = started(database, chunkRows=300)
    while not reads(consumer.read()):
        pass
    consumer.keep()
    database.execute("INSERT INTO keyless VALUES (5000)")
    source = snapshotting(database)
    consumer.source.stop()
    source.read_stream_identity()
    assert consumer.position is not None
    start_again(source, consumer.position)
    count = 0
    try:
        while not all(one.state.ended for one in source.list_snapshots()):
            batch = source.read(0.05)
            if batch is not None:
                count += reads(batch)
                source.confirm(batch.position)
    finally:
        source.stop()
    assert count == 1001


@pytest.mark.behaviour("N5")
def test_whoever_waits_for_the_lock_of_a_table_without_a_key_does_not_hold_up_its_reading(database: Database) -> None:
    database.execute(
        "CREATE TABLE keyless (v int); CREATE TABLE other (v int); CREATE PUBLICATION p FOR TABLE keyless, other;"
        "INSERT INTO keyless SELECT i FROM generate_series(1, 1000) i; INSERT INTO other VALUES (1)"
    )

    altered: list[int] = []

    def alter(_: threading.Event) -> None:
        try:
            altered.append(database.execute("SET lock_timeout = '10s'; ALTER TABLE keyless ADD w int; TRUNCATE other"))
        except psycopg2.errors.LockNotAvailable:
            altered.append(0)

    consumer = started(database, chunkRows=100, chunkBytes=3000)  # what may be held is less than the table
    try:
        with run_beside(alter):
            wait_for(lambda: bool(database.query("SELECT FROM pg_locks WHERE NOT granted")), "ALTER TABLE to wait")
            while not altered:
                consumer.read()
        assert altered != [0], "it waits for the snapshot, and the snapshot for it"
        consumer.until_done()
    finally:
        consumer.source.stop()
    assert consumer.fold.reads == 1001


@pytest.mark.behaviour("N5")
def test_a_session_that_ends_while_it_reads_a_table_without_a_key_costs_and_repeats_no_row(database: Database) -> None:
    database.execute(
        "CREATE TABLE keyless (v int); CREATE PUBLICATION p FOR TABLE keyless;"
        "INSERT INTO keyless SELECT i FROM generate_series(1, 1000) i"
    )
    consumer = started(database, chunkRows=100, chunkBytes=3000)
    try:
        while not consumer.fold.reads:
            consumer.read()
        database.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'psql-streamer snapshot' AND state = 'idle in transaction'"
            " AND backend_xmin IS NOT NULL"
        )
        consumer.until_done()
    finally:
        consumer.source.stop()
    assert consumer.fold.reads == 1000


@pytest.mark.parametrize("given", [pytest.param(False, marks=pytest.mark.soak), True])
def test_tables_without_a_key_are_read_anew_when_their_session_ends(database: Database, given: bool) -> None:
    database.execute(
        "CREATE TABLE keyless (v text); CREATE PUBLICATION p FOR TABLE keyless;"
        "INSERT INTO keyless SELECT repeat('x', 1000) FROM generate_series(1, 1000) i"
    )
    consumer = started(database, chunkBytes=10_000, parallel=1)  # what may be held is less than the table
    try:
        if given:
            while not reads(consumer.read()):
                pass
        database.execute(  # whatever they do at the moment: one that is left reads the table to its end
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE relation = 'keyless'::regclass AND granted"
            " GROUP BY pid"
        )
        with pytest.raises(SourceUnavailable, match="the session that held the state"):
            wait_for(lambda: consumer.read() is None and False, "the end of the session")
        start_again(consumer.source, consumer.position)
        count = 0
        while not all(one.state.ended for one in consumer.source.list_snapshots()):
            batch = consumer.source.read(0.05)
            if batch is not None:
                count += reads(batch)
                consumer.source.confirm(batch.position)
        assert count == 1000
        assert [one.state for one in consumer.source.list_snapshots()] == [SnapshotState.DONE]
    finally:
        consumer.source.stop()


@pytest.mark.behaviour("N9")
@pytest.mark.parametrize("key", ["PRIMARY KEY", "NOT NULL"])
def test_a_table_that_may_not_be_read_fails_and_the_others_are_read(database: Database, key: str) -> None:
    database.execute(
        TABLE + f"CREATE TABLE secret (id int {key}); ALTER PUBLICATION p ADD TABLE secret;"
        "INSERT INTO t VALUES (1); INSERT INTO secret VALUES (1)"
    )
    role = f"reader_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN REPLICATION; GRANT SELECT ON t TO {role}")
    database.execute(f"GRANT SELECT (id) ON secret TO {role}")  # is not enough
    try:
        parts = psycopg2.extensions.parse_dsn(database.dsn) | {"user": role}
        consumer = started(Database(database.name, psycopg2.extensions.make_dsn(**parts), database.version))
        try:
            consumer.until_done()
        finally:
            consumer.source.stop()
    finally:
        database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    [shown] = consumer.source.list_snapshots()
    assert shown.state is SnapshotState.FAILED
    assert f'GRANT SELECT ON "public"."secret" TO {role}' in shown.reason
    assert consumer.fold.reads == 1


def test_a_position_that_there_is_begins_no_snapshot(database: Database) -> None:
    database.execute(TABLE + "INSERT INTO t VALUES (1)")
    first = source_of(database)
    first.read_stream_identity()
    first.start(None)
    while (batch := first.read(0.1)) is None:
        database.execute("SELECT pg_logical_emit_message(true, 'x', '')")
    first.stop()
    source = snapshotting(database)
    source.read_stream_identity()
    start_again(source, batch.position)
    try:
        assert source.list_snapshots() == []
    finally:
        source.stop()


def test_a_condition_that_fits_few_rows_is_followed_with_fewer_rows_at_once(database: Database) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i FROM generate_series(1, 400) i")
    database.execute(
        "CREATE FUNCTION rare(i int) RETURNS bool LANGUAGE plpgsql VOLATILE AS"
        " $$ BEGIN PERFORM pg_sleep(0.002); RETURN i % 40 = 0; END $$"
    )
    consumer = started(database, chunkTime="10ms", where={"public.t": "public.rare(id)"})
    try:
        consumer.until_done()
    finally:
        consumer.source.stop()
    assert sorted(int(key or b"0") for (key,) in consumer.fold.tables["public.t"]) == [*range(40, 401, 40)]


@pytest.mark.parametrize("tables", [["t", "u"], ["public.*"], ["/^public.[tu]$/"], []])
def test_a_condition_holds_however_the_option_tables_spells_its_table(database: Database, tables: list[str]) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i FROM generate_series(1, 9) i")
    database.execute(
        "CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1), (2); ALTER PUBLICATION p ADD TABLE u"
    )
    consumer = started(database, tables=tables, where={"public.t": "id > 7"})
    try:
        consumer.until_done()
        assert sorted(int(key or b"0") for (key,) in consumer.fold.tables["public.t"]) == [8, 9]
        consumer.source.set_snapshots([SnapshotRequest("asked", (TableRequest("t"),), asked_at=1.0)])
        consumer.until_done()
    finally:
        consumer.source.stop()
    assert consumer.fold.tables.keys() == {"public.t", "public.u"}
    assert consumer.fold.reads == 4 + 9  # what is asked for has no condition but its own


def test_snapshots_that_ended_stay_so_when_the_stream_begins_anew(database: Database) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i FROM generate_series(1, 10) i")
    consumer = started(database)
    try:
        consumer.until_done()
        for count in range(1, 8):
            consumer.source.set_snapshots([SnapshotRequest(f"s{at}", asked_at=1.0 + at) for at in range(count)])
            consumer.until_done()
        before = [(one.id, one.state, one.rows) for one in consumer.source.list_snapshots()]
        assert consumer.position is not None
        start_again(consumer.source, consumer.position)
        consumer.until_done()
        consumer.until_level(database)
        assert sorted((one.id, one.state, one.rows) for one in consumer.source.list_snapshots()) == sorted(before)
    finally:
        consumer.source.stop()
    assert consumer.fold.reads == 80


def test_many_snapshots_that_are_cancelled_together_have_all_ended(database: Database) -> None:
    database.execute(TABLE)
    consumer = started(database, mode="never")
    try:
        for wanted in (Wanted.RUN, Wanted.CANCEL):
            names = [f"s{number}" for number in range(10)]
            consumer.source.set_snapshots([SnapshotRequest(name, (), wanted, 1.0) for name in names])
        consumer.until_done()
    finally:
        consumer.source.stop()


def test_rows_of_a_transaction_that_began_before_its_table_was_published_are_not_lost(database: Database) -> None:
    database.execute(TABLE + "CREATE TABLE late (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    consumer = started(database, mode="never", parallel=1)
    try:
        with database.session() as writer, writer.cursor() as cursor:
            cursor.execute("INSERT INTO late VALUES (1)")
            database.execute("ALTER PUBLICATION p ADD TABLE late")
            consumer.source.set_snapshots([SnapshotRequest("one", asked_at=1.0)])
            while consumer.fold.reads < 1 or not consumer.source.list_snapshots()[0].reason:
                consumer.read()
            assert (
                "waits for transactions that were writing to public.late" in consumer.source.list_snapshots()[0].reason
            )
            cursor.execute("INSERT INTO late VALUES (2)")
            writer.commit()
        consumer.until_done()
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    consumer.fold.assert_equals(database, "public.late")


def test_a_table_that_is_locked_does_not_hold_up_the_others(database: Database) -> None:
    database.execute(
        TABLE + "CREATE TABLE u (id int PRIMARY KEY); ALTER PUBLICATION p ADD TABLE u; INSERT INTO u VALUES (1)"
    )
    consumer = started(database, mode="never", parallel=1)
    try:
        with database.session() as other, other.cursor() as cursor:
            cursor.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
            consumer.source.set_snapshots([SnapshotRequest("one", asked_at=1.0)])
            wait_for(lambda: consumer.read() is not None and consumer.fold.reads == 1, "the rows of u", 20.0)
        consumer.until_done()
    finally:
        consumer.source.stop()


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("v::int > 5", "cannot compute with the values of a row (InvalidTextRepresentation, SQLSTATE 22P02)"),
        ("id = (SELECT id FROM public.t)", "more than one row returned by a subquery"),
        ("lo_create(0) > 0", "cannot execute lo_create() in a read-only transaction: correct the condition"),
        ("generate_series(1, 2) = 1", "set-returning functions are not allowed in WHERE: correct the condition"),
    ],
)
def test_a_condition_that_fails_on_the_server_ends_the_table_and_shows_no_value(
    database: Database, caplog: pytest.LogCaptureFixture, condition: str, reason: str
) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i, 'hunter2' FROM generate_series(1, 10) i")
    consumer = started(database, mode="never")
    try:
        request = SnapshotRequest("one", (TableRequest("public.t", condition),), asked_at=1.0)
        consumer.source.set_snapshots([request])
        consumer.until_done(10.0)
    finally:
        consumer.source.stop()
    [shown] = consumer.source.list_snapshots()
    assert reason in shown.reason
    assert "hunter2" not in shown.reason + caplog.text


def test_the_last_snapshots_that_ended_are_shown(database: Database) -> None:
    database.execute(TABLE)
    consumer = started(database, mode="never")
    try:
        for count in range(1, 26):
            names = [f"s{at}" for at in range(count)]
            ended = [SnapshotRequest(name, (), Wanted.CANCEL, 1.0) for name in names[:-1]]
            consumer.source.set_snapshots([*ended, SnapshotRequest(names[-1], (), Wanted.RUN, 1.0)])
            consumer.until_done()
    finally:
        consumer.source.stop()
    assert [one.id for one in consumer.source.list_snapshots()] == [f"s{at}" for at in range(4, 25)]


def test_a_reader_that_fails_says_so_and_tries_again(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i FROM generate_series(1, 10) i")
    failures = [MemoryError("hunter2"), ValueError("hunter2")]

    def read_or_fail(*given: Any) -> Chunk:
        if failures:
            raise failures.pop()
        return read_chunk(*given)

    monkeypatch.setattr(readers, "read_chunk", read_or_fail)
    consumer = Consumer(source_of(database, snapshot={"mode": "initial", "parallel": 1}, startRetryInterval="50ms"))
    consumer.source.read_stream_identity()
    consumer.source.start(None)
    try:
        consumer.until_done()
    finally:
        consumer.source.stop()
    assert consumer.fold.reads == 10
    assert "a snapshot met a program error: MemoryError" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_reader_whose_session_the_server_ends_says_why(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    database.execute(TABLE + "INSERT INTO t VALUES (1)")
    consumer = started(database, mode="never", parallel=1)
    try:
        ends = TableRequest("public.t", "pg_terminate_backend(pg_backend_pid())")
        consumer.source.set_snapshots([SnapshotRequest("one", (ends,), asked_at=1.0)])
        wait_for(lambda: "a snapshot waits" in caplog.text, "the end of the session", 20.0)
        [shown] = consumer.source.list_snapshots()
    finally:
        consumer.source.stop()
    assert "server closed the connection unexpectedly" in shown.tables[0].reason
    assert "already closed" not in caplog.text


def test_a_chunk_that_ends_with_an_empty_key_is_given_once(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id text PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t;"
        "INSERT INTO t VALUES ('', repeat('x', 5000)), ('a', 'b'), ('c', 'd')"
    )
    consumer = started(database, chunkBytes=1000)
    try:
        consumer.until_done(10.0)
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    assert consumer.fold.reads == 3
    consumer.fold.assert_equals(database, "public.t")


def test_a_table_whose_name_another_one_has_taken_is_locked_before_it_is_read(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i, 'v' FROM generate_series(1, 300) i")
    meanwhile = ["", "ALTER TABLE t RENAME TO u; CREATE TABLE t (id int PRIMARY KEY)"]

    def begin_later(*given: Any) -> Fence:
        if meanwhile and (statement := meanwhile.pop(0)):
            database.execute(statement)
        return begin(*given)

    def rewrite_and_describe(*given: Any, **named: Any) -> SnapshotTable | None:
        table = describe_shape(*given, **named)
        if table is not None and table.relation.table == "u":
            with suppress(psycopg2.errors.LockNotAvailable):  # a chunk has it
                database.execute("SET lock_timeout = 100; ALTER TABLE u ALTER v TYPE varchar(9) USING v || 'x'")
        return table

    monkeypatch.setattr(readers, "begin", begin_later)
    monkeypatch.setattr(readers, "describe_shape", rewrite_and_describe)
    consumer = started(database, chunkRows=100, parallel=1)
    try:
        consumer.until_done()
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    assert consumer.fold.reads == 400  # a chunk under the old name, and all of them under the new one
    assert len(consumer.fold.tables["public.u"]) == 300


def test_a_slot_is_made_however_short_transactions_must_be(database: Database) -> None:
    if database.version < 17:
        pytest.skip("transaction_timeout came with PostgreSQL 17")
    database.execute(TABLE)
    with database.session() as writer, writer.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        database.execute(f"ALTER DATABASE \"{database.name}\" SET transaction_timeout = '200ms'")
        ends = threading.Timer(1.0, writer.commit)
        ends.start()
        consumer = started(database)
        ends.join()
    try:
        consumer.until_done()
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    consumer.fold.assert_equals(database, "public.t")


def test_a_partition_that_is_locked_does_not_hold_up_other_tables(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY LIST (id); CREATE TABLE one PARTITION OF t FOR VALUES IN (1);"
        "CREATE TABLE u (id int PRIMARY KEY); INSERT INTO t VALUES (1); INSERT INTO u VALUES (1);"
        "CREATE PUBLICATION p FOR TABLE t, u WITH (publish_via_partition_root)"
    )
    fold, reason = read_beside_lock(database, "one")
    assert "waits for" in reason
    assert fold.reads == 2


def test_a_table_with_a_row_filter_that_is_locked_does_not_hold_up_the_others(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1);"
        "INSERT INTO t VALUES (-1), (1); CREATE PUBLICATION p FOR TABLE t WHERE (id > 0), u"
    )
    fold, _ = read_beside_lock(database, "t")
    assert list(fold.tables["public.t"]) == [(b"1",)]


@pytest.mark.parametrize("kind", ["int PRIMARY KEY", "int"])
def test_a_start_says_whom_it_waits_for_where_a_table_with_a_row_filter_is_locked(
    database: Database, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(
        f"CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id {kind}); INSERT INTO u VALUES (-1), (1);"
        "INSERT INTO t VALUES (-1), (1); CREATE PUBLICATION p FOR TABLE t WHERE (id > 0), u WHERE (id > 0)"
    )
    with database.session() as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")

        def let_go_when_named(_: threading.Event) -> None:
            try:
                wait_for(lambda: "waits for the transaction of PID" in caplog.text, "the start to say why it waits", 10)
            finally:
                other.rollback()

        with run_beside(let_go_when_named):
            consumer = started(database)
    rows: list[Row] = []

    def have_come() -> bool:
        batch = consumer.source.read(0.05)
        for changes in batch.changes if batch is not None else ():
            rows.extend(row for _, row, _ in rows_of_changes(changes) if row is not None)
        return len(rows) >= 2

    try:
        wait_for(have_come, "the rows", 20)
    finally:
        consumer.source.stop()
    assert rows == [{"id": b"1"}] * 2


def read_beside_lock(database: Database, locked: str) -> tuple[Fold, str]:
    """A snapshot of which the row of u comes while a table is locked, and the others then. Also why the first table
    waits meanwhile.
    """
    consumer = started(database, mode="never", parallel=1)
    try:
        with database.session() as other, other.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {locked} IN ACCESS EXCLUSIVE MODE")
            consumer.source.set_snapshots([SnapshotRequest("one", asked_at=1.0)])
            wait_for(lambda: consumer.read() is not None and consumer.fold.reads == 1, "the rows of u", 20.0)
            [shown] = consumer.source.list_snapshots()
            reason = shown.tables[0].reason if shown.tables else ""
        consumer.until_done()
    finally:
        consumer.source.stop()
    return consumer.fold, reason


def test_a_table_whose_key_is_without_overlaps_is_read(every_postgres: Database) -> None:
    if every_postgres.version < 18:
        pytest.skip("keys WITHOUT OVERLAPS came with PostgreSQL 18")
    every_postgres.execute(
        "CREATE TABLE t (r int4range, during daterange, v text, PRIMARY KEY (r, during WITHOUT OVERLAPS));"
        "INSERT INTO t SELECT int4range(i % 3, i % 3 + 1), daterange(date '2024-01-01' + i, date '2024-01-02' + i), i "
        "FROM generate_series(1, 300) i; CREATE PUBLICATION p FOR TABLE t"
    )
    consumer = started(every_postgres, chunkRows=7)
    try:
        wait_for(lambda: consumer.read() is not None and consumer.fold.reads >= 50, "the first rows", 20.0)
        every_postgres.execute("UPDATE t SET v = 'changed' WHERE r @> 1")
        consumer.until_done()
        consumer.until_level(every_postgres)
    finally:
        consumer.source.stop()
    consumer.fold.assert_equals(every_postgres, "public.t")


@pytest.mark.behaviour("N13")
def test_keys_that_are_arrays_with_nulls_are_read_once_whatever_the_settings(database: Database) -> None:
    database.execute(f'ALTER DATABASE "{database.name}" SET array_nulls = off')
    database.execute(
        "CREATE TABLE t (k text[] PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t;"
        "INSERT INTO t SELECT ARRAY[CASE WHEN i % 2 = 0 THEN 'NULL' END, i::text] FROM generate_series(1, 60) i"
    )
    consumer = started(database, chunkRows=7)
    try:
        consumer.until_done(20.0)
    finally:
        consumer.source.stop()
    assert consumer.fold.reads == 60
    consumer.fold.assert_equals(database, "public.t")
