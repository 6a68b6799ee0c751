"""A small shop that keeps writing, and keeps count of what it committed: the demo's oracle."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg2
from psycopg2.extensions import connection, cursor

SCHEMA = "shop"
TABLES = ("customers", "orders", "order_items")
PUBLICATION = "shop"

_DDL = """
CREATE SCHEMA shop;
CREATE TYPE shop.segment AS ENUM ('private', 'business', 'reseller');
CREATE TABLE shop.customers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    segment shop.segment NOT NULL,
    tags text[] NOT NULL DEFAULT '{}',
    since date NOT NULL DEFAULT current_date
);
CREATE TABLE shop.orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES shop.customers,
    status text NOT NULL DEFAULT 'new',
    amount numeric(12,2) NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    meta jsonb NOT NULL
);
CREATE TABLE shop.order_items (
    order_id bigint NOT NULL REFERENCES shop.orders ON DELETE CASCADE,
    line smallint NOT NULL,
    sku text NOT NULL,
    quantity int NOT NULL,
    price numeric(10,2) NOT NULL,
    PRIMARY KEY (order_id, line)
);
CREATE PUBLICATION shop FOR TABLES IN SCHEMA shop;
"""
_DDL_BEFORE_15 = "CREATE PUBLICATION shop FOR TABLE shop.customers, shop.orders, shop.order_items;"

_ROWS_BEFORE = """
INSERT INTO shop.customers (name, segment)
    SELECT 'Customer ' || i, (ARRAY['private', 'business', 'reseller'])[1 + i % 3]::shop.segment
    FROM generate_series(1, 200) i;
INSERT INTO shop.orders (customer_id, status, amount, meta)
    SELECT 1 + i % 200, 'shipped', 8.40, jsonb_build_object('channel', (ARRAY['web', 'app', 'store'])[1 + i % 3])
    FROM generate_series(1, 1000) i;
INSERT INTO shop.order_items SELECT i, line, 'tea', 1, 4.20 FROM generate_series(1, 1000) i, generate_series(1, 2) line;
"""

_NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Zoë", "José", "Łukasz", "O'Neill", "李明", "Ægir")
_SEGMENTS = ("private", "business", "reseller")
_GOODS = (("tea", "4.20"), ("mug", "12.00"), ("kettle", "59.90"), ("samovar", "349.00"), ("spoon", "0.95"))
_CHANNELS = ("web", "app", "store")
_STATUSES = ("paid", "packed", "shipped")

_PAUSE_SECONDS = 0.04
"""Between two transactions."""

_CYCLE = (
    "order", "order", "advance", "order", "customer", "order", "advance", "regret", "order", "advance",
    "second_thoughts", "order", "cancel", "reprice", "order", "rename",
)  # fmt: skip
_NEW_COLUMN_AFTER = 40
"""Transactions before shop.orders gets another column."""


def create(dsn: str) -> Counter[tuple[str, str]]:
    """The shop's schema, its publication, and the rows of its past. (table, "read") -> how many of these there are."""
    session = psycopg2.connect(dsn)
    try:
        with session, session.cursor() as sql:
            ddl = _DDL
            if session.server_version < 150_000:
                ddl = ddl.replace("CREATE PUBLICATION shop FOR TABLES IN SCHEMA shop;", _DDL_BEFORE_15)
            sql.execute(ddl)
            sql.execute(_ROWS_BEFORE)
            return Counter({(table, "read"): _count(sql, table) for table in TABLES})
    finally:
        session.close()


def _count(sql: cursor, table: str) -> int:
    sql.execute(f"SELECT count(*) FROM shop.{table}")  # noqa: S608  # one of TABLES
    [(rows,)] = sql.fetchall()
    return int(rows)


class Shop(threading.Thread):
    """Writes one short transaction after the other until `close` is called.

    committed: (table, action) -> rows, as PostgreSQL counted them, of committed transactions only; it begins with the
    rows that were there.
    error: what ended it early, if anything did.
    """

    def __init__(self, dsn: str, announce: Callable[[str], None], there: Counter[tuple[str, str]]) -> None:
        super().__init__(name="shop", daemon=True)
        self.committed = there.copy()
        self.transactions = 0
        self.error: psycopg2.Error | None = None
        self._dsn = dsn
        self._announce = announce
        self._announced: set[str] = set()
        self._closing = threading.Event()
        # Seeded, so that two demos tell the same story. S311: nothing here is a secret.
        self._random = random.Random(1)  # noqa: S311
        self._has_coupons = False
        self._pending: Counter[tuple[str, str]] = Counter()

    def run(self) -> None:
        try:
            session = psycopg2.connect(self._dsn)
            try:
                self._open(session)
                while not self._closing.wait(_PAUSE_SECONDS):
                    step = _CYCLE[self.transactions % len(_CYCLE)]
                    if self.transactions >= _NEW_COLUMN_AFTER and not self._has_coupons:
                        step = "add_column"
                    self._transaction(session, step)
            finally:
                session.close()
        except psycopg2.Error as error:
            self.error = error

    def close(self) -> None:
        """Return when the last transaction is over."""
        self._closing.set()
        if self.ident is not None:
            self.join()

    def _open(self, session: connection) -> None:
        for _ in range(3):
            self._transaction(session, "customer")

    def _transaction(self, session: connection, step: str) -> None:
        self._pending.clear()
        with session.cursor() as sql:
            keep = getattr(self, f"_{step}")(sql)
        if keep is False:
            session.rollback()
        else:
            session.commit()
            self.committed += self._pending
        self.transactions += 1

    def _customer(self, sql: cursor) -> None:
        self._write(
            sql,
            ("customers", "insert"),
            "INSERT INTO shop.customers (name, segment, tags) VALUES (%s, %s, %s)",
            f"{self._random.choice(_NAMES)} {self._random.randrange(1000)}",
            self._random.choice(_SEGMENTS),
            self._random.sample(["vip", "new", "it's late", 'says "hi"', ""], 2),
        )

    def _order(self, sql: cursor) -> None:
        lines = [(*self._random.choice(_GOODS), self._random.randint(1, 4)) for _ in range(self._random.randint(1, 3))]
        columns, extra = ("", ()) if not self._has_coupons else (", coupon", (f"TEA{self._random.randrange(100)}",))
        self._write(
            sql,
            ("orders", "insert"),
            f"INSERT INTO shop.orders (customer_id, amount, meta{columns})"  # noqa: S608  # a column's name, ours
            f" SELECT id, 0, %s{', %s' * len(extra)} FROM shop.customers ORDER BY random() LIMIT 1 RETURNING id",
            json.dumps({"channel": self._random.choice(_CHANNELS), "gift": self._random.random() < 0.2}),
            *extra,
        )
        [(order,)] = sql.fetchall()
        for number, (sku, price, quantity) in enumerate(lines, 1):
            self._write(
                sql,
                ("order_items", "insert"),
                "INSERT INTO shop.order_items VALUES (%s, %s, %s, %s, %s)",
                *(order, number, sku, quantity, price),
            )
        self._write(
            sql,
            ("orders", "update"),
            "UPDATE shop.orders SET amount = (SELECT sum(quantity * price) FROM shop.order_items WHERE order_id = id)"
            " WHERE id = %s",
            order,
        )

    def _advance(self, sql: cursor) -> None:
        self._write(
            sql,
            ("orders", "update"),
            "UPDATE shop.orders SET status = %s WHERE id IN (SELECT id FROM shop.orders ORDER BY random() LIMIT 3)",
            self._random.choice(_STATUSES),
        )

    def _reprice(self, sql: cursor) -> None:
        self._write(
            sql,
            ("order_items", "update"),
            "UPDATE shop.order_items SET price = round(price * 1.03, 2)"
            " WHERE (order_id, line) IN (SELECT order_id, line FROM shop.order_items ORDER BY random() LIMIT 4)",
        )

    def _rename(self, sql: cursor) -> None:
        self._write(
            sql,
            ("customers", "update"),
            "UPDATE shop.customers SET name = name || ' Jr.', segment = 'business'"
            " WHERE id = (SELECT id FROM shop.customers ORDER BY random() LIMIT 1)",
        )

    def _cancel(self, sql: cursor) -> None:
        """Deletes an order with its items: ON DELETE CASCADE would do it too, but its rows have no row count."""
        sql.execute("SELECT id FROM shop.orders ORDER BY random() LIMIT 1")
        [(order,)] = sql.fetchall()
        self._write(sql, ("order_items", "delete"), "DELETE FROM shop.order_items WHERE order_id = %s", order)
        self._write(sql, ("orders", "delete"), "DELETE FROM shop.orders WHERE id = %s", order)

    def _regret(self, sql: cursor) -> bool:
        self._order(sql)
        self._announce_once(f"ROLLBACK: {sum(self._pending.values())} rows that nobody may see")
        return False

    def _second_thoughts(self, sql: cursor) -> None:
        self._customer(sql)
        kept = self._pending.copy()
        sql.execute("SAVEPOINT thought")
        self._order(sql)
        sql.execute("ROLLBACK TO SAVEPOINT thought")
        self._announce_once("ROLLBACK TO SAVEPOINT: the customer stays, the order goes")
        self._pending = kept
        self._customer(sql)

    def _add_column(self, sql: cursor) -> None:
        """A row in the old shape, and one in the new, in one transaction."""
        self._order(sql)
        sql.execute("ALTER TABLE shop.orders ADD COLUMN coupon text")
        self._has_coupons = True
        self._order(sql)
        self._announce_once("ALTER TABLE shop.orders ADD COLUMN coupon: events have the shape of their time")

    def _write(self, sql: cursor, what: tuple[str, str], statement: str, *parameters: Any) -> None:
        sql.execute(statement, parameters)
        self._pending[what] += sql.rowcount

    def _announce_once(self, text: str) -> None:
        kind = text.partition(":")[0]
        if kind not in self._announced:
            self._announced.add(kind)
            self._announce(text)
