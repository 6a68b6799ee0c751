"""A snapshot under writers: no READ row contradicts the stream at its place, and what is folded equals the tables."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
import pytest

from psql_streamer.model import Batch, Position
from sources.postgres.source import PostgresSource
from tests.database import Database
from tests.snapshot_fold import Fold
from tests.source_at_work import source_of, start_again, wait_for

_SCHEMA = """
CREATE TABLE whole (id int PRIMARY KEY, v text, n int, big text);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE keyed (a int, b text COLLATE "C", v text, n int, big text, PRIMARY KEY (b, a));
ALTER TABLE whole ALTER big SET STORAGE EXTERNAL;
ALTER TABLE keyed ALTER big SET STORAGE EXTERNAL;
INSERT INTO whole SELECT i, 'there', 0, CASE WHEN i % 7 = 0 THEN repeat(i::text, 3000) END
    FROM generate_series(1, 3000) i;
INSERT INTO keyed SELECT i, 'b' || i % 10, 'there', 0, CASE WHEN i % 5 = 0 THEN repeat(i::text, 3000) END
    FROM generate_series(1, 2000) i;
CREATE PUBLICATION p FOR TABLE whole, keyed;
"""

_CHANGES = [
    "INSERT INTO whole VALUES ({free}, 'new', 0, NULL)",
    "INSERT INTO keyed VALUES ({free}, 'b' || {n} % 10, 'new', 0, repeat('x', 5000))",
    "UPDATE whole SET n = n + 1, v = 'changed {n}' WHERE id = {id}",
    "UPDATE keyed SET n = n + 1 WHERE a = {id}",
    "UPDATE whole SET n = n + 1 WHERE id BETWEEN {id} AND {id} + 20",
    "UPDATE whole SET big = repeat('y', 4000) WHERE id = {id}",
    "UPDATE keyed SET b = 'b' || {n} % 10 WHERE a = {id}",
    "UPDATE whole SET id = {free} WHERE id = {id}",
    "DELETE FROM whole WHERE id = {id}",
    "DELETE FROM keyed WHERE a BETWEEN {id} AND {id} + 3",
]


class Writer:
    """Random transactions, some long, some rolled back, from a thread of its own."""

    def __init__(self, database: Database, seed: int, number: int) -> None:
        self._database = database
        self._random = random.Random(seed * 100 + number)
        self._free = (number + 1) * 1_000_000
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with self._database.session() as session, session.cursor() as cursor:
                while not self._stopping.is_set():
                    try:
                        for _ in range(self._random.randint(1, 5)):
                            cursor.execute(self._statement())
                            if self._random.random() < 0.02:
                                self._stopping.wait(0.2)
                        if self._random.random() < 0.15:
                            session.rollback()
                        else:
                            session.commit()
                    except (psycopg2.errors.DeadlockDetected, psycopg2.errors.UniqueViolation):
                        session.rollback()  # two writers met, or gave one key to two rows
                    self._stopping.wait(0.002)
        except BaseException as error:
            self.failure = error

    def _statement(self) -> str:
        if self._random.random() < 0.001:
            return self._random.choice(["TRUNCATE keyed", "ALTER TABLE keyed ALTER n TYPE int USING n"])
        self._free += 1
        id_ = self._random.choice([self._random.randint(1, 3000), self._random.randint(self._free - 20, self._free)])
        return self._random.choice(_CHANGES).format(free=self._free, id=id_, n=self._random.randint(0, 9))


@contextmanager
def writers(database: Database, seed: int, count: int = 3) -> Iterator[None]:
    started = [Writer(database, seed, number) for number in range(count)]
    try:
        yield
    finally:
        for writer in started:
            writer.stop()


class Consumer:
    """Reads a source as the pipeline does; forgets what is not durable when the source is killed."""

    def __init__(self, source: PostgresSource, fold: Fold | None = None) -> None:
        self.source = source
        self.fold = fold or Fold()
        self.position: Position | None = None
        self._kept = (self.fold.copy(), self.position, self.source)

    def read(self, timeout: float = 0.05) -> Batch | None:
        batch = self.source.read(timeout)
        if batch is not None:
            self.fold.add(batch)
            self.position = batch.position
        return batch

    def keep(self) -> None:
        """What was read so far is durable."""
        self._kept = (self.fold.copy(), self.position, self.source)
        if self.position is not None:
            self.source.confirm(self.position)

    def lose(self, source: PostgresSource) -> None:
        """A kill: another source goes on at what is durable."""
        self.source.stop()
        fold, self.position, _ = self._kept
        self.fold, self.source = fold.copy(), source
        source.read_stream_identity()
        start_again(source, self.position)

    @property
    def done(self) -> bool:
        return all(one.state.ended for one in self.source.list_snapshots())

    def until_done(self, timeout: float = 60.0) -> None:
        def is_done() -> bool:
            self.read()
            if self.position is not None:
                self.source.confirm(self.position)
            return bool(self.source.list_snapshots()) and self.done

        wait_for(is_done, "the snapshot to end", timeout)

    def until_level(self, database: Database) -> None:
        """Until everything that is committed was read."""
        database.execute("SELECT pg_logical_emit_message(true, 'level', '')")

        def is_level() -> bool:
            batch = self.read()
            return batch is not None and any(message.prefix == "level" for message in batch.messages)

        wait_for(is_level, "the end of the stream")


def snapshotting(database: Database, **more: object) -> PostgresSource:
    options = {"mode": "initial", "chunkRows": 150, "chunkTime": "50ms", "parallel": 2} | more
    return source_of(database, snapshot=options, batchSize=70)


@pytest.mark.behaviour("N6")
@pytest.mark.parametrize("seed", [0, *(pytest.param(more, marks=pytest.mark.soak) for more in range(1, 6))])
def test_what_is_folded_equals_the_tables_whatever_writers_do_and_wherever_the_source_is_killed(
    database: Database, seed: int
) -> None:
    database.execute(_SCHEMA)
    moments = random.Random(seed)
    consumer = Consumer(snapshotting(database))
    consumer.source.read_stream_identity()
    consumer.source.start(None)
    try:
        with writers(database, seed):
            kills = 0
            while not consumer.done or kills < 3:
                for _ in range(moments.randint(1, 30)):
                    consumer.read(0.01)
                    if moments.random() < 0.2:
                        consumer.keep()
                if consumer.position is not None and kills < 6 and moments.random() < 0.3:
                    consumer.keep() if moments.random() < 0.3 else None
                    consumer.lose(snapshotting(database)) if consumer._kept[1] is not None else None
                    kills += 1
                if consumer.done:
                    consumer.keep()
            consumer.until_done()
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    assert consumer.fold.reads > 1000
    for table in ("public.whole", "public.keyed"):
        consumer.fold.assert_equals(database, table)
