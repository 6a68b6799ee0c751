"""`python -m benchmarks.changes DSN TABLES ROWS RATE`: changes of rows at a steady rate, until it is ended.

A process of its own, because the consumer must not wait for the interpreter that writes. A transaction updates rows of
the tables, and inserts one into the table of `ticks` with the wall clock just before its COMMIT.
"""

from __future__ import annotations

import random
import sys
import time

import psycopg2

CHANGES_A_TRANSACTION = 10
"""The last of them is a tick."""

_UPDATE = "UPDATE {table} SET note = 'changed in {number}', amount = amount + 1 WHERE id = {id};"
_TICK = "INSERT INTO ticks_0 VALUES ({number}, extract(epoch FROM clock_timestamp()))"


def main(dsn: str, prefix: str, tables: int, rows: int, rate: int) -> None:
    """Write; a transaction that is late is followed by the next at once. rows: of each table, ids from 1."""
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    chance, began, number = random.Random(1), time.monotonic(), 0
    with connection.cursor() as cursor:
        while True:
            pause = began + number * CHANGES_A_TRANSACTION / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            # Tables in one order: two transactions of others would not wait for each other, either.
            cursor.execute("".join(_statements(chance, prefix, tables, rows, number)))
            number += 1


def _statements(chance: random.Random, prefix: str, tables: int, rows: int, number: int) -> list[str]:
    """Several statements of one query are one transaction (PostgreSQL documentation, "Multiple Statements in a
    Simple Query")."""
    updates = [
        _UPDATE.format(table=f"{prefix}{chance.randrange(tables)}", number=number, id=chance.randint(1, rows))
        for _ in range(CHANGES_A_TRANSACTION - 1)
    ]
    return [*updates, _TICK.format(number=number)]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
