"""A snapshot under everything that PostgreSQL lets happen meanwhile, at random; the seed of a failure is its number."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg2
import pytest
from psycopg2.extensions import connection

from psql_streamer.embedded.postgres import EmbeddedPostgres, find_server_binaries
from psql_streamer.model import Changes, Relation
from psql_streamer.snapshots import SnapshotRequest, TableRequest, Wanted
from tests.database import Database, fresh_database
from tests.integration.test_snapshot_races import Consumer, snapshotting
from tests.snapshot_fold import Fold, Key, Row

pytestmark = [pytest.mark.soak, pytest.mark.behaviour("N32")]

_SCHEMA = """
CREATE TABLE numbered (id int PRIMARY KEY, v text, n int, big text);
CREATE TABLE paired (a int, b text COLLATE "C", v text, n int, big text, PRIMARY KEY (b, a));
CREATE TABLE named (name text PRIMARY KEY, v text, n int, big text);
CREATE TABLE marked (mark uuid PRIMARY KEY, v text, n int, big text);
CREATE TABLE whole (id int PRIMARY KEY, v text, n int, big text);
CREATE TABLE parent (id int PRIMARY KEY, v text, n int, big text);
CREATE TABLE going (id int PRIMARY KEY, v text, n int, big text);
CREATE TABLE leaving (id int PRIMARY KEY, v text, n int, big text);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, n int);
ALTER TABLE whole REPLICA IDENTITY FULL;
INSERT INTO numbered SELECT i, 'v', 0, CASE WHEN i % 7 = 0 THEN repeat(md5(i::text), 200) END
    FROM generate_series(1, 1500) i;
INSERT INTO paired SELECT i, 'b' || i % 10, 'v', 0, CASE WHEN i % 5 = 0 THEN repeat(md5(i::text), 200) END
    FROM generate_series(1, 1500) i;
INSERT INTO named SELECT 'n' || i, 'v', 0, CASE WHEN i % 5 = 0 THEN repeat(md5(i::text), 200) END
    FROM generate_series(1, 1500) i;
INSERT INTO marked SELECT md5(i::text)::uuid, 'v', 0, CASE WHEN i % 5 = 0 THEN repeat(md5(i::text), 200) END
    FROM generate_series(1, 1500) i;
INSERT INTO whole SELECT i, 'v', 0, CASE WHEN i % 5 = 0 THEN repeat(md5(i::text), 200) END
    FROM generate_series(1, 1500) i;
INSERT INTO going SELECT i, 'v', 0, NULL FROM generate_series(1, 500) i;
INSERT INTO leaving SELECT i, 'v', 0, NULL FROM generate_series(1, 500) i;
INSERT INTO parent SELECT i, 'v', 0, CASE WHEN i % 5 = 0 THEN repeat(md5(i::text), 200) END
    FROM generate_series(1, 700) i;
INSERT INTO child SELECT i, i, 0 FROM generate_series(1, 700) i;
"""
_TABLES = ("numbered", "paired", "named", "marked", "whole", "parent", "going", "leaving", "child")
_EXTERNAL = "".join(f"ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL;" for table in _TABLES[:-1])

_CHANGES = [
    "INSERT INTO numbered VALUES ({free}, 'new', 0, repeat('x', 4000))",
    "INSERT INTO paired VALUES ({free}, 'b{digit}', 'new', 0, repeat('x', 4000))",
    "INSERT INTO named VALUES ('n{free}', 'new', 0, NULL)",
    "INSERT INTO marked VALUES (md5('{free}')::uuid, 'new', 0, repeat('x', 4000))",
    "INSERT INTO whole VALUES ({free}, 'new', 0, repeat('x', 4000))",
    "INSERT INTO parent VALUES ({free}, 'new', 0, NULL)",
    "UPDATE numbered SET n = n + 1 WHERE id BETWEEN {id} AND {id} + 5",
    "UPDATE numbered SET id = {free} WHERE id = {id}",
    "UPDATE numbered SET id = -id WHERE id BETWEEN {id} AND {id} + 3",
    "UPDATE numbered SET big = repeat('y', 4000) WHERE id = {id}",
    "UPDATE numbered SET big = NULL WHERE id = {id}",
    "DELETE FROM numbered WHERE id = {id}",
    "UPDATE paired SET n = n + 1 WHERE a BETWEEN {id} AND {id} + 5",
    "UPDATE paired SET b = 'b{digit}' WHERE a BETWEEN {id} AND {id} + 2",
    "UPDATE paired SET a = {free} WHERE a = {id}",
    "DELETE FROM paired WHERE a = {id}",
    "UPDATE named SET n = n + 1 WHERE name = 'n{id}'",
    "UPDATE named SET name = 'a{free}' WHERE name = 'n{id}'",
    "UPDATE named SET name = 'z{free}', v = 'z' WHERE name = 'n{id}'",
    "DELETE FROM named WHERE name = 'n{id}'",
    "UPDATE marked SET n = n + 1 WHERE mark = md5('{id}')::uuid",
    "UPDATE marked SET mark = md5('{free}')::uuid WHERE mark = md5('{id}')::uuid",
    "DELETE FROM marked WHERE mark = md5('{id}')::uuid",
    "UPDATE whole SET n = n + 1 WHERE id BETWEEN {id} AND {id} + 5",
    "UPDATE whole SET id = -id WHERE id = {id}",
    "DELETE FROM whole WHERE id = {id}",
    "UPDATE parent SET n = n + 1 WHERE id = {id}",
    "UPDATE parent SET id = {free} WHERE id = {id}",
    "DELETE FROM parent WHERE id = {id}",
    "UPDATE going SET n = n + 1 WHERE id BETWEEN {id} AND {id} + 5",
    "UPDATE leaving SET id = -id WHERE id BETWEEN {id} AND {id} + 5",
    "UPDATE child SET n = n + 1 WHERE id BETWEEN {id} AND {id} + 5",
]

_ALTERATIONS = [
    "TRUNCATE numbered",
    "TRUNCATE parent CASCADE",
    "TRUNCATE paired, named",
    "ALTER TABLE numbered ADD COLUMN IF NOT EXISTS more int DEFAULT 7",
    "ALTER TABLE numbered DROP COLUMN IF EXISTS more",
    "ALTER TABLE marked ADD COLUMN IF NOT EXISTS more text",
    "ALTER TABLE marked DROP COLUMN IF EXISTS more",
    "ALTER TABLE paired ALTER n TYPE bigint",
    "ALTER TABLE paired ALTER n TYPE int",
    "ALTER TABLE whole RENAME v TO w",
    "ALTER TABLE whole RENAME w TO v",
    "ALTER TABLE named RENAME TO renamed",
    "ALTER TABLE renamed RENAME TO named",
    "ALTER TABLE numbered ALTER id TYPE bigint",
    "ALTER TABLE named REPLICA IDENTITY FULL",
    "ALTER TABLE named REPLICA IDENTITY DEFAULT",
    "VACUUM FULL paired",
    "CLUSTER numbered USING numbered_pkey",
    "REINDEX TABLE whole",
    "DROP TABLE going",
    "ALTER PUBLICATION p DROP TABLE leaving",
    "ALTER PUBLICATION p ADD TABLE leaving",
]

_EXPECTED = (
    psycopg2.errors.DeadlockDetected,
    psycopg2.errors.UndefinedTable,
    psycopg2.errors.UndefinedColumn,
    psycopg2.errors.UndefinedObject,
    psycopg2.errors.DuplicateObject,
    psycopg2.errors.LockNotAvailable,
    psycopg2.errors.UniqueViolation,
    psycopg2.errors.ForeignKeyViolation,
    psycopg2.errors.InFailedSqlTransaction,
)
"""What statements fail with when another one came first."""


class Chance:
    """Something that is done at random again and again, from a thread of its own."""

    def __init__(self, database: Database, seed: int, step: Callable[[connection, random.Random, int], None]) -> None:
        self._database = database
        self._random = random.Random(seed)
        self._seed = seed
        self._step = step
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with self._database.session() as session:
                number = 0
                while not self._stopping.is_set():
                    number += 1
                    try:
                        self._step(session, self._random, self._seed * 1_000_000 + number * 10)
                    except _EXPECTED:
                        session.rollback()
                    self._stopping.wait(0.003)
        except BaseException as error:
            self._failure = error


def write(session: connection, chance: random.Random, free: int) -> None:
    """A transaction, with savepoints, which may be rolled back, or prepared."""
    session.autocommit = False
    with session.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '2s'")
        for number in range(chance.randint(1, 6)):
            cursor.execute("SAVEPOINT s")
            try:
                cursor.execute(_statement(chance, free + number))
            except _EXPECTED:
                cursor.execute("ROLLBACK TO s")
            if chance.random() < 0.2:
                cursor.execute("ROLLBACK TO s")
            if chance.random() < 0.02:
                cursor.execute("SELECT pg_sleep(0.1)")
        fate = chance.random()
        if fate < 0.1:
            session.rollback()
        elif fate < 0.2:
            _prepare(session, chance, f"prepared {free}")
        else:
            session.commit()


def _statement(chance: random.Random, free: int) -> str:
    return chance.choice(_CHANGES).format(free=free, id=chance.randint(1, 1500), digit=chance.randint(0, 9))


def _prepare(session: connection, chance: random.Random, name: str) -> None:
    with session.cursor() as cursor:
        cursor.execute(f"PREPARE TRANSACTION '{name}'")
        session.rollback()
        session.autocommit = True
        if chance.random() < 0.3:
            cursor.execute("SELECT pg_sleep(0.1)")
        cursor.execute(f"{'COMMIT' if chance.random() < 0.8 else 'ROLLBACK'} PREPARED '{name}'")


def alter(session: connection, chance: random.Random, _: int) -> None:
    """One statement that changes a table as such, now and then."""
    session.autocommit = True
    with session.cursor() as cursor:
        cursor.execute(f"SELECT pg_sleep({chance.uniform(0.05, 0.4)})")
        cursor.execute("SET lock_timeout = '1s'")
        cursor.execute(chance.choice(_ALTERATIONS))


@contextmanager
def chances(database: Database, seed: int) -> Iterator[None]:
    steps = (write, write, write, alter)
    started = [Chance(database, seed * 10 + number, step) for number, step in enumerate(steps)]
    try:
        yield
    finally:
        for one in started:
            one.stop()


@pytest.fixture(scope="module", params=sorted(find_server_binaries()), ids=lambda version: f"postgres{version}")
def two_phase_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedPostgres]:
    """Of every version; with prepared transactions, which the servers of other tests do not have."""
    settings = {"max_prepared_transactions": "20"}
    with EmbeddedPostgres(find_server_binaries()[request.param], settings=settings) as server:
        yield server


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(12))
def test_no_read_contradicts_the_stream_and_the_end_equals_the_tables(
    two_phase_server: EmbeddedPostgres, seed: int
) -> None:
    with fresh_database(two_phase_server.build_dsn(), f"fuzz_{seed}") as database:
        _run(database, seed)


def _run(database: Database, seed: int) -> None:
    database.execute(_SCHEMA + _EXTERNAL + f"CREATE PUBLICATION p FOR TABLE {', '.join(_TABLES)}")
    moments = random.Random(seed)
    consumer = Consumer(snapshotting(database, chunkRows=moments.choice((30, 150, 400))), ShapedFold())
    consumer.source.read_stream_identity()
    consumer.source.start(None)
    requests: list[SnapshotRequest] = []
    try:
        with chances(database, seed):
            for _ in range(80):
                _read_some(consumer, moments)
                _ask(consumer, moments, requests)
                if moments.random() < 0.1 and consumer._kept[1] is not None:
                    consumer.lose(snapshotting(database, chunkRows=moments.choice((30, 150, 400))))
                    consumer.source.set_snapshots(requests)
        requests[:] = [SnapshotRequest(one.id, one.tables, Wanted.RUN, one.asked_at) for one in requests]
        consumer.source.set_snapshots(requests)
        consumer.until_done(200)
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    assert consumer.fold.reads > 500
    for name, oid in database.query("SELECT relname, oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 2200"):
        if name != "leaving":
            _assert_equals(consumer.fold.tables.get(str(oid), {}), database, name)


def _read_some(consumer: Consumer, moments: random.Random) -> None:
    for _ in range(moments.randint(1, 30)):
        consumer.read(0.01)
        if moments.random() < 0.2:
            consumer.keep()


def _ask(consumer: Consumer, moments: random.Random, requests: list[SnapshotRequest]) -> None:
    """Ask for a snapshot, or for something of one that was asked for."""
    if moments.random() < 0.2 and len(requests) < 6:
        table = moments.choice(("*.*", *(f"public.{name}" for name in _TABLES)))
        requests.append(SnapshotRequest(f"demand-{len(requests)}", (TableRequest(table),), asked_at=1.0))
    elif requests and moments.random() < 0.5:
        at = moments.randrange(len(requests))
        wanted = moments.choices((Wanted.RUN, Wanted.PAUSE, Wanted.CANCEL), (5, 3, 1))[0]
        requests[at] = SnapshotRequest(requests[at].id, requests[at].tables, wanted, 1.0)
    else:
        return
    consumer.source.set_snapshots(requests)


class ShapedFold(Fold):
    """Tables by OID, because they are renamed. A row has the columns of its last event: what was altered since, no
    event says. A value that it should have, and nobody gave, is `_MISSING`."""

    def name_of(self, relation: Relation) -> str:
        return relation.id

    def shaped(self, row: Row, changes: Changes) -> Row:
        return {column.name: row.get(column.name, _MISSING) for column in changes.columns}


_MISSING = b"nobody gave this value"


def _assert_equals(found: dict[Key, Row], database: Database, name: str) -> None:
    """Whether the rows are there, and those of their columns that the table still has are equal."""
    with database.session() as session, session.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {name}")
        names = [column.name for column in cursor.description or ()]
        cursor.execute(f"SELECT {', '.join(f'{column}::text' for column in names)} FROM {name}")
        wanted = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    keys = ("b", "a") if name == "paired" else (names[0],)
    held = {tuple(row[key] for key in keys): row for row in found.values()}
    assert held.keys() == {tuple(row[key].encode() for key in keys) for row in wanted}, f"rows of {name} differ"
    for row in wanted:
        texts = {column: None if value is None else value.encode() for column, value in row.items()}
        mine = held[tuple(row[key].encode() for key in keys)]
        assert mine == {**mine, **{column: texts[column] for column in mine if column in texts}}, f"a row of {name}"
