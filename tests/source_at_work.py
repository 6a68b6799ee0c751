"""A PostgresSource used as the pipeline uses it, by one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg2

from psql_streamer.lsn import Lsn
from psql_streamer.model import Batch, Marker, Position, Relation
from psql_streamer.pgoutput.wal_position import WalPosition
from sources.postgres.options import PostgresOptions
from sources.postgres.server_errors import SlotInUse
from sources.postgres.source import PostgresSource
from tests.database import Database
from tests.flatten import flatten
from tests.naive_pgoutput import NaiveRow
from tests.started_source import started

_ACTIVE = "SELECT FROM pg_replication_slots WHERE slot_name = %s AND active"


def source_of(database: Database, **options: Any) -> PostgresSource:
    """A source, not started: publication `p`, a slot named after the database and no snapshot unless options say so."""
    given = {"type": "postgres", "dsn": database.dsn, "publication": "p", "replicationSlot": f"s_{database.name}"}
    given |= {"snapshot": "never"}
    return PostgresSource("db1", PostgresOptions.model_validate(given | options))


@contextmanager
def streaming(
    database: Database, position: Position | None = None, shapes: Iterable[Relation] = (), **options: Any
) -> Iterator[PostgresSource]:
    """A source of this database, started as the pipeline starts it, stopped at the end.

    position, shapes: as they are stored; the first start goes where walPositionOverride says.
    """
    if position is not None:
        _wait_for_free_slot(database, options.get("replicationSlot", f"s_{database.name}"))
    with started(source_of(database, **options), position, shapes) as source:
        yield source


def _wait_for_free_slot(database: Database, slot: str, seconds: float = 5.0) -> None:
    """The server takes a moment to see that the session before has ended. It may be down, or have another one."""
    deadline = time.monotonic() + seconds
    with suppress(psycopg2.OperationalError):
        while database.query(_ACTIVE, slot) and time.monotonic() < deadline:
            time.sleep(0.01)


def start_again(source: PostgresSource, position: Position | None) -> None:
    """The server takes a moment to see that the session before has ended."""

    def is_started() -> bool:
        try:
            source.start(position)
        except SlotInUse:
            return False
        return True

    wait_for(is_started, "the slot to be free")


def read_until(source: PostgresSource, condition: Callable[[Batch], bool], timeout: float = 60.0) -> list[Batch]:
    """Every batch up to the first that the condition is true of."""
    deadline = time.monotonic() + timeout
    batches: list[Batch] = []
    while not batches or not condition(batches[-1]):
        assert time.monotonic() < deadline, f"{len(batches)} batches in {timeout} s, but not the one awaited"
        batch = source.read(0.1)
        if batch is not None:
            batches.append(batch)
    return batches


def read_all(source: PostgresSource, database: Database) -> list[Batch]:
    """Every batch with changes that are committed now; those after them are only positions."""
    mark = f"mark {time.monotonic_ns()}"
    database.execute("SELECT pg_logical_emit_message(true, %s, '')", mark)
    return read_until(source, lambda batch: any(message.prefix == mark for message in batch.messages))


def read_up_to(source: PostgresSource, lsn: int) -> list[Batch]:
    """Every batch until the position has reached an LSN: with idle keepalives it does so by itself."""
    return read_until(source, lambda batch: WalPosition.from_position(batch.position).lsn >= lsn)


def rows(batches: list[Batch]) -> list[NaiveRow]:
    """The rows as inserted or updated, and what is known of the deleted ones, in order, as PostgreSQL's text."""
    changes = [change for batch in batches for change in flatten(batch) if change.op in "IUD"]
    return [change.after if change.after is not None else change.before or () for change in changes]


def identities(batches: list[Batch]) -> list[tuple[int, int]]:
    """(commit_lsn, seq) of every row change, in order."""
    return [
        (change.commit_lsn, change.seq)
        for batch in batches
        for change in flatten(batch)
        if change.op != chr(Marker.MESSAGE)
    ]


def confirmed_flush_lsn(database: Database, slot: str = "") -> Lsn:
    """What the server holds of the slot."""
    query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
    return Lsn.parse(database.value(query, slot or f"s_{database.name}"))


def wait_for(condition: Callable[[], bool], what: str, timeout: float = 60.0) -> None:
    """Until a condition holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.02)
