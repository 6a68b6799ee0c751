"""The main job, from end to end: what is in the topics, folded, is what is in the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.database import Database
from tests.fold import Tables, fold_envelopes, fold_events, select
from tests.kafka_reader import Record, consume
from tests.sections import kafka_section, postgres_section
from tests.service import Service

_SCHEMA = '''
CREATE SCHEMA shop;
CREATE TABLE customers (
    id bigint PRIMARY KEY, name text NOT NULL, email varchar(80), vip boolean DEFAULT false, since timestamptz
);
CREATE TABLE shop.orders (
    id int PRIMARY KEY, customer bigint, amount numeric(12, 2), rate numeric, ratio double precision, tags text[],
    detail jsonb, paid date, at timestamp, note text
);
CREATE TABLE "Odd Name.s" (id uuid PRIMARY KEY, "say ""hi""" text, "ünïcode" int);
CREATE PUBLICATION p FOR ALL TABLES;
'''
_TOPICS = ("public.customers", "shop.orders", "public.Odd_Name.s")


def _config(database: Database, kafka: str, prefix: str, handlers: str, form: str) -> str:
    return f"""
{postgres_section(database)}
{kafka_section(kafka, prefix, format=form, handlers=[handlers])}
[spark]
master = "local[1]"
[spark.tables."*"]
sql = "SELECT * FROM changes"
"""


def _write_first_half(database: Database) -> None:
    database.execute("""
        INSERT INTO customers SELECT i, 'Ünï "q" \\ ' || chr(9) || i, 'c' || i || '@example.com', i % 2 = 0,
            timestamptz '2024-02-29 23:59:59.123456+00' + i * interval '1 day' FROM generate_series(1, 500) i
    """)
    database.execute("""
        INSERT INTO shop.orders SELECT i, i % 500, i * 1.25, i / 7.0, i * 1e10::float8, ARRAY['a', NULL, 'b,"c"'],
            jsonb_build_object('n', i, 'big', 12345678901234567890123456789::numeric), date '2024-01-01' + i,
            timestamp '2024-01-01 00:00:00' + i * interval '1.5 seconds', repeat('x', i % 50)
        FROM generate_series(1, 1000) i
    """)
    database.execute("""
        INSERT INTO "Odd Name.s" SELECT gen_random_uuid(), 'line' || chr(10) || i, i FROM generate_series(1, 20) i
    """)
    database.execute("UPDATE customers SET vip = NOT vip, email = NULL WHERE id % 7 = 0")
    database.execute("UPDATE customers SET id = id + 10000 WHERE id % 50 = 0")
    database.execute("DELETE FROM shop.orders WHERE id % 9 = 0")
    with database.session() as session, session.cursor() as cursor:
        cursor.execute("INSERT INTO customers VALUES (77777, 'never', NULL, NULL, NULL)")
        session.rollback()
        cursor.execute("INSERT INTO customers VALUES (77778, 'kept', NULL, NULL, NULL)")
        cursor.execute("SAVEPOINT s")
        cursor.execute("INSERT INTO customers VALUES (77779, 'undone', NULL, NULL, NULL)")
        cursor.execute("ROLLBACK TO s")
        session.commit()


def _write_second_half(database: Database) -> None:
    database.execute("TRUNCATE shop.orders")
    database.execute("ALTER TABLE shop.orders ADD COLUMN extra text DEFAULT 'new'")
    database.execute("INSERT INTO shop.orders (id, amount, extra) SELECT i, i, 'e' || i FROM generate_series(1, 300) i")
    database.execute("UPDATE shop.orders SET note = NULL, amount = 'NaN' WHERE id = 5")
    database.execute("""
        UPDATE shop.orders SET detail = '{"a": [1.50, null]}', id = id + 5000 WHERE id BETWEEN 10 AND 20
    """)


@pytest.mark.behaviour("D1", "D3", "D4", "D7", "D10", "S1", "R1")
def test_the_folded_topics_equal_the_tables_after_a_clean_restart_in_the_middle(
    either_postgres: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    _hold_topics_against_tables(either_postgres, kafka, topic_prefix, tmp_path, "passthrough", "event", fold_events)


@pytest.mark.parametrize(
    ("handlers", "form", "fold"),
    [("passthrough", "envelope", fold_envelopes), pytest.param("spark", "event", fold_events, marks=pytest.mark.soak)],
)
def test_other_formats_and_handlers_fold_to_the_same_tables(
    database: Database,
    kafka: str,
    topic_prefix: str,
    tmp_path: Path,
    handlers: str,
    form: str,
    fold: Callable[[Iterable[Record]], Tables],
) -> None:
    _hold_topics_against_tables(database, kafka, topic_prefix, tmp_path, handlers, form, fold)


def _hold_topics_against_tables(
    database: Database,
    kafka: str,
    prefix: str,
    folder: Path,
    handlers: str,
    form: str,
    fold: Callable[[Iterable[Record]], Tables],
) -> None:
    database.execute(_SCHEMA)
    with Service(folder, _config(database, kafka, prefix, handlers, form)) as service:
        service.start()
        _write_first_half(database)
        service.until_durable(database)
        assert service.stop() == 0

        _write_second_half(database)
        service.start()
        service.until_durable(database)
        assert service.stop() == 0

    records = consume(kafka, [f"{prefix}.{topic}" for topic in _TOPICS])
    tables = fold(records)
    assert tables["public.customers"] == select(database, "customers")
    assert tables["shop.orders"] == select(database, "shop.orders")
    assert tables["public.Odd Name.s"] == select(database, '"Odd Name.s"')
    identities = [(record.topic, record.key, record.value) for record in records if record.key]
    assert len(identities) == len(set(identities)), "a clean restart repeats nothing"
