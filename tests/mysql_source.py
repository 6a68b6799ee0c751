"""A MysqlSource used as the pipeline uses it, by one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from psql_streamer.model import Batch, Changes, Image, Position, Relation
from sources.mysql.options import MysqlOptions
from sources.mysql.source import MysqlSource
from tests.mariadb import Schema
from tests.source_at_work import wait_for
from tests.started_source import started


def source_of(schema: Schema, **options: Any) -> MysqlSource:
    """A source of this schema's tables, not started; without a snapshot unless one is asked for."""
    given = {"type": "mysql", "dsn": schema.dsn, "tables": [f"{schema.name}.*"], "snapshot": "never"}
    return MysqlSource("db1", MysqlOptions.model_validate(given | options))


@contextmanager
def streaming(
    schema: Schema, position: Position | None = None, shapes: Iterable[Relation] = (), **options: Any
) -> Iterator[MysqlSource]:
    """A source of this schema, started as the pipeline starts it, stopped at the end."""
    with started(source_of(schema, **options), position, shapes) as source:
        yield source


def read_until(source: MysqlSource, condition: Callable[[list[Batch]], bool], timeout: float = 30.0) -> list[Batch]:
    """Every batch up to the first at which the condition holds."""
    deadline = time.monotonic() + timeout
    batches: list[Batch] = []
    while not condition(batches):
        assert time.monotonic() < deadline, f"{len(batches)} batches in {timeout} s, but not the one awaited"
        batch = source.read(0.1)
        if batch is not None:
            batches.append(batch)
    return batches


def read_all(source: MysqlSource, schema: Schema) -> list[Batch]:
    """Every batch up to the end of the binary log as it is now."""
    end = source.find_dropped([])
    assert end is not None
    return read_until(source, lambda batches: bool(batches) and source.has_reached(batches[-1].position, end[0]))


class Seen(NamedTuple):
    """A row change. before, after: name -> the text form, None for NULL, ABSENT for what the image lacks."""

    op: str
    table: str
    commit: int
    seq: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None


ABSENT = "<absent>"


def seen(batches: Iterable[Batch]) -> list[Seen]:
    """Every row change, in order."""
    found: list[tuple[int, int, Seen]] = []
    for number, batch in enumerate(batches):
        for changes in batch.changes:
            after, before = (_by_row(changes, image) for image in (changes.after, changes.before))
            found += [
                (
                    number,
                    int(changes.batch_order[row]),
                    Seen(
                        chr(changes.op[row]),
                        str(changes.relation),
                        int(batch.transactions.commit[changes.tx[row]]),
                        int(changes.seq[row]),
                        before.get(row),
                        after.get(row),
                    ),
                )
                for row in range(len(changes))
            ]
    return [change for _, _, change in sorted(found, key=lambda one: one[:2])]


def _by_row(changes: Changes, image: Image) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {row: {} for row in image.rows.tolist()}
    for number, (column, array) in enumerate(zip(changes.columns, image.columns, strict=True)):
        absent = image.absent.get(number)
        for place, (row, value) in enumerate(zip(image.rows.tolist(), array.to_pylist(), strict=True)):
            lacks = absent is not None and bool(absent[place])
            found[row][column.name] = ABSENT if lacks else None if value is None else value.decode()
    return found


def identities(batches: Iterable[Batch]) -> list[tuple[int, int]]:
    """(commit, seq) of every row change, in order."""
    return [(change.commit, change.seq) for change in seen(batches)]


def fold(changes: Iterable[Seen], key: str = "id") -> dict[Any, dict[str, Any]]:
    """What a table holds after its changes, by key."""
    table: dict[Any, dict[str, Any]] = {}
    for change in changes:
        if change.before is not None:
            table.pop(change.before[key], None)
        if change.after is not None:
            table[change.after[key]] = change.after
    return table


def purge_all_but_the_last(schema: Schema) -> None:
    """A file stays while a session reads it, which the server finds out late has gone."""

    def is_purged() -> bool:
        schema.execute(f"PURGE BINARY LOGS TO '{schema.query('SHOW BINARY LOGS')[-1][0]}'")
        return len(schema.query("SHOW BINARY LOGS")) == 1

    wait_for(is_purged, "the server to remove its binary logs")
