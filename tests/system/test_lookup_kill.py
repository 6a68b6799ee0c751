"""SIGKILL of a service whose rule joins with a table of its stream: every event has what the database had then."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.database import Database
from tests.kafka_reader import Record, consume
from tests.sections import kafka_section, postgres_section
from tests.service import Service
from tests.source_at_work import wait_for

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, segment text);
CREATE TABLE orders (id bigserial PRIMARY KEY, customer_id int, expected text);
CREATE PUBLICATION p FOR ALL TABLES;
INSERT INTO customers SELECT i, 'first' FROM generate_series(1, 100) i;
"""
SPARK = """
[spark]
master = "local[1]"

[spark.lookups.customers]
kind = "changelog"
source = "db1"
table = "public.customers"

[spark.tables."public.orders"]
sql = "SELECT c.id, c.expected, l.segment FROM changes c LEFT JOIN customers l ON l.id = c.customer_id"
"""


class Shop:
    """Writes orders between changes of customers until it is told to stop. Each order has the segment of its moment."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _write(self) -> None:
        chance = random.Random(7)
        with self._database.session() as session, session.cursor() as at:
            while not self._stopping.is_set():
                for _ in range(chance.randrange(1, 6)):
                    customer = chance.randrange(1, 120)
                    if chance.random() < 0.2:
                        at.execute(
                            "INSERT INTO customers VALUES (%s, %s) "
                            "ON CONFLICT (id) DO UPDATE SET segment = EXCLUDED.segment",
                            (customer, f"s{chance.random()}"),
                        )
                    elif chance.random() < 0.1:
                        at.execute("DELETE FROM customers WHERE id = %s", (customer,))
                    at.execute(
                        "INSERT INTO orders (customer_id, expected) "
                        "SELECT %s, (SELECT segment FROM customers WHERE id = %s)",
                        (customer, customer),
                    )
                session.commit()
                time.sleep(0.03)


_KILLS = 4


@pytest.mark.slow
@pytest.mark.soak
def test_repeats_of_a_killed_service_are_joined_as_the_first_time(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    database.execute(TABLES)
    sink = kafka_section(kafka, topic_prefix, handlers=["spark"], headers=True)
    topic = f"{topic_prefix}.public.orders"
    with Service(tmp_path, postgres_section(database, startRetryInterval="100ms") + sink + SPARK) as service:
        service.start()
        # What is read first is newer than what is streamed first: it is there before anything changes.
        database.execute("INSERT INTO orders (customer_id, expected) VALUES (1, 'first')")
        wait_for(lambda: len(consume(kafka, [topic])) > 0, "the first order")
        shop = Shop(database)
        for kill in range(_KILLS):
            seen = len(consume(kafka, [topic]))
            service.until(lambda seen=seen: len(consume(kafka, [topic])) > seen + 20, "orders")  # type: ignore[misc]
            time.sleep(0.1 * (kill % 3))
            service.kill()
            wait_for(lambda: slot_is_free(database), "the slot to become free")
            service.start(wait=False)
        shop.stop()
        service.until_durable(database)
        assert "goes on with" in service.log.read_text()
    found = orders_in(consume(kafka, [topic]))
    assert len(found) == database.value("SELECT count(*) FROM orders")
    assert len({segment for of_one in found.values() for segment, _ in of_one}) > 20
    for of_one in found.values():
        assert len(set(of_one)) == 1, "a repeat says what the first one said"
        assert of_one[0][0] == of_one[0][1]


def slot_is_free(database: Database) -> bool:
    query = "SELECT NOT active FROM pg_replication_slots WHERE slot_name = %s"
    return bool(database.value(query, f"s_{database.name}"))


def orders_in(records: list[Record]) -> dict[tuple[Any, Any], list[tuple[Any, Any]]]:
    """(commit_lsn, seq) of each order -> its segment and what the database says it was, for each time that it came."""
    found: dict[tuple[Any, Any], list[tuple[Any, Any]]] = defaultdict(list)
    for record in records:
        values = json.loads(record.value or b"{}")["Columns"]
        place = record.headers["commit_lsn"], record.headers["seq"]
        found[place].append((values.get("segment"), values.get("expected")))
    return found
