"""A snapshot whose table, or whose place among others, changes while it is read."""

from __future__ import annotations

import threading

import pytest

from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.snapshots import SnapshotRequest, SnapshotState, TableRequest, Wanted
from tests.beside import run_beside
from tests.database import Database
from tests.integration.test_snapshot import TABLE, reading, started
from tests.integration.test_snapshot_races import Consumer, snapshotting
from tests.keyed_tables import SCHEMA
from tests.snapshot_fold import Row, rows_of_changes
from tests.source_at_work import source_of, wait_for

_OTHERS: list[tuple[str, Row]] = [("public.parts", {"v": b"1"})]


@pytest.mark.behaviour("N27")
def test_a_snapshot_that_goes_on_before_another_of_the_same_table_gives_nothing_stale(database: Database) -> None:
    database.execute(TABLE + "INSERT INTO t SELECT i, 'old' FROM generate_series(1, 1000) i")
    consumer = started(database, mode="never", chunkRows=100)
    first, second = (SnapshotRequest(name, (TableRequest("public.t"),), asked_at=1.0) for name in ("first", "second"))
    paused = SnapshotRequest("first", first.tables, Wanted.PAUSE, 1.0)
    try:
        consumer.source.set_snapshots([first])
        while consumer.fold.reads < 100:
            consumer.read()
        consumer.source.set_snapshots([paused, second])
        given = consumer.fold.reads
        while consumer.fold.reads < given + 200:
            consumer.read()
        consumer.source.set_snapshots([first, second])
        for number in range(20):
            database.execute("UPDATE t SET v = %s", f"new {number}")
            for _ in range(5):
                consumer.read(0.01)
        consumer.until_done()
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    assert [one.state for one in consumer.source.list_snapshots()] == [SnapshotState.DONE] * 2
    consumer.fold.assert_equals(database, "public.t")


@pytest.mark.behaviour("N28")
@pytest.mark.parametrize(
    "alter",
    [
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code)",
        pytest.param("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, code)", marks=pytest.mark.soak),
        "ALTER TABLE t ALTER id TYPE text",
        "CREATE UNIQUE INDEX by_code ON t (code); ALTER TABLE t REPLICA IDENTITY USING INDEX by_code",
    ],
)
def test_a_table_whose_rows_get_another_order_is_read_from_its_beginning(database: Database, alter: str) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, code int NOT NULL, v text); CREATE PUBLICATION p FOR TABLE t;"
        "INSERT INTO t SELECT i, (i * 7919) % 1000, 'v' FROM generate_series(1, 1000) i"
    )
    with reading(database, 300, chunkRows=100) as consumer:
        database.execute(alter)
        database.execute("UPDATE t SET v = 'altered' WHERE code = 7")
        consumer.until_done()
        consumer.until_level(database)
    [shown] = consumer.source.list_snapshots()
    assert (shown.state, "rows were written anew" in shown.reason) == (SnapshotState.DONE, "TYPE" in alter)
    column = "id" if "id" in alter and "(code)" not in alter else "code"
    found = {row[column] for row in consumer.fold.tables["public.t"].values() if column in row}
    assert found >= {str(value).encode() for (value,) in database.query(f"SELECT {column} FROM t")}


@pytest.mark.behaviour("N34")
@pytest.mark.parametrize("ends", ["COMMIT", "PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'"])
def test_a_table_that_was_published_while_somebody_wrote_to_it_is_read_behind_that(
    own_postgres: EmbeddedPostgres, ends: str
) -> None:
    """The server streams no change that was made before the table was published, whenever it is committed."""
    own_postgres.settings["max_prepared_transactions"] = "5"
    own_postgres.restart()
    database = Database("postgres", own_postgres.build_dsn(), own_postgres.version)
    database.execute(TABLE + "CREATE TABLE late (id int PRIMARY KEY, v text); INSERT INTO late VALUES (1, 'old')")
    consumer = started(database, mode="never")
    try:
        with database.session(autocommit=True) as session, session.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO late VALUES (5, 'written before'); UPDATE late SET v = 'new' WHERE id = 1")
            database.execute("ALTER PUBLICATION p ADD TABLE late")
            consumer.source.set_snapshots([SnapshotRequest("now", (TableRequest("public.late"),), asked_at=1.0)])
            for _ in range(20):
                consumer.read()
            assert "waits for transactions" in consumer.source.list_snapshots()[0].reason
            for statement in ends.split("; "):
                cursor.execute(statement)
        consumer.until_done()
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    consumer.fold.assert_equals(database, "public.late")


def test_a_table_that_is_written_anew_while_a_reader_waits_for_its_lock_is_read_as_it_is_then(
    database: Database,
) -> None:
    """Rows that were written anew are invisible to a snapshot that was taken before."""
    database.execute(TABLE + "INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 1000) i")
    with reading(database, 100, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        with database.session() as session, session.cursor() as cursor:
            cursor.execute("ALTER TABLE t ALTER v TYPE varchar USING upper(v)")

            def waits() -> bool:
                consumer.read(0.01)
                return bool(database.query(_WAITS_FOR_A_LOCK))

            wait_for(waits, "a reader to wait for the lock", 20)
            session.commit()
        consumer.until_done()
        consumer.until_level(database)
    assert len(consumer.fold.tables["public.t"]) == 1000
    assert consumer.fold.tables["public.t"][b"1000",]["v"] == b"V1000"


_WAITS_FOR_A_LOCK = """
SELECT FROM pg_stat_activity
WHERE application_name = 'psql-streamer snapshot' AND wait_event_type = 'Lock' AND datname = current_database()
"""


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_large_value_of_a_row_that_gets_another_key_before_it_is_given_arrives(
    database: Database, identity: str
) -> None:
    database.execute(
        TABLE + f"ALTER TABLE t ALTER v SET STORAGE EXTERNAL; ALTER TABLE t REPLICA IDENTITY {identity};"
        "INSERT INTO t SELECT i, repeat(i::text, 3000) FROM generate_series(1, 300) i"
    )
    with reading(database, 100, chunkRows=50, parallel=1) as consumer:
        database.execute(
            "UPDATE t SET id = -id WHERE id > 250; UPDATE t SET id = id + 1000 WHERE id BETWEEN 201 AND 210"
        )
        consumer.until_done()
        consumer.until_level(database)
    consumer.fold.assert_equals(database, "public.t")


@pytest.mark.behaviour("N5")
@pytest.mark.parametrize(
    ("alter", "expected"),
    [
        ("ALTER TABLE k ADD COLUMN w int DEFAULT 7", [("public.k", {"v": b"1", "w": b"7"}), *_OTHERS]),
        ("ALTER TABLE k ADD COLUMN w int DEFAULT 7, DROP COLUMN v", [("public.k", {"w": b"7"}), *_OTHERS]),
        ("ALTER TABLE k RENAME TO renamed", [("public.renamed", {"v": b"1"}), *_OTHERS]),
        ("ALTER TABLE k ADD PRIMARY KEY (v)", [("public.k", {"v": b"1"}), *_OTHERS]),
        ("DROP TABLE k", _OTHERS),
        ("LOCK TABLE k; ALTER TABLE parts ATTACH PARTITION two FOR VALUES IN (2)",
         [("public.k", {"v": b"1"}), *_OTHERS, ("public.parts", {"v": b"2"})]),
    ],
)  # fmt: skip
def test_tables_without_a_key_are_read_as_they_are_when_their_locks_are_free(
    database: Database, alter: str, expected: list[tuple[str, Row]]
) -> None:
    database.execute(
        "CREATE TABLE k AS SELECT 1 AS v; CREATE TABLE parts (v int) PARTITION BY LIST (v);"
        "CREATE TABLE one PARTITION OF parts FOR VALUES IN (1); INSERT INTO parts VALUES (1);"
        "CREATE TABLE two AS SELECT 2 AS v;"
        "CREATE PUBLICATION p FOR TABLE k, parts WITH (publish_via_partition_root)"
    )
    consumer = Consumer(snapshotting(database))

    def commit_when_awaited(_: threading.Event) -> None:
        wait_for(lambda: bool(database.query(_WAITS_FOR_A_LOCK)), "the source to wait for the lock", 20)
        session.commit()

    found: list[tuple[str, Row]] = []
    try:
        with database.session() as session, session.cursor() as cursor:
            cursor.execute(alter)
            with run_beside(commit_when_awaited):
                consumer.source.read_stream_identity()
                consumer.source.start(None)

        def is_done() -> bool:
            batch = consumer.source.read(0.05)
            if batch is not None:
                consumer.source.confirm(batch.position)
                for changes in batch.changes:
                    found.extend((str(changes.relation), row) for _, row, _ in rows_of_changes(changes) if row)
            return bool(consumer.source.list_snapshots()) and consumer.done

        wait_for(is_done, "the snapshot to end", 20)
    finally:
        consumer.source.stop()
    assert [one.state for one in consumer.source.list_snapshots()] == [SnapshotState.DONE]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@pytest.mark.behaviour("N28")
def test_a_table_whose_key_gets_an_index_of_other_operators_is_read_from_its_beginning(database: Database) -> None:
    database.execute(
        SCHEMA + "CREATE TABLE t (a int NOT NULL, b int NOT NULL, v text); CREATE PUBLICATION p FOR TABLE t;"
        "CREATE UNIQUE INDEX usual ON t (a, b); ALTER TABLE t REPLICA IDENTITY USING INDEX usual;"
        'CREATE UNIQUE INDEX by_weekday ON t (a "Odd".weekdays, b);'
        "INSERT INTO t SELECT i, i FROM generate_series(1, 700) i"
    )
    with reading(database, 200, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        database.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX by_weekday")
        consumer.until_done()
        consumer.until_level(database)
    consumer.fold.assert_equals(database, "public.t")


@pytest.mark.behaviour("N28")
@pytest.mark.parametrize(
    "rename",
    [
        "ALTER TYPE mood RENAME VALUE 'a' TO 'z'",
        "ALTER TYPE mood RENAME VALUE 'a' TO 'z'; ALTER TYPE mood RENAME VALUE 'b' TO 'a'",
    ],
)
@pytest.mark.parametrize("kind", ["mood", "of_mood", "mood[]", "of_mood[]", "felt"])
def test_a_table_is_read_from_its_beginning_when_values_of_its_keys_enum_get_other_names(
    database: Database, kind: str, rename: str
) -> None:
    value = "ARRAY[k]" if kind.endswith("[]") else "ROW(1, k)::felt" if kind == "felt" else "k"
    database.execute(
        "CREATE TYPE mood AS ENUM ('a', 'b'); CREATE DOMAIN of_mood AS mood; CREATE TYPE felt AS (at int, how of_mood);"
        f"CREATE TABLE t (k {kind}, id int, PRIMARY KEY (k, id)); CREATE PUBLICATION p FOR TABLE t;"
        f"INSERT INTO t SELECT {value}, i FROM unnest(enum_range(NULL::mood)) k, generate_series(1, 500) i"
    )
    with reading(database, 200, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        database.execute(rename)
        consumer.until_done()
        consumer.until_level(database)
    [shown] = consumer.source.list_snapshots()
    assert (shown.state, shown.reason) == (SnapshotState.DONE, "")
    found = {tuple(cell.decode() for cell in key if cell is not None) for key in consumer.fold.tables["public.t"]}
    assert found >= set(database.query("SELECT k::text, id::text FROM t"))


@pytest.mark.behaviour("N28")
@pytest.mark.parametrize(
    ("kind", "other"),
    [("numeric(10, 2)", "numeric(12, 4)"), ("char(5)", "char(9)"), ("numeric(10, 2)[]", "numeric(12, 4)[]")],
)
def test_a_table_is_read_from_its_beginning_when_the_texts_of_its_key_get_other_digits(
    database: Database, kind: str, other: str
) -> None:
    value = "ARRAY[i]" if kind.endswith("[]") else "i"
    database.execute(
        f"CREATE TABLE t (k {kind} PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t;"
        f"INSERT INTO t SELECT {value} FROM generate_series(1, 500) i"
    )
    with reading(database, 200, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        database.execute(f"ALTER TABLE t ALTER k TYPE {other}")
        consumer.until_done()
        consumer.until_level(database)
    assert consumer.source.list_snapshots()[0].state is SnapshotState.DONE
    found = {key.decode() for (key,) in consumer.fold.tables["public.t"] if key is not None}
    as_sent = "rpad(k::text, 9)" if kind == "char(5)" else "k::text"
    assert found >= {text for (text,) in database.query(f"SELECT {as_sent} FROM t")}


@pytest.mark.behaviour("N28")
def test_a_table_with_a_key_of_money_is_read_from_its_beginning_under_another_locale(database: Database) -> None:
    database.execute(
        f"ALTER DATABASE \"{database.name}\" SET lc_monetary = 'C';"
        "CREATE TABLE t (k money PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t;"
        "INSERT INTO t SELECT i::int::money FROM generate_series(1, 500) i"
    )
    with reading(database, 200, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        consumer.source.stop()
        database.execute(f"ALTER DATABASE \"{database.name}\" SET lc_monetary = 'POSIX'")
        consumer.keep()
        consumer.lose(source_of(database, snapshot={"mode": "initial", "chunkRows": 50, "parallel": 1}))
        consumer.until_done()
        consumer.until_level(database)
    assert consumer.fold.reads >= 700
    consumer.fold.assert_equals(database, "public.t")


_OBJECTS = "DO $$ BEGIN FOR i IN 0..199 LOOP EXECUTE format('CREATE TABLE n%s (id int)', i); END LOOP; END $$"
_RENAME = "DO $$ BEGIN FOR i IN 0..199 LOOP EXECUTE format('ALTER TABLE {}%s RENAME TO {}%s', i, {}); END LOOP; END $$"


@pytest.mark.parametrize("kind", ["regclass", "of_objects"])
@pytest.mark.parametrize(
    "rename",
    [
        _RENAME.format("n", "other", "i"),
        _RENAME.format("n", "other", "199 - i") + ";" + _RENAME.format("other", "n", "i"),
    ],
    ids=["to other names", "to the names of each other"],
)
def test_a_table_whose_key_names_objects_is_read_on_when_they_are_renamed(
    database: Database, kind: str, rename: str
) -> None:
    database.execute(
        _OBJECTS + f"; CREATE DOMAIN of_objects AS regclass; CREATE TABLE t (a int, k {kind}, PRIMARY KEY (k, a));"
        "CREATE PUBLICATION p FOR TABLE t; INSERT INTO t SELECT 7, oid FROM pg_class WHERE relname ~ '^n[0-9]+$'"
    )
    with reading(database, 20, chunkRows=10, chunkBytes=1000, parallel=1) as consumer:
        database.execute(rename)
        consumer.keep()
        consumer.lose(snapshotting(database, chunkRows=10))
        consumer.until_done()
    assert consumer.source.list_snapshots()[0].state is SnapshotState.DONE
    assert consumer.fold.reads == 200


def test_a_key_that_is_a_name_of_several_objects_says_so_and_what_to_do(database: Database) -> None:
    for number in range(200):
        database.execute(
            f"CREATE TABLE n{number} (id int); CREATE FUNCTION n(a{number} n{number}) RETURNS int LANGUAGE sql RETURN 1"
        )
    database.execute(
        "CREATE TABLE t (k regproc PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t;"
        "INSERT INTO t SELECT oid::regproc FROM pg_proc WHERE proname LIKE 'n%'"
    )
    consumer = started(database, chunkRows=10, chunkBytes=1000, parallel=1)
    try:
        consumer.until_done()
    finally:
        consumer.source.stop()
    [shown] = consumer.source.list_snapshots()
    assert shown.state is SnapshotState.FAILED
    assert '"k" in the key of public.t is of the type pg_catalog.regproc' in shown.reason
    assert "ask for another snapshot" in shown.reason


@pytest.mark.parametrize(
    ("made", "altered", "reason", "remedy"),
    [
        pytest.param(
            "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE PUBLICATION p FOR TABLE t;"
            "CREATE TABLE one PARTITION OF t DEFAULT; INSERT INTO t SELECT generate_series(1, 700)",
            "ALTER PUBLICATION p SET (publish_via_partition_root)",
            "public.one is no longer there, or no longer published under this name",
            "ask for a snapshot of the tables that are streamed now",
            id="partitions that become their root",
        ),
        pytest.param(
            'CREATE TABLE "T" (id int PRIMARY KEY); CREATE PUBLICATION p FOR ALL TABLES;'
            'INSERT INTO "T" SELECT generate_series(1, 700)',
            'ALTER TABLE "T" SET UNLOGGED',
            "public.T is UNLOGGED now",
            'ALTER TABLE public."T" SET LOGGED, then ask for a snapshot',
            id="unlogged",
        ),
    ],
)
def test_a_table_that_is_not_streamed_any_more_meanwhile_says_what_to_do(
    database: Database, made: str, altered: str, reason: str, remedy: str
) -> None:
    database.execute(made)
    with reading(database, 200, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        database.execute(altered)
        consumer.until_done()
    [shown] = consumer.source.list_snapshots()
    assert shown.state is SnapshotState.FAILED
    assert reason in shown.reason
    assert remedy in shown.reason


def test_a_table_whose_row_filter_is_widened_meanwhile_is_read_from_its_beginning(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t WHERE (id % 2 = 0);"
        "INSERT INTO t SELECT generate_series(1, 1400)"
    )
    with reading(database, 200, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        database.execute("ALTER PUBLICATION p SET TABLE t")
        consumer.until_done()
        consumer.until_level(database)
    assert consumer.source.list_snapshots()[0].state is SnapshotState.DONE
    assert len(consumer.fold.tables["public.t"]) == 1400


_CHUNK_IS_READ = """
SELECT FROM pg_stat_activity
WHERE application_name = 'psql-streamer snapshot' AND query = 'ROLLBACK' AND state = 'idle'
    AND datname = current_database()
"""
_STREAM_IS_SENT = "SELECT FROM pg_stat_replication WHERE sent_lsn >= pg_current_wal_lsn()"


@pytest.mark.behaviour("N32")
@pytest.mark.parametrize(
    "take_name",
    [
        "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT id, 'new' FROM two",
        "ALTER TABLE t RENAME TO x; ALTER TABLE two RENAME TO t; ALTER TABLE x RENAME TO two; UPDATE t SET v = 'new'",
        "ALTER TABLE t SET SCHEMA x; ALTER TABLE two RENAME TO t; UPDATE t SET v = 'new'; DELETE FROM t WHERE id = 1",
    ],
    ids=["made anew", "swapped", "moved away"],
)
def test_rows_of_a_table_whose_name_another_one_has_taken_do_not_come_behind_those_of_the_other(
    database: Database, take_name: str
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE two (id int PRIMARY KEY, v text);"
        "CREATE SCHEMA x; CREATE PUBLICATION p FOR ALL TABLES;"
        "INSERT INTO t SELECT i, 'old' FROM generate_series(1, 100) i;"
        "INSERT INTO two SELECT i, 'of the other' FROM generate_series(1, 100) i"
    )
    consumer = started(database, mode="never")
    try:
        database.execute("INSERT INTO t VALUES (101, 'old')")  # the chunk waits for the stream to pass this
        consumer.source.set_snapshots([SnapshotRequest("now", (TableRequest("public.t"),), asked_at=1.0)])
        wait_for(lambda: bool(database.query(_CHUNK_IS_READ)), "a chunk to be read", 20)
        database.execute(take_name)
        wait_for(lambda: bool(database.query(_STREAM_IS_SENT)), "the stream to be sent", 20)
        consumer.until_done()
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    ended = SnapshotState.FAILED if "DROP" in take_name else SnapshotState.DONE
    assert consumer.source.list_snapshots()[0].state is ended
    found = {key: row["v"] for (key,), row in consumer.fold.tables["public.t"].items() if key != b"101"}
    assert found == {str(number).encode(): b"new" for (number,) in database.query("SELECT id FROM t")}


@pytest.mark.behaviour("N28")
@pytest.mark.parametrize("meanwhile", ["running", "stopped"])
@pytest.mark.parametrize("first", [1, 5001])
def test_rows_of_a_partition_that_is_attached_while_its_root_is_read_are_not_left_out(
    database: Database, first: int, meanwhile: str
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        "CREATE TABLE one PARTITION OF t FOR VALUES FROM (1001) TO (2001);"
        "CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root);"
        "INSERT INTO t SELECT i FROM generate_series(1001, 2000) i;"
        "CREATE TABLE two (v text, id int PRIMARY KEY);"
        f"INSERT INTO two SELECT 'two', i FROM generate_series({first}, {first} + 99) i"
    )
    with reading(database, 200, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        if meanwhile == "stopped":
            consumer.source.stop()
        database.execute(f"ALTER TABLE t ATTACH PARTITION two FOR VALUES FROM ({first}) TO ({first + 100})")
        if meanwhile == "stopped":
            consumer.keep()
            consumer.lose(snapshotting(database, chunkRows=50))
        consumer.until_done()
        consumer.until_level(database)
    assert consumer.source.list_snapshots()[0].state is SnapshotState.DONE
    consumer.fold.assert_equals(database, "public.t")
    assert (consumer.fold.reads > 1100) == (first == 1 or meanwhile == "stopped")


@pytest.mark.parametrize("attach", ["CREATE TABLE new{0} PARTITION OF t FOR VALUES FROM ({0}) TO ({0} + 1)",
                                    "ALTER TABLE t DETACH PARTITION old{0}"])  # fmt: skip
def test_a_root_is_read_on_when_partitions_without_rows_come_and_go(database: Database, attach: str) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id);"
        "CREATE TABLE one PARTITION OF t FOR VALUES FROM (1001) TO (2001);"
        "CREATE TABLE old1 PARTITION OF t FOR VALUES FROM (-1) TO (0);"
        "CREATE TABLE old2 PARTITION OF t FOR VALUES FROM (-2) TO (-1);"
        "CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root);"
        "INSERT INTO t SELECT i FROM generate_series(1001, 2000) i"
    )
    with reading(database, 200, chunkRows=50, chunkBytes=1000, parallel=1) as consumer:
        for number in (1, 2):
            database.execute(attach.format(number))
            given = consumer.fold.reads
            while consumer.fold.reads < given + 200:
                consumer.read()
        consumer.until_done()
    assert consumer.source.list_snapshots()[0].state is SnapshotState.DONE
    assert consumer.fold.reads == 1000


@pytest.mark.behaviour("N11")
@pytest.mark.parametrize(
    ("root", "leaf", "ended"),
    [
        ("USING INDEX by_id", "USING INDEX one_by_code", SnapshotState.FAILED),
        ("DEFAULT", "USING INDEX one_by_code", SnapshotState.FAILED),
        ("USING INDEX by_id", "DEFAULT", SnapshotState.DONE),
        ("DEFAULT", "FULL", SnapshotState.DONE),
        ("FULL", "DEFAULT", SnapshotState.DONE),
    ],
)
def test_a_root_is_read_if_the_old_rows_of_its_partitions_have_its_key(
    database: Database, root: str, leaf: str, ended: SnapshotState
) -> None:
    database.execute(
        "CREATE TABLE t (id int NOT NULL, code int NOT NULL, PRIMARY KEY (id, code)) PARTITION BY RANGE (id);"
        "CREATE UNIQUE INDEX by_id ON t (id); CREATE TABLE one PARTITION OF t DEFAULT;"
        "CREATE UNIQUE INDEX one_by_code ON one (code);"
        "CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root);"
        f"ALTER TABLE t REPLICA IDENTITY {root}; ALTER TABLE one REPLICA IDENTITY {leaf};"
        "INSERT INTO t SELECT i, i FROM generate_series(1, 100) i"
    )
    consumer = started(database)
    try:
        database.execute("DELETE FROM t WHERE id = 1")
        consumer.until_done()
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    [shown] = consumer.source.list_snapshots()
    assert shown.state is ended
    if ended is SnapshotState.DONE:
        consumer.fold.assert_equals(database, "public.t")
    else:
        assert "the partition public.one of public.t has another replica identity" in shown.reason
        assert 'ALTER TABLE "public"."one" REPLICA IDENTITY FULL' in shown.reason
