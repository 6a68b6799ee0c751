"""The shop on other databases than PostgreSQL: MariaDB (its binary log is read) and SQLite (it is polled)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from psql_streamer.demo.steady_shop import CHANNELS, NAMES, STATUSES, SteadyShop, Step

TABLES = ("customers", "orders", "order_items")

_GOODS = (("tea", 420), ("mug", 1200), ("kettle", 5990), ("samovar", 34900), ("spoon", 95))


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


class SmallShop(SteadyShop):
    """See SteadyShop.

    connect: to the database. mark: what stands for a parameter in its statements. changes: whether rows are changed
    and deleted, too.
    """

    orders = "orders"

    def __init__(
        self, connect: Callable[[], Connection], mark: str, changes: bool, announce: Callable[[str], None]
    ) -> None:
        super().__init__(announce)
        self._open = connect
        self._mark = mark
        self._changes = changes

    def _connect(self) -> Connection:
        return self._open()

    def _list_first_steps(self) -> Sequence[Step]:
        return [self._customer]

    def _list_steps(self) -> Sequence[Step]:
        steps: list[Step] = [self._order, self._customer, self._order, self._regret]
        return [*steps, self._advance, self._order, self._cancel] if self._changes else steps

    def _customer(self, sql: Cursor) -> None:
        name = f"{self._random.choice(NAMES)} {self._random.randrange(1000)}"
        self._insert(sql, "customers", name=name, since="2026-11-22")

    def _order(self, sql: Cursor) -> None:
        lines = [(*self._random.choice(_GOODS), self._random.randint(1, 4)) for _ in range(self._random.randint(1, 3))]
        cents = sum(price * quantity for _, price, quantity in lines)
        meta = json.dumps({"channel": self._random.choice(CHANNELS)})
        coupon = {"coupon": f"TEA{self._random.randrange(100)}"} if self._has_coupons else {}
        self._insert(sql, "orders", customer_id=1, status="new", amount=_render_decimal(cents), meta=meta, **coupon)
        order = sql.lastrowid
        for number, (sku, price, quantity) in enumerate(lines, 1):
            values = {"sku": sku, "quantity": quantity, "price": _render_decimal(price)}
            self._insert(sql, "order_items", order_id=order, line=number, **values)

    def _advance(self, sql: Cursor) -> None:
        status = self._random.choice(STATUSES)
        self._write(sql, ("orders", "update"), "UPDATE orders SET status = ? ORDER BY rand() LIMIT 3", status)

    def _cancel(self, sql: Cursor) -> None:
        latest = "(SELECT * FROM (SELECT max(id) FROM orders) AS latest)"
        self._write(sql, ("order_items", "delete"), f"DELETE FROM order_items WHERE order_id = {latest}")  # noqa: S608
        self._write(sql, ("orders", "delete"), f"DELETE FROM orders WHERE id = {latest}")  # noqa: S608  # no value

    def _insert(self, sql: Cursor, table: str, **values: Any) -> None:
        statement = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"  # noqa: S608
        self._write(sql, (table, "insert"), statement, *values.values())

    def _write(self, sql: Cursor, what: tuple[str, str], statement: str, *parameters: Any) -> None:
        super()._write(sql, what, statement.replace("?", self._mark), *parameters)


def _render_decimal(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"
