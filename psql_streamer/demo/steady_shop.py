"""What the demo's shops have in common: a thread that writes, and keeps count of what it committed."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Zoë", "José", "Łukasz", "O'Neill", "李明", "Ægir")
CHANNELS = ("web", "app", "store")
STATUSES = ("paid", "packed", "shipped")
TEST_TAG = "test"
"""Customers that have it are none."""

_ORDER_PAUSE_SECONDS = 0.04
"""Between two transactions."""

_NEW_COLUMN_AFTER = 40
"""Transactions before the orders get another column."""

Step: TypeAlias = Callable[[Any], bool | None]
"""Writes with a cursor; False when the transaction is to be rolled back."""

Fate: TypeAlias = Literal["left out", "more by explode", "dead letter"]

EVENTS: Mapping[Fate, int] = {"left out": -1, "more by explode": 1, "dead letter": -1}
"""What each adds to the events of a table, of which there is one for a row otherwise."""


class Fated(NamedTuple):
    """What rules do to rows of a table."""

    table: str
    action: str
    fate: Fate


class SteadyShop(threading.Thread, ABC):
    """Writes one short transaction after the other until `close` is called.

    committed: (table, action) -> rows, as the database counted them, of committed transactions only.
    fates: what the rules are to make of these rows, where it is not one event for each.
    error: what ended it early, if anything did. orders: the table of orders, as statements name it.
    """

    orders: ClassVar[str]

    def __init__(self, announce: Callable[[str], None]) -> None:
        super().__init__(name="shop", daemon=True)
        self.committed: Counter[tuple[str, str]] = Counter()
        self.fates: Counter[Fated] = Counter()
        self.transactions = 0
        self.error: Exception | None = None
        self._announce = announce
        self._announced: set[str] = set()
        self._closing = threading.Event()
        # Seeded, so that two demos tell the same story. S311: nothing here is a secret.
        self._random = random.Random(1)  # noqa: S311
        self._has_coupons = False
        self._pending: Counter[tuple[str, str]] = Counter()
        self._pending_fates: Counter[Fated] = Counter()

    def run(self) -> None:
        try:
            with closing(self._connect()) as session:
                for step in self._list_first_steps():
                    self._run_transaction(session, step)
                steps = self._list_steps()
                while not self._closing.wait(_ORDER_PAUSE_SECONDS):
                    step = steps[self.transactions % len(steps)]
                    if self.transactions >= _NEW_COLUMN_AFTER and not self._has_coupons:
                        step = self._add_column
                    self._run_transaction(session, step)
        except Exception as error:
            self.error = error

    def close(self) -> None:
        """Return when the last transaction is over."""
        self._closing.set()
        if self.ident is not None:
            self.join()

    @abstractmethod
    def _connect(self) -> Any:
        """A connection of the Python Database API, without autocommit."""

    @abstractmethod
    def _list_first_steps(self) -> Sequence[Step]:
        """What is written first."""

    @abstractmethod
    def _list_steps(self) -> Sequence[Step]:
        """What is written again and again."""

    @abstractmethod
    def _order(self, sql: Any) -> bool | None:
        """An order with its items."""

    def _run_transaction(self, session: Any, step: Step) -> None:
        self._pending.clear()
        self._pending_fates.clear()
        with closing(session.cursor()) as sql:
            keep = step(sql)
        if keep is False:
            session.rollback()
        else:
            session.commit()
            self.committed += self._pending
            self.fates += self._pending_fates
        self.transactions += 1

    def _regret(self, sql: Any) -> bool:
        self._order(sql)
        self._announce_once(f"ROLLBACK: {sum(self._pending.values())} rows that nobody may see")
        return False

    def _add_column(self, sql: Any) -> None:
        """A row in the old shape, and one in the new."""
        self._order(sql)
        sql.execute(f"ALTER TABLE {self.orders} ADD COLUMN coupon text")
        self._has_coupons = True
        self._order(sql)
        self._announce_once(f"ALTER TABLE {self.orders} ADD COLUMN coupon: events have the shape of their time")

    def _write(self, sql: Any, what: tuple[str, str], statement: str, *parameters: Any) -> None:
        sql.execute(statement, parameters)
        self._pending[what] += sql.rowcount

    def _announce_once(self, text: str) -> None:
        kind = text.partition(":")[0]
        if kind not in self._announced:
            self._announced.add(kind)
            self._announce(text)
