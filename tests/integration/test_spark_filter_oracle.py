"""The events of a filter, folded by key, are what PostgreSQL selects with the same condition."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from psql_streamer.events.routing import Router
from psql_streamer.model import Batch
from tests.database import Database
from tests.encoding import encoder_of
from tests.source_at_work import read_all, streaming

_SCHEMA = """
CREATE TABLE orders (id int PRIMARY KEY, status text NOT NULL, amount int, note text);
ALTER TABLE orders ALTER note SET STORAGE EXTERNAL;
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE PUBLICATION p FOR TABLE orders;
"""

_CONDITION = "status = 'paid' AND (amount > 0 OR length(note) > 100)"


def _write(database: Database, chance: random.Random) -> None:
    statements = (
        "INSERT INTO orders VALUES ({id}, {status}, {amount}, {note}) ON CONFLICT DO NOTHING",
        "UPDATE orders SET status = {status} WHERE id = {id}",
        "UPDATE orders SET amount = {amount} WHERE id = {id}",
        "UPDATE orders SET note = {note} WHERE id = {id}",
        "UPDATE orders SET id = {other}, status = {status} WHERE id = {id} AND {other} NOT IN (SELECT id FROM orders)",
        "DELETE FROM orders WHERE id = {id}",
    )
    with database.session() as session, session.cursor() as at:
        for _ in range(1500):
            at.execute(
                chance.choice((statements[0], *statements)).format(
                    id=chance.randrange(120),
                    other=chance.randrange(120),
                    status=chance.choice(("'new'", "'paid'", "'sent'")),
                    amount=chance.choice(("NULL", "-1", "1")),
                    note=chance.choice(("NULL", "'short'", "repeat('long', 1000)")),
                )
            )
            if chance.random() < 0.3:
                session.commit()
        session.commit()


def _fold(batches: Iterable[Batch]) -> dict[int, Any]:
    """The id -> the row of its last event."""
    found: dict[int, Any] = {}
    encoder = encoder_of("event", Router({}, "t", ""), {})
    for batch in batches:
        records = encoder.encode(batch)
        for at in range(len(records)):
            event = json.loads(records.values[at].as_py())
            number = json.loads(records.keys[at].as_py())["id"]
            found[number] = None if event["Action"] == "delete" else event["Columns"]
    return {number: row for number, row in found.items() if row is not None}


@pytest.mark.behaviour("K11")
@pytest.mark.parametrize(
    "rule",
    [
        {"where": _CONDITION},
        {"sql": f"SELECT * FROM changes WHERE {_CONDITION}"},
        {"sql": f"SELECT * EXCEPT (one) FROM changes LATERAL VIEW explode(array(1)) AS one WHERE {_CONDITION}"},
    ],
    ids=["step", "query", "a query that could split"],
)
def test_the_events_of_a_filter_fold_to_the_rows_that_postgresql_selects(
    database: Database, spark: Any, rule: dict[str, Any]
) -> None:
    database.execute(_SCHEMA)
    handler = spark(orders=rule)
    with streaming(database) as source:
        _write(database, random.Random(11))
        found = _fold(map(handler.handle, read_all(source, database)))
    selected = database.query(f"SELECT id, row_to_json(orders) FROM orders WHERE {_CONDITION}")
    assert found == dict(selected)
    assert len(found) > 5
