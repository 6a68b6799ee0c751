"""What mysql-replication reads of a binary log is what the `mysql` source gives of it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.mariadb import Schema
from tests.mysql_source import read_all, seen, streaming

TABLE = """CREATE TABLE t (id INT PRIMARY KEY, small TINYINT, large BIGINT UNSIGNED, exact DECIMAL(12,3), about DOUBLE,
    note VARCHAR(60), more TEXT, day DATE, at DATETIME(6), bytes BLOB) CHARACTER SET utf8mb4"""

VALUES = (
    ("NULL", "-128", "127"),
    ("0", "1", str(2**63), str(2**64 - 1)),
    ("NULL", "-0.001", "999999999.999", "12.5"),
    ("NULL", "0.1", "-1e300", "3"),
    ("NULL", "''", "'Zoë ''q'''", "'李明'"),
    ("NULL", "REPEAT('tea ', 200)"),
    ("NULL", "'2026-01-31'", "'1000-01-01'"),
    ("NULL", "'2026-01-31 10:00:00.000001'", "'9999-12-31 23:59:59.999999'"),
    ("NULL", "x'00ff5c'"),
)

Row = Mapping[str, Any] | None
Change = tuple[str, Row, Row]


def statements(chance: random.Random) -> list[str]:
    """Changes of rows, of several at once too."""
    found = []
    for first in range(0, 300, 3):
        rows = [f"({row}, {', '.join(map(chance.choice, VALUES))})" for row in range(first, first + 3)]
        found += [
            f"INSERT INTO t VALUES {', '.join(rows)}",
            f"UPDATE t SET note = 'changed', exact = exact - 1 WHERE id = {chance.randrange(300)}",
            f"UPDATE t SET id = id + 1000, more = NULL WHERE id = {chance.randrange(300)}",
            f"DELETE FROM t WHERE id % 50 = {chance.randrange(50)}",
        ]
    return found


def as_texts(row: Row) -> Row:
    """Values in the text forms of PostgreSQL's like types; floats as they are."""
    return row and {name: _as_text(value) for name, value in row.items()}


def _as_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return value if value is None or isinstance(value, float) else str(value)


def with_floats(row: Row) -> Row:
    return row and {name: float(text) if name == "about" and text else text for name, text in row.items()}


def read_as_others_do(schema: Schema, begin: tuple[str, int], count: int) -> list[Change]:
    """So many changes behind a place in the log, or a few more."""
    stream = BinLogStreamReader(
        {"host": schema.host, "port": schema.port, "user": "root", "password": ""},
        server_id=4711,
        log_file=begin[0],
        log_pos=begin[1],
        resume_stream=True,
        blocking=True,
        only_schemas=[schema.name],
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        is_mariadb=not schema.on_mysql,
    )
    found: list[Change] = []
    while len(found) < count:
        event = stream.fetchone()
        for row in event.rows:
            match event:
                case WriteRowsEvent():
                    found.append(("I", None, as_texts(row["values"])))
                case UpdateRowsEvent():
                    found.append(("U", as_texts(row["before_values"]), as_texts(row["after_values"])))
                case DeleteRowsEvent():
                    found.append(("D", as_texts(row["values"]), None))
    stream.close()
    return found


# mysql-replication asks PyMySQL by an older name of an option.
@pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning")
@pytest.mark.behaviour("B1")
def test_a_binary_log_is_what_another_reader_says(every_schema: Schema) -> None:
    every_schema.execute(TABLE)
    ask = "SHOW BINARY LOG STATUS" if every_schema.on_mysql else "SHOW MASTER STATUS"
    [(file, position, *_)] = every_schema.query(ask)
    with streaming(every_schema) as source:
        every_schema.execute(*statements(random.Random(7)))
        changes = seen(read_all(source, every_schema))
    found = [(one.op, with_floats(one.before), with_floats(one.after)) for one in changes]
    assert len(found) > 400
    assert found == read_as_others_do(every_schema, (file, position), len(found))
