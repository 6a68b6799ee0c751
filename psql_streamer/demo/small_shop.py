"""The shop on other databases than PostgreSQL: MariaDB (its binary log is read) and SQLite (it is polled)."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any, Protocol

TABLES = ("customers", "orders", "order_items")

_PAUSE_SECONDS = 0.04
"""Between two transactions."""

_NEW_COLUMN_AFTER = 40
"""Transactions before the orders get another column."""

_NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Zoë", "José", "Łukasz", "O'Neill", "李明", "Ægir")
_GOODS = (("tea", 420), ("mug", 1200), ("kettle", 5990), ("samovar", 34900), ("spoon", 95))
_CHANNELS = ("web", "app", "store")


class Cursor(Protocol):
    """What the shop needs of a cursor of the Python Database API."""

    @property
    def rowcount(self) -> int: ...
    @property
    def lastrowid(self) -> int | None: ...

    def execute(self, statement: str, parameters: Any = ..., /) -> object: ...


class Connection(Protocol):
    """The same of a connection."""

    def cursor(self) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


MARIADB_TABLES = """
CREATE TABLE customers (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(100) NOT NULL, since DATE);
CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, customer_id BIGINT NOT NULL, status VARCHAR(20) NOT NULL,
    amount DECIMAL(12,2) NOT NULL, placed_at TIMESTAMP(6) NOT NULL DEFAULT current_timestamp(6), meta JSON NOT NULL);
CREATE TABLE order_items (order_id BIGINT, line SMALLINT, sku VARCHAR(20) NOT NULL, quantity INT NOT NULL,
    price DECIMAL(10,2) NOT NULL, PRIMARY KEY (order_id, line));
"""

SQLITE_TABLES = """
CREATE TABLE customers (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, since DATE);
CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, customer_id INTEGER NOT NULL, status TEXT NOT NULL,
    amount DECIMAL(12,2) NOT NULL, placed_at TIMESTAMP NOT NULL DEFAULT current_timestamp, meta TEXT NOT NULL);
CREATE TABLE order_items (id INTEGER PRIMARY KEY AUTOINCREMENT, order_id INTEGER NOT NULL, line INTEGER NOT NULL,
    sku TEXT NOT NULL, quantity INTEGER NOT NULL, price DECIMAL(10,2) NOT NULL);
"""


class SmallShop(threading.Thread):
    """Writes one short transaction after the other until `close` is called.

    connect: to the database. mark: what stands for a parameter in its statements. changes: whether rows are changed
    and deleted, too. committed: (table, action) -> rows of committed transactions. error: what ended it early.
    """

    def __init__(
        self, connect: Callable[[], Connection], mark: str, changes: bool, announce: Callable[[str], None]
    ) -> None:
        super().__init__(name="shop", daemon=True)
        self.committed: Counter[tuple[str, str]] = Counter()
        self.transactions = 0
        self.error: Exception | None = None
        self._connect = connect
        self._mark = mark
        self._announce = announce
        self._announced: set[str] = set()
        self._closing = threading.Event()
        # Seeded, so that two demos tell the same story. S311: nothing here is a secret.
        self._random = random.Random(1)  # noqa: S311
        self._has_coupons = False
        self._steps = [self._order, self._customer, self._order, self._regret]
        if changes:
            self._steps += [self._advance, self._order, self._cancel]
        self._pending: Counter[tuple[str, str]] = Counter()

    def run(self) -> None:
        try:
            with closing(self._connect()) as session:
                self._transaction(session, self._customer)
                while not self._closing.wait(_PAUSE_SECONDS):
                    step = self._steps[self.transactions % len(self._steps)]
                    if self.transactions >= _NEW_COLUMN_AFTER and not self._has_coupons:
                        step = self._add_column
                    self._transaction(session, step)
        except Exception as error:
            self.error = error

    def close(self) -> None:
        """Return when the last transaction is over."""
        self._closing.set()
        if self.ident is not None:
            self.join()

    def _transaction(self, session: Connection, step: Callable[[Cursor], bool]) -> None:
        self._pending.clear()
        with closing(session.cursor()) as sql:
            keep = step(sql)
        if keep:
            session.commit()
            self.committed += self._pending
        else:
            session.rollback()
        self.transactions += 1

    def _customer(self, sql: Cursor) -> bool:
        name = f"{self._random.choice(_NAMES)} {self._random.randrange(1000)}"
        self._insert(sql, "customers", name=name, since="2026-11-22")
        return True

    def _order(self, sql: Cursor) -> bool:
        lines = [(*self._random.choice(_GOODS), self._random.randint(1, 4)) for _ in range(self._random.randint(1, 3))]
        cents = sum(price * quantity for _, price, quantity in lines)
        meta = json.dumps({"channel": self._random.choice(_CHANNELS)})
        coupon = {"coupon": f"TEA{self._random.randrange(100)}"} if self._has_coupons else {}
        self._insert(sql, "orders", customer_id=1, status="new", amount=_decimal(cents), meta=meta, **coupon)
        order = sql.lastrowid
        for number, (sku, price, quantity) in enumerate(lines, 1):
            values = {"sku": sku, "quantity": quantity, "price": _decimal(price)}
            self._insert(sql, "order_items", order_id=order, line=number, **values)
        return True

    def _advance(self, sql: Cursor) -> bool:
        status = self._random.choice(("paid", "packed", "shipped"))
        self._write(sql, ("orders", "update"), "UPDATE orders SET status = ? ORDER BY rand() LIMIT 3", status)
        return True

    def _cancel(self, sql: Cursor) -> bool:
        latest = "(SELECT * FROM (SELECT max(id) FROM orders) AS latest)"
        self._write(sql, ("order_items", "delete"), f"DELETE FROM order_items WHERE order_id = {latest}")  # noqa: S608
        self._write(sql, ("orders", "delete"), f"DELETE FROM orders WHERE id = {latest}")  # noqa: S608  # no value
        return True

    def _regret(self, sql: Cursor) -> bool:
        self._order(sql)
        self._announce_once(f"ROLLBACK: {sum(self._pending.values())} rows that nobody may see")
        return False

    def _add_column(self, sql: Cursor) -> bool:
        self._order(sql)
        sql.execute("ALTER TABLE orders ADD COLUMN coupon TEXT")
        self._has_coupons = True
        self._order(sql)
        self._announce_once("ALTER TABLE orders ADD COLUMN coupon: events have the shape of their time")
        return True

    def _insert(self, sql: Cursor, table: str, **values: Any) -> None:
        statement = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"  # noqa: S608
        self._write(sql, (table, "insert"), statement, *values.values())

    def _write(self, sql: Cursor, what: tuple[str, str], statement: str, *parameters: Any) -> None:
        sql.execute(statement.replace("?", self._mark), parameters)
        self._pending[what] += sql.rowcount

    def _announce_once(self, text: str) -> None:
        kind = text.partition(":")[0]
        if kind not in self._announced:
            self._announced.add(kind)
            self._announce(text)


def _decimal(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"
