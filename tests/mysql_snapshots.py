"""What tests of a MySQL source's snapshots have in common: a consumer, writers, and what SELECT gives."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql

from psql_streamer.interfaces import Source
from psql_streamer.model import Batch, Position
from psql_streamer.snapshots import SnapshotProgress
from psql_streamer.testing import check_batch
from sources.mysql.source import MysqlSource
from tests.mariadb import Schema
from tests.mysql_source import source_of
from tests.snapshot_fold import Fold
from tests.source_at_work import wait_for

_DEADLOCK, _LOCK_WAIT = 1213, 1205


class Consumer:
    """Reads a source as the pipeline does; forgets what is not durable when the source is killed."""

    def __init__(self, source: MysqlSource) -> None:
        self.source = source
        self.fold = Fold()
        self.position: Position | None = None
        self.batches: list[Batch] = []
        self._kept = (self.fold.copy(), self.position)
        source.read_stream_identity()
        source.start(None)

    def read(self, timeout: float = 0.05) -> Batch | None:
        batch = self.source.read(timeout)
        if batch is not None:
            check_batch(batch)
            self.fold.add(batch)
            self.batches.append(batch)
            self.position = batch.position
        return batch

    def keep(self) -> None:
        """What was read so far is durable."""
        self._kept = (self.fold.copy(), self.position)
        if self.position is not None:
            self.source.confirm(self.position)

    def lose(self, source: MysqlSource) -> None:
        """A kill: another source goes on at what is durable."""
        self.source.stop()
        fold, self.position = self._kept
        self.fold, self.source = fold.copy(), source
        source.read_stream_identity()
        source.start(self.position)

    @property
    def snapshots(self) -> Sequence[SnapshotProgress]:
        return self.source.list_snapshots()

    @property
    def done(self) -> bool:
        return bool(self.snapshots) and all(one.state.ended for one in self.snapshots)

    def until(self, condition: Callable[[], Any], awaited: str, timeout: float = 60.0) -> None:
        def holds() -> bool:
            if condition():
                return True
            self.read()
            if self.position is not None:
                self.source.confirm(self.position)
            return False

        wait_for(holds, awaited, timeout)

    def until_done(self) -> None:
        self.until(lambda: self.done, "the snapshot to end")

    def until_level(self) -> None:
        """Until everything that is committed was read."""
        end = self.source.find_dropped([])
        assert end is not None
        self.until(
            lambda: self.position is not None and self.source.has_reached(self.position, end[0]), "the end of the log"
        )

    def reads(self) -> list[dict[str, Any]]:
        """Every READ row, name -> text, in order."""
        found = []
        for batch in self.batches:
            for changes in batch.changes if batch.transactions.snapshots else ():
                columns = [column.to_pylist() for column in changes.after.columns]
                names = [column.name for column in changes.columns]
                found += [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return found


@contextmanager
def consuming(schema: Schema, snapshot: Any = "initial", **options: Any) -> Iterator[Consumer]:
    consumer = Consumer(source_of(schema, snapshot=snapshot, **options))
    try:
        yield consumer
    finally:
        consumer.source.stop()


def rows_of(schema: Schema, table: str) -> list[str]:
    """What SELECT gives, as Fold has rows."""
    with schema.session() as cursor:
        cursor.execute(f"SELECT * FROM {table} LIMIT 0")
        names = [column[0] for column in cursor.description]
        cursor.execute(f"SELECT {', '.join(f'CAST(`{name}` AS CHAR)' for name in names)} FROM {table}")
        rows = [
            {name: None if value is None else value.encode() for name, value in zip(names, row, strict=True)}
            for row in cursor.fetchall()
        ]
    return sorted(map(repr, rows))


def folded(fold: Fold, schema: Schema, table: str) -> list[str]:
    """The same of what was consumed."""
    return sorted(map(repr, fold.tables.get(f"{schema.name}.{table}", {}).values()))


class Writer:
    """Random transactions, some rolled back, from a thread of its own. statements: with {free}, {id}, {n}."""

    def __init__(self, schema: Schema, statements: Sequence[str], seed: int, rare: Sequence[str] = ()) -> None:
        self._schema = schema
        self._statements, self._rare = statements, rare
        self._random = random.Random(seed)
        self._free = 100_000 * (seed + 1)
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
            with self._schema.session() as cursor:
                cursor.execute("SET SESSION lock_wait_timeout = 5, innodb_lock_wait_timeout = 5")
                while not self._stopping.is_set():
                    self._transaction(cursor)
                    self._stopping.wait(0.002)
        except BaseException as error:
            self.failure = error

    def _transaction(self, cursor: Any) -> None:
        try:
            cursor.execute("BEGIN")
            for _ in range(self._random.randint(1, 5)):
                cursor.execute(self._statement())
            cursor.execute("ROLLBACK" if self._random.random() < 0.15 else "COMMIT")
        except (pymysql.err.OperationalError, pymysql.err.IntegrityError) as error:
            if isinstance(error, pymysql.err.OperationalError) and error.args[0] not in (_DEADLOCK, _LOCK_WAIT):
                raise
            cursor.execute("ROLLBACK")

    def _statement(self) -> str:
        if self._rare and self._random.random() < 0.002:
            return self._random.choice(self._rare)
        self._free += 1
        id_ = self._random.choice([self._random.randint(1, 2000), self._random.randint(self._free - 20, self._free)])
        return self._random.choice(self._statements).format(free=self._free, id=id_, n=self._random.randint(0, 9))


@contextmanager
def writing(
    schema: Schema, statements: Sequence[str], seed: int, rare: Sequence[str] = (), count: int = 2
) -> Iterator[None]:
    started = [Writer(schema, statements, seed * 10 + number, rare) for number in range(count)]
    try:
        yield
    finally:
        for writer in started:
            writer.stop()


def begin_again(source: Source, position: Position | None) -> None:
    """As the pipeline does it after a failure."""
    source.read_stream_identity()
    source.start(position)
