"""A small shop that keeps writing, and keeps count of what it committed: the demo's oracle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence

import psycopg2
from psycopg2.extensions import connection, cursor

from psql_streamer.demo.steady_shop import CHANNELS, NAMES, STATUSES, TEST_TAG, Fate, Fated, SteadyShop, Step

SCHEMA = "shop"
TABLES = ("customers", "orders", "order_items", "baskets")
PUBLICATION = "shop"

_DDL = """
CREATE SCHEMA shop;
CREATE TYPE shop.segment AS ENUM ('private', 'business', 'reseller');
CREATE TABLE shop.customers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    email text NOT NULL,
    phone text NOT NULL,
    note text,
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
CREATE TABLE shop.baskets (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    contents jsonb NOT NULL
);
ALTER TABLE shop.baskets REPLICA IDENTITY FULL;
CREATE PUBLICATION shop FOR TABLES IN SCHEMA shop;
"""
_DDL_BEFORE_15 = f"CREATE PUBLICATION shop FOR TABLE {', '.join(f'shop.{table}' for table in TABLES)};"

_ROWS_BEFORE = """
INSERT INTO shop.customers (name, email, phone, segment)
    SELECT 'Customer ' || i, 'customer' || i || '@example.org', '555 01' || lpad(i::text, 3, '0'),
        (ARRAY['private', 'business', 'reseller'])[1 + i % 3]::shop.segment
    FROM generate_series(1, 200) i;
INSERT INTO shop.orders (customer_id, status, amount, meta)
    SELECT 1 + i % 200, 'shipped', 8.40, jsonb_build_object('channel', (ARRAY['web', 'app', 'store'])[1 + i % 3])
    FROM generate_series(1, 1000) i;
INSERT INTO shop.order_items SELECT i, line, 'tea', 1, 4.20 FROM generate_series(1, 1000) i, generate_series(1, 2) line;
"""

_SEGMENTS = ("private", "business", "reseller")
_GOODS = (("tea", "4.20"), ("mug", "12.00"), ("kettle", "59.90"), ("samovar", "349.00"), ("spoon", "0.95"))

# Customers change one behind the other: a function runs once for each state of a lookup that rows of a batch see.
_CYCLE = (
    "order", "basket", "advance", "order", "order", "advance", "regret", "order", "advance", "order", "basket",
    "cancel", "reprice", "order", "customer", "test_customer", "second_thoughts", "rename",
)  # fmt: skip
_STEPS = (*_CYCLE, "torn_basket", *_CYCLE, *_CYCLE)


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


class Shop(SteadyShop):
    """On PostgreSQL, see SteadyShop.

    there: the rows that were there; `committed` begins with them. has_rules: whether all tables have rules.
    """

    orders = "shop.orders"

    def __init__(
        self, dsn: str, announce: Callable[[str], None], there: Counter[tuple[str, str]], has_rules: bool = True
    ) -> None:
        super().__init__(announce)
        self.committed += there
        self._dsn = dsn
        self._has_rules = has_rules

    def _connect(self) -> connection:
        return psycopg2.connect(self._dsn)

    def _list_first_steps(self) -> Sequence[Step]:
        return [self._customer] * 3

    def _list_steps(self) -> Sequence[Step]:
        steps = _STEPS if self._has_rules else _CYCLE
        return [getattr(self, f"_{step}") for step in steps]

    def _customer(self, sql: cursor) -> None:
        self._insert_customer(sql, *self._random.sample(["vip", "new", "it's late", 'says "hi"', ""], 2))

    def _test_customer(self, sql: cursor) -> None:
        self._insert_customer(sql, TEST_TAG)
        self._note_fate("customers", "left out")

    def _insert_customer(self, sql: cursor, *tags: str) -> None:
        number = self._random.randrange(1000)
        self._write(
            sql,
            ("customers", "insert"),
            "INSERT INTO shop.customers (name, email, phone, note, segment, tags) VALUES (%s, %s, %s, %s, %s, %s)",
            f"{self._random.choice(NAMES)} {number}",
            f"customer{number}@example.org",
            f"555 02{number:03d}",
            "calls often",
            self._random.choice(_SEGMENTS),
            list(tags),
        )

    def _basket(self, sql: cursor) -> None:
        skus = [sku for sku, _ in self._random.sample(_GOODS, self._random.randint(1, 3))]
        self._insert_basket(sql, [{"sku": sku, "quantity": self._random.randint(1, 4)} for sku in skus])
        self._note_fate("baskets", "more by explode", len(skus) - 1)

    def _torn_basket(self, sql: cursor) -> None:
        self._insert_basket(sql, [{"sku": "tea", "quantity": "a handful"}])
        self._note_fate("baskets", "dead letter")
        self._announce_once("INSERT INTO shop.baskets: a quantity that is no number, which its rule cannot take")

    def _insert_basket(self, sql: cursor, contents: object) -> None:
        statement = "INSERT INTO shop.baskets (contents) VALUES (%s)"
        self._write(sql, ("baskets", "insert"), statement, json.dumps(contents))

    def _note_fate(self, table: str, fate: Fate, times: int = 1) -> None:
        """What the rules are to make of rows that were inserted."""
        if self._has_rules:
            self._pending_fates[Fated(table, "insert", fate)] += times

    def _order(self, sql: cursor) -> None:
        lines = [(*self._random.choice(_GOODS), self._random.randint(1, 4)) for _ in range(self._random.randint(1, 3))]
        columns, extra = ("", ()) if not self._has_coupons else (", coupon", (f"TEA{self._random.randrange(100)}",))
        self._write(
            sql,
            ("orders", "insert"),
            f"INSERT INTO shop.orders (customer_id, amount, meta{columns})"  # noqa: S608  # a column's name, ours
            f" SELECT id, 0, %s{', %s' * len(extra)} FROM shop.customers ORDER BY random() LIMIT 1 RETURNING id",
            json.dumps({"channel": self._random.choice(CHANNELS), "gift": self._random.random() < 0.2}),
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
            self._random.choice(STATUSES),
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
            " WHERE id = (SELECT id FROM shop.customers WHERE NOT %s = ANY (tags) ORDER BY random() LIMIT 1)",
            TEST_TAG,
        )

    def _cancel(self, sql: cursor) -> None:
        """Deletes an order with its items: ON DELETE CASCADE would do it too, but its rows have no row count."""
        sql.execute("SELECT id FROM shop.orders ORDER BY random() LIMIT 1")
        [(order,)] = sql.fetchall()
        self._write(sql, ("order_items", "delete"), "DELETE FROM shop.order_items WHERE order_id = %s", order)
        self._write(sql, ("orders", "delete"), "DELETE FROM shop.orders WHERE id = %s", order)

    def _second_thoughts(self, sql: cursor) -> None:
        self._customer(sql)
        kept = self._pending.copy()
        sql.execute("SAVEPOINT thought")
        self._order(sql)
        sql.execute("ROLLBACK TO SAVEPOINT thought")
        self._announce_once("ROLLBACK TO SAVEPOINT: the customer stays, the order goes")
        self._pending = kept
        self._customer(sql)
