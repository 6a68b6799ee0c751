"""One source that many tests read from in turn, and its changes told as events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from psql_streamer.events.encoder import Encoder
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch, Position
from sources.postgres.source import PostgresSource
from tests.database import Database
from tests.encoding import encoder_of
from tests.source_at_work import read_all, source_of, streaming

ONE_TOPIC = Router({}, "", "t")

_EMPTY = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
END $$;
CREATE SCHEMA public
"""


@dataclass(frozen=True, slots=True)
class Event:
    """A record. key, value: its JSON, numbers exact; None where it has none. table: of a message, its prefix."""

    op: str
    table: str
    topic: str
    key: Any
    value: Any
    headers: dict[str, str]
    identity: tuple[int, int]


def events(
    batches: Iterable[Batch],
    form: str = "envelope",
    router: Router = ONE_TOPIC,
    key: dict[str, tuple[str, ...]] | None = None,
    **options: Any,
) -> list[Event]:
    """Every record that an encoder makes of the batches, in order."""
    encoder = encoder_of(form, router, key or {}, **options)
    return [event for batch in batches for event in _events(encoder, batch)]


def rows(told: Iterable[Event]) -> list[tuple[str, str, Any]]:
    """(op, table, row) of `envelope` events; of a delete, what is known of the old row."""
    return [
        (event.op, event.table, event.value["before"] if event.value["after"] is None else event.value["after"])
        for event in told
    ]


class SharedStream:
    """A source of all tables of one database. `batches` and `told` give what was committed since the last call."""

    def __init__(self, database: Database, **options: Any) -> None:
        self.database = database
        self.position: Position | None = None
        self.source = source_of(database, **options)

    @contextmanager
    def streaming(self) -> Iterator[SharedStream]:
        """The source is stopped at the end."""
        try:
            self.source.read_stream_identity()
            self.source.start(None)
            yield self
        finally:
            self.source.stop()

    def empty(self) -> None:
        """No tables, no types, nothing unread; streaming, whatever the test before did."""
        self.database.execute(_EMPTY)
        if not self.source.status().ok:
            self.source.start(self.position)
        self.batches()

    def batches(self) -> list[Batch]:
        """What is committed and was not read yet."""
        batches = read_all(self.source, self.database)
        self.position = batches[-1].position
        return batches

    def run(self, *transactions: str) -> None:
        """Each in a transaction of its own."""
        for sql in transactions:
            self.database.execute(sql)

    def told(self, *transactions: str) -> list[tuple[str, str, Any]]:
        """(op, table, row) of what these transactions, and others that were not read yet, changed."""
        self.run(*transactions)
        return rows(events(self.batches()))

    @contextmanager
    def another(self, **options: Any) -> Iterator[PostgresSource]:
        """A source with a slot of its own beside the shared one, from now on."""
        slot = f"another_{self.database.name}"
        with streaming(self.database, replicationSlot=slot, **options) as source:
            yield source
        self.database.query("SELECT pg_drop_replication_slot(%s)", slot)

    @contextmanager
    def away(self) -> Iterator[None]:
        """The source is stopped meanwhile, and goes on where it was."""
        self.source.stop()
        yield
        self.source.start(self.position)


def _events(encoder: Encoder, batch: Batch) -> Iterator[Event]:
    records = encoder.encode(batch)
    headers = {name: column.to_pylist() for name, column in records.headers.items()}
    for row, (key, value) in enumerate(zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True)):
        yield Event(
            chr(records.op[row]),
            records.table_names[records.tables[row]],
            records.topic_names[records.topics[row]],
            _parsed(key),
            _parsed(value),
            {name: column[row].decode() for name, column in headers.items() if column[row] is not None},
            (int(records.commit[row]), int(records.seq[row])),
        )


def _parsed(text: bytes | None) -> Any:
    return None if text is None else json.loads(text, parse_float=Decimal)
