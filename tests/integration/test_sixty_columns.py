"""One table with 60 columns, one of each type: what is inserted, updated and deleted there, in every format, by both
handlers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from psql_streamer.model import Batch
from psql_streamer.spark.handler import SparkHandler
from tests.database import Database
from tests.encoding import FORMATS, encoder_of
from tests.oracle import object_of, oracle_texts
from tests.shared_stream import ONE_TOPIC
from tests.sixty_columns import TOASTED, TYPES, Kind, create, insert, kinds_on
from tests.source_at_work import read_all, streaming

KEY_ONLY, WHOLE = "sixty", "sixty_whole"
"""Under REPLICA IDENTITY DEFAULT, and under FULL."""


class Written:
    """A stream of both tables, and the rows as SELECT gave them: id -> JSON object, exact.

    inserted: before the update of the usual row (id 0), which left its TOASTed value alone. updated: after it.
    """

    def __init__(self, database: Database) -> None:
        database.execute(TYPES)
        self.kinds = kinds_on(database)
        for table in (KEY_ONLY, WHOLE):
            create(database, table, self.kinds)
        database.execute(f"ALTER TABLE {WHOLE} REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR ALL TABLES")
        with streaming(database) as source:
            for table in (KEY_ONLY, WHOLE):
                self.count = insert(database, table, self.kinds)
            self.inserted = _selected(database, self.kinds)
            for table in (KEY_ONLY, WHOLE):
                database.execute(f"UPDATE {table} SET bool = NOT bool, uuid = NULL WHERE int8 = 0")
            self.updated = _selected(database, self.kinds)
            for table in (KEY_ONLY, WHOLE):
                database.execute(f"DELETE FROM {table} WHERE int8 = 0")
                database.execute(f"DELETE FROM {table}")
            self.batches = [batch for batch in read_all(source, database) if batch.changes]


def exact(text: str | bytes) -> Any:
    """JSON with every digit of a number, every member of an object, and their order; numbers are not strings."""
    return json.loads(text, parse_int=_digits, parse_float=_digits, object_pairs_hook=lambda pairs: ("object", pairs))


def _digits(digits: str) -> tuple[str, str]:
    return "number", digits


def _selected(database: Database, kinds: list[Kind]) -> dict[int, dict[str, Any]]:
    """The rows of the table, as PostgreSQL's own functions make JSON of them."""
    query = f"SELECT {object_of([(kind.name, kind.oracle) for kind in kinds])} FROM {WHOLE} ORDER BY int8"
    rows = [dict(exact(text)[1]) for text in oracle_texts(database, query)]
    return {int(row["int8"][1]): row for row in rows}


def events(batches: list[Batch], table: str) -> list[dict[str, Any]]:
    """The `event` events of a table, in order."""
    encoder = encoder_of("event", ONE_TOPIC, {})
    values = [value for batch in batches for value in encoder.encode(batch).values.to_pylist()]
    told = [dict(exact(value)[1]) for value in values]
    return [event for event in told if event["Table"] == table]


def assert_columns(event: dict[str, Any], wanted: dict[str, Any], field: str = "Columns") -> None:
    found = dict(event[field][1])
    assert [name for name, _ in event[field][1]] == list(wanted)
    for name, value in wanted.items():
        assert found[name] == value, f"{event['Action']}: {name}"


def test_the_table_has_sixty_columns_each_of_a_type_of_its_own(every_postgres: Database) -> None:
    every_postgres.execute(TYPES)
    kinds = kinds_on(every_postgres)
    assert len(kinds) == len({kind.sql for kind in kinds}) == len({kind.name for kind in kinds}) == 60


@pytest.mark.behaviour("T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "D3", "D6")
def test_sixty_columns_arrive_as_select_gives_them(every_postgres: Database) -> None:
    written = Written(every_postgres)
    rows = list(written.inserted.values())
    assert len(rows) == written.count > 9
    assert all(value is not None for value in rows[0].values())
    assert [name for name, value in rows[-1].items() if value is not None] == ["int8"]
    for table in (KEY_ONLY, WHOLE):
        told = events(written.batches, table)
        inserts, update, deletes = told[: len(rows)], told[len(rows)], told[len(rows) + 1 :]
        for event, row in zip(inserts, rows, strict=True):
            assert event["Action"] == "insert"
            assert_columns(event, row)
        assert update["Action"] == "update"
        assert [event["Action"] for event in deletes] == ["delete"] * len(rows)
        if table == WHOLE:
            assert_columns(update, written.updated[0])
            assert_columns(update, written.inserted[0], "Before")
            for event in deletes:
                assert_columns(event, written.updated[int(dict(event["Columns"][1])["int8"][1])])
        else:
            left = {name: value for name, value in written.updated[0].items() if name != TOASTED}
            assert_columns(update, left)
            assert update["Unchanged"] == [TOASTED]
            for number, event in enumerate(deletes):
                assert_columns(event, {"int8": ("number", str(number))})


@pytest.mark.behaviour("T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "D6")
def test_both_handlers_give_the_same_bytes_of_sixty_columns_in_every_format(
    every_postgres: Database, engine: SparkHandler
) -> None:
    written = Written(every_postgres)
    through_spark = [engine.handle(batch) for batch in written.batches]
    changed = sum(len(changes) for batch in through_spark for changes in batch.changes)
    assert changed == 2 * (2 * written.count + 1)
    for form in FORMATS:
        encoder = encoder_of(form, ONE_TOPIC, {}, headers=True)
        for plain, typed in zip(written.batches, through_spark, strict=True):
            one, other = encoder.encode(plain), encoder.encode(typed)
            assert one.keys.to_pylist() == other.keys.to_pylist(), form
            assert one.values.to_pylist() == other.values.to_pylist(), form
            assert one.headers == other.headers, form


def test_all_formats_hold_the_same_row(database: Database) -> None:
    written = Written(database)
    for batch in written.batches:
        told = {form: encoder_of(form, ONE_TOPIC, {}).encode(batch) for form in FORMATS}
        rows = [value for value in told["flat"].values.to_pylist() if value is not None]
        of_event = [value for value in told["event"].values.to_pylist() if b'"Action":"delete"' not in value]
        of_envelope = [value for value in told["envelope"].values.to_pylist() if b'"op":"DELETE"' not in value]
        for row, event, envelope in zip(rows, of_event, of_envelope, strict=True):
            assert b'"Columns":' + row in event
            assert b'"after":' + row in envelope
