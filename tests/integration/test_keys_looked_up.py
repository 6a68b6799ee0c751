"""Keys that are looked up in a PostgreSQL server: which of them are gone, and what is refused."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count

import psycopg2
import pytest

from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.errors import SourceRefused
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch, RowOp
from psql_streamer.snapshots import (
    KeyForm,
    PostedKeys,
    SnapshotProgress,
    SnapshotRequest,
    SnapshotState,
    TableRequest,
)
from tests.database import Database
from tests.encoding import encoder_of
from tests.integration.test_snapshot import _let_commits_go, _waiting_for_a_standby
from tests.integration.test_snapshot_races import Consumer
from tests.source_at_work import source_of, wait_for

_NUMBERS = count()

_TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t;"

_KEYS = {
    "ints": ("id bigint", ["-1", "9223372036854775807", "5", "6"]),
    "texts": ("id text", ["'o''clock'", "E'a \"b\" \\\\ \\n'", "''", "'ż,{}'"]),
    "chars": ("id char(5)", ["'a'", "'b c'", "'d'", "'e'"]),
    "uuids": ("id uuid", ["gen_random_uuid()"] * 4),
    "scaled": ("id numeric(12,2)", ["1", "-0.5", "99999.99", "7.10"]),
    "numbers": ("id numeric", ["1.0", "1e30", "-12345678901234567890.5", "0"]),
    "floats": ("id float8", ["1", "0.1", "1e300", "-2.5"]),
    "bytes": ("id bytea", ["'\\x00ff'", "'\\x'", "'abc'", "'\\x5c'"]),
    "moments": ("id timestamptz", ["'2024-01-01 00:00:00+02'", "'1900-01-01'", "now()", "'2024-01-01 00:00:00.5'"]),
    "stamps": ("id timestamp(3)", ["'2024-01-01'", "'1900-01-01'", "'2024-01-01 00:00:00.125'", "'2030-01-01'"]),
    "times": ("id time", ["'24:00'", "'00:00'", "'01:02:03.000004'", "'12:00'"]),
    "days": ("id date", ["'2024-02-29'", "'1582-10-04'", "'0001-01-01'", "'9999-12-31'"]),
    "moods": ("id mood", ["'sad'", "'o''k'", "'happy'", "'so so'"]),
    "numbers_of_a_domain": ("id positive", ["1", "2", "3", "4"]),
    "wanted": ("id int", ["1", "2", "3", "4"]),
    'Ta"b le': ("id int", ["1", "2", "3", "4"]),
}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def started(database: Database) -> Iterator[Consumer]:
    source = source_of(database, snapshot={"mode": "never", "chunkTime": "1s"})
    consumer = Consumer(source)
    source.read_stream_identity()
    source.start(None)
    try:
        yield consumer
    finally:
        consumer.source.stop()


def look_up(
    consumer: Consumer, table: str, documents: Sequence[bytes], form: KeyForm = KeyForm.JSON
) -> tuple[SnapshotProgress, list[Batch]]:
    """The snapshot at its end, and the batches that it gave."""
    source = consumer.source
    name = f"keys-{next(_NUMBERS)}"
    request = SnapshotRequest(name, (TableRequest(table),), keys=form)
    source.review_snapshot(request)
    source.set_snapshots([request])
    given: list[Batch] = []

    def shown() -> SnapshotProgress:
        return next(one for one in source.list_snapshots() if one.id == name)

    def has_ended() -> bool:
        if not shown().state.ended:
            with suppress(Exception):
                source.take_keys(name, PostedKeys(0, documents, True))
        batch = consumer.read()
        if batch is not None and batch.transactions.snapshots:
            given.append(batch)
        if consumer.position is not None:
            source.confirm(consumer.position)
        return shown().state.ended

    wait_for(has_ended, "the keys to be looked up")
    return shown(), given


def figures(progress: SnapshotProgress) -> tuple[int, int, int]:
    assert progress.keys is not None
    assert progress.state is SnapshotState.DONE, progress.reason
    return progress.keys.checked, progress.keys.gone, progress.keys.superseded


def keys_of(form: str, batches: Sequence[Batch], op: RowOp) -> list[bytes]:
    """As a sink writes them."""
    found: list[bytes] = []
    for batch in batches:
        records = encoder_of(form, Router({}, "", "t"), {}).encode(batch)
        codes = {code for changes in batch.changes for code in changes.op.tolist()}
        assert codes <= {op}
        found += dict.fromkeys(records.keys.to_pylist())
    return found


@pytest.mark.behaviour("N40")
@pytest.mark.parametrize(("form", "written"), [(KeyForm.JSON, "event"), (KeyForm.DEBEZIUM, "debezium")])
def test_keys_of_every_type_are_found_as_events_have_them_and_their_deletes_have_the_same(
    database: Database, form: KeyForm, written: str
) -> None:
    database.execute("CREATE TYPE mood AS ENUM ('sad', 'o''k', 'happy', 'so so')")
    database.execute("CREATE DOMAIN positive AS numeric(8,3) CHECK (VALUE > 0)")
    for name, (column, _) in _KEYS.items():
        database.execute(f"CREATE TABLE {_quoted(name)} ({column} PRIMARY KEY, v text)")
    database.execute(
        'CREATE TABLE composed (v int, b text, "key0" uuid, a numeric(8,2), PRIMARY KEY (a, "key0", b));'
        "ALTER TABLE composed REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR ALL TABLES"
    )
    with started(database) as consumer:
        for name, (_, values) in _KEYS.items():
            rows = ", ".join(f"({value})" for value in values)
            database.execute(f"INSERT INTO {_quoted(name)} (id) VALUES {rows}")
        database.execute(
            "INSERT INTO composed SELECT 1, 'it''s ' || i, gen_random_uuid(), i / 4.0 FROM generate_series(1, 4) i"
        )
        documents: dict[str, list[bytes]] = {}
        wanted = {*_KEYS, "composed"}

        def has_all() -> bool:
            batch = consumer.read()
            for changes in () if batch is None else batch.changes:
                inserted = changes.take((changes.op == RowOp.INSERT).nonzero()[0])
                if batch is not None and len(inserted):
                    one = Batch(batch.source, batch.position, batch.transactions, (inserted,), nbytes=100)
                    documents.setdefault(changes.relation.table, []).extend(keys_of(written, [one], RowOp.INSERT))
            return documents.keys() >= wanted and all(len(documents[name]) == 4 for name in wanted)

        wait_for(has_all, "the inserts")
        for name in wanted:
            there = documents[name]
            progress, given = look_up(consumer, f"public.{name}", there, form)
            assert (name, figures(progress), given) == (name, (4, 0, 0), [])
            database.execute(f"DELETE FROM {_quoted(name)}")
            progress, given = look_up(consumer, f"public.{name}", [*there, *there], form)
            assert (name, figures(progress)[0]) == (name, 8)
            assert (name, sorted(keys_of(written, given, RowOp.DELETE))) == (name, sorted(there))


@pytest.mark.parametrize("by_root", [False, True])
def test_partitions_are_looked_up_as_they_are_streamed(database: Database, by_root: bool) -> None:
    database.execute(
        "CREATE TABLE t (id int, day int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20);"
        f"CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root = {by_root});"
        "INSERT INTO t VALUES (1, 5), (2, 15)"
    )
    both = [b'{"id":1,"day":5}', b'{"id":2,"day":15}', b'{"id":3,"day":5}']
    with started(database) as consumer:
        if not by_root:
            with pytest.raises(SourceRefused, match=r"has no table public\.t"):
                look_up(consumer, "public.t", both)
        expected = {"public.t": 1} if by_root else {"public.t1": 2, "public.t2": 2}
        for table, gone in expected.items():
            progress, given = look_up(consumer, table, both)
            assert figures(progress) == (3, gone, 0)
            assert {str(changes.relation) for batch in given for changes in batch.changes} == {table}


def test_a_row_that_the_publication_does_not_stream_is_gone(database: Database) -> None:
    if int(database.value("SHOW server_version_num")) < 150000:
        pytest.skip("this server has no row filters")
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t WHERE (id < 10);"
        "INSERT INTO t VALUES (1, 'x'), (11, 'x')"
    )
    with started(database) as consumer:
        progress, given = look_up(consumer, "public.t", [b'{"id":1}', b'{"id":11}'])
        assert figures(progress) == (2, 1, 0)
        assert keys_of("event", given, RowOp.DELETE) == [b'{"id":11}']


@pytest.mark.behaviour("N41")
@pytest.mark.parametrize(
    ("documents", "form", "reason"),
    [
        (
            [b'{"id":1}', b'{"secret":1}'],
            KeyForm.JSON,
            r"^key 2 does not name the columns of the table's key, which are i",
        ),
        ([b'{"id":"secret"}'], KeyForm.JSON, r"^one of the keys 1 to 1 is no value of the types .* \(SQLSTATE 22P02\)"),
        ([b'{"id":99999999999}'], KeyForm.JSON, r"^one of the keys 1 to 1 is no value .* \(SQLSTATE 22003\)"),
        ([b'{"id":true}'], KeyForm.DEBEZIUM, r"^one of the keys 1 to 1 is no value .* \(SQLSTATE 22P02\)"),
    ],
)
def test_what_is_no_key_of_the_table_ends_the_snapshot_without_a_value_in_the_log(
    database: Database,
    documents: list[bytes],
    form: KeyForm,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database.execute(_TABLE)
    with started(database) as consumer:
        progress, given = look_up(consumer, "public.t", documents, form)
    assert progress.state is SnapshotState.FAILED
    assert given == []
    assert re.search(reason, progress.reason), progress.reason
    assert "secret" not in caplog.text + progress.reason
    assert "99999999999" not in caplog.text


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("CREATE TABLE t (id int); CREATE PUBLICATION p FOR TABLE t", "has neither a primary key nor"),
        (
            "CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t WITH (publish = 'insert, delete')",
            "do not stream both inserts and updates",
        ),
    ],
)
def test_a_table_of_which_nobody_can_say_what_is_gone_is_refused(database: Database, schema: str, reason: str) -> None:
    database.execute(schema)
    with started(database) as consumer, pytest.raises(SourceRefused, match=reason):
        look_up(consumer, "public.t", [b'{"id":1}'])


@pytest.mark.behaviour("N40")
def test_a_commit_that_the_stream_gives_before_others_can_see_it_leaves_no_key_gone(
    own_postgres: EmbeddedPostgres,
) -> None:
    """The insert is streamed while it waits for a standby that is not there: to others its row is not there yet."""
    database = _waiting_for_a_standby(own_postgres)
    database.execute(_TABLE)
    waiting = threading.Thread(target=_insert, args=(database,))
    with started(database) as consumer:
        source = consumer.source
        source.set_snapshots([SnapshotRequest("keys", (TableRequest("public.t"),), keys=KeyForm.JSON)])
        source.take_keys("keys", PostedKeys(0, [b'{"id":3}'], False))

        def settled(count: int) -> bool:
            consumer.read()
            (shown,) = source.list_snapshots()
            assert shown.keys is not None
            return shown.keys.checked == count

        wait_for(lambda: settled(1), "the first key")
        waiting.start()
        try:
            wait_for(lambda: _has_one(consumer), "the insert to be streamed")
            assert database.query("SELECT id FROM t") == [], "the commit is visible: the test shows nothing"
            source.take_keys("keys", PostedKeys(1, [b'{"id":1}', b'{"id":2}'], True))

            def waits() -> bool:
                consumer.read()
                (shown,) = source.list_snapshots()
                return "was streamed and is not visible yet" in shown.reason

            wait_for(waits, "the look-up to wait for the transaction")
            assert not settled(3)
        finally:
            _let_commits_go(database)
            waiting.join(30)
        wait_for(lambda: settled(3), "the other keys")
        (shown,) = source.list_snapshots()
        assert shown.keys is not None
        assert (shown.keys.gone, shown.keys.superseded) == (2, 0)
        assert list(consumer.fold.tables["public.t"]) == [(b"1",)]


def _insert(database: Database) -> None:
    with suppress(psycopg2.Error), database.session() as session, session.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
        cursor.execute("INSERT INTO t VALUES (1, 'x')")
        session.commit()


def _has_one(consumer: Consumer) -> bool:
    consumer.read()
    return (b"1",) in consumer.fold.tables.get("public.t", {})
