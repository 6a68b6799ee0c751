"""`python -m benchmarks.commits DSN TABLES RATE COUNT`: single-row transactions at a steady rate, over tables in turn.

A process of its own, because the consumer must not wait for the interpreter that writes. Each row has the wall clock at
its COMMIT in it; ids count from 0 over all tables.
"""

from __future__ import annotations

import sys
import time

import psycopg2

from benchmarks.tables import Table


def ticks(tables: int) -> tuple[Table, ...]:
    """The tables that it writes to."""
    return tuple(Table(f"ticks_{at}", "id bigint PRIMARY KEY, at double precision", "") for at in range(tables))


def main(dsn: str, tables: int, rate: int, count: int) -> None:
    """Write; a commit that is late is followed by the next at once."""
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    began = time.monotonic()
    with connection.cursor() as cursor:
        for number in range(count):
            pause = began + number / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            cursor.execute(f"INSERT INTO ticks_{number % tables} VALUES (%s, %s)", (number, time.time()))
    connection.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
