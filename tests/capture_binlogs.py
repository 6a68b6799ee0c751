"""Captures binlogs of real servers into tests/data/binlog: what the server wrote, and what SELECT of it shows.

    python -m tests.capture_binlogs mysql /tmp/mysql.sock /var/lib/mysql
    python -m tests.capture_binlogs mariadb /tmp/mariadb.sock /var/lib/mariadb

The server runs with --log-bin=bin --binlog-row-metadata=FULL, MySQL with --gtid-mode=ON and
--enforce-gtid-consistency=ON; the client is root without a password. Its binlogs are deleted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql  # type: ignore[import-untyped, import-not-found, unused-ignore]

from tests.binlog_files import FOLDER
from tests.binlog_types import COLUMNS, Typed

MARIADB = "mariadb"

START = ["DROP DATABASE IF EXISTS a", "CREATE DATABASE a CHARACTER SET utf8mb4", "USE a"]

OTHER = "other: "
"""In front of a statement of the second session."""

SMALL = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), n INT, b TEXT)"

ROWS = [
    (
        "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT UNSIGNED, d DECIMAL(12,2), at DATETIME(3), s VARCHAR(40), "
        "u VARCHAR(200), x TINYINT)"
    ),
    (
        "INSERT INTO t VALUES (1, 18446744073709551615, -12.34, '2026-01-02 03:04:05.678', 'héllo', '', NULL), "
        "(2, NULL, 0.05, NULL, NULL, 'x', -128)"
    ),
    "UPDATE t SET s = 'new', d = -0.5 WHERE id = 1",
    "DELETE FROM t WHERE id = 2",
    "TRUNCATE TABLE t",
]

XA = [
    SMALL,
    "XA START 'one','b',7",
    "INSERT INTO t (id, v) VALUES (1, 'one')",
    "INSERT INTO t (id, v) VALUES (2, 'one')",
    "XA END 'one','b',7",
    "XA PREPARE 'one','b',7",
    "other: INSERT INTO t (id, v) VALUES (3, 'between')",
    "other: XA START 'two'",
    "other: INSERT INTO t (id, v) VALUES (4, 'two')",
    "other: XA END 'two'",
    "other: XA PREPARE 'two'",
    "XA COMMIT 'one','b',7",
    "other: XA ROLLBACK 'two'",
    "XA START 'three'",
    "INSERT INTO t (id, v) VALUES (5, 'three')",
    "XA END 'three'",
    "XA COMMIT 'three' ONE PHASE",
    "INSERT INTO t (id, v) VALUES (6, 'six')",
]

SHAPES = [
    SMALL,
    "INSERT INTO t VALUES (1, 'one', 1, NULL)",
    "ALTER TABLE t ADD COLUMN late DATE",
    "INSERT INTO t VALUES (2, 'two', 2, NULL, '2026-11-22')",
    "ALTER TABLE t DROP COLUMN late",
    "BEGIN",
    "INSERT INTO t VALUES (3, 'three', 3, NULL)",
    "SAVEPOINT s",
    "INSERT INTO t VALUES (4, 'four', 4, NULL)",
    "ROLLBACK TO s",
    "INSERT INTO t VALUES (5, 'five', 5, NULL)",
    "COMMIT",
    "BEGIN",
    "INSERT INTO t VALUES (6, 'six', 6, NULL)",
    "ROLLBACK",
    "RENAME TABLE t TO r",
    "UPDATE r SET n = n + 10",
    "/* a comment */ TRUNCATE `a`.`r`",
    "CREATE TABLE c AS SELECT 1 AS one, 'x' AS two",
    "CREATE TABLE m (id INT) ENGINE=MyISAM",
    "INSERT INTO m VALUES (1), (2)",
    "ANALYZE TABLE c",
    "DROP TABLE r",
]

IMAGES = [
    SMALL,
    "SET binlog_row_image=MINIMAL",
    "INSERT INTO t (id, v) VALUES (1, NULL)",
    "UPDATE t SET n = NULL, b = 'x' WHERE id = 1",
    "DELETE FROM t WHERE id = 1",
    "SET binlog_row_image=NOBLOB",
    "INSERT INTO t (id, v, b) VALUES (2, 'two', 'blob')",
    "UPDATE t SET v = 'zwei' WHERE id = 2",
    "UPDATE t SET b = 'text' WHERE id = 2",
    "DELETE FROM t WHERE id = 2",
]

NO_COLUMNS = [
    "CREATE TABLE e (a INT DEFAULT 5, b INT)",
    "SET binlog_row_image=MINIMAL",
    "INSERT INTO e () VALUES ()",
    "INSERT INTO e (b) VALUES (1)",
]

COMPRESSED = [
    SMALL,
    "SET {compress}",
    "INSERT INTO t (id, v, b) VALUES (1, 'one', REPEAT('long ', 300)), (2, NULL, REPEAT('text ', 300))",
    "UPDATE t SET b = REPEAT('new ', 300)",
    "DELETE FROM t",
]

STATEMENTS = [
    SMALL,
    "INSERT INTO t (id) VALUES (1)",
    "SET binlog_format=STATEMENT",
    "UPDATE t SET v = 'secret'",
]

PARTIAL_JSON = [
    "CREATE TABLE j (id INT PRIMARY KEY, doc JSON)",
    'INSERT INTO j VALUES (1, \'{"a": 1, "long": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}\')',
    "SET binlog_row_value_options=PARTIAL_JSON, binlog_row_image=MINIMAL",
    "UPDATE j SET doc = JSON_SET(doc, '$.a', 2)",
]

UNNAMED = ["SET GLOBAL binlog_row_metadata={minimal}", SMALL, "INSERT INTO t (id) VALUES (1)"]

TAGGED = [
    SMALL,
    "INSERT INTO t (id) VALUES (1)",
    "SET gtid_next='AUTOMATIC:orders'",
    "INSERT INTO t (id) VALUES (2)",
    "SET gtid_next='AUTOMATIC:orders'",
    "INSERT INTO t (id) VALUES (3)",
    "SET gtid_next='AUTOMATIC'",
    "INSERT INTO t (id) VALUES (4)",
]

ANONYMOUS = [
    "SET GLOBAL gtid_mode=ON_PERMISSIVE",
    "SET GLOBAL gtid_mode=OFF_PERMISSIVE",
    SMALL,
    "INSERT INTO t (id) VALUES (1), (2)",
    "BEGIN",
    "INSERT INTO t (id) VALUES (3)",
    "UPDATE t SET n = 1",
    "COMMIT",
]

OLD_TIMES = [
    "SET GLOBAL mysql56_temporal_format=OFF",
    "SET sql_mode='', time_zone='+03:00'",
    "CREATE TABLE o (id INT, d DATETIME, s TIMESTAMP NULL, t TIME, v VARCHAR(3))",
    (
        "INSERT INTO o VALUES (1, '2026-11-22 23:59:58', '2026-11-22 23:59:58', '-838:59:59', 'e'), "
        "(2, '0000-00-00', '0000-00-00', '00:00:01', 'f'), (3, '9999-12-31 23:59:59', NULL, '838:59:59', 'g')"
    ),
]

SCENARIOS = {
    "rows": ROWS,
    "xa": XA,
    "shapes": SHAPES,
    "images": IMAGES,
    "no_columns": NO_COLUMNS,
    "compressed": COMPRESSED,
    "statements": STATEMENTS,
    "unnamed": UNNAMED,
}
OF_MARIADB = {"old_times": OLD_TIMES}
OF_MYSQL = {"partial_json": PARTIAL_JSON, "tagged": TAGGED, "anonymous": ANONYMOUS}

WORDS = {
    "mysql": {"compress": "binlog_transaction_compression=ON", "minimal": "MINIMAL"},
    MARIADB: {"compress": "GLOBAL log_bin_compress=ON", "minimal": "NO_LOG"},
}


_REST = "made INT AS (id * 2) STORED, PRIMARY KEY (id)"


class Server:
    """A running server, and the folder of its binlogs."""

    def __init__(self, flavor: str, socket: str, folder: Path) -> None:
        self.flavor = flavor
        self._folder = folder
        self._socket = socket

    def connect(self) -> Any:
        """A cursor of a session of its own."""
        return pymysql.connect(unix_socket=self._socket, user="root", autocommit=True, charset="utf8mb4").cursor()

    def capture(self, name: str, statements: list[str]) -> None:
        """Run them in two sessions, and keep the binlog that they fill."""
        sessions = {"": self.connect(), "other": self.connect()}
        for session in sessions.values():
            for statement in START if session is sessions[""] else START[-1:]:
                session.execute(statement)
        reset = "RESET MASTER" if self.flavor == MARIADB else "RESET BINARY LOGS AND GTIDS"
        for statement in self._with_reset(statements, reset):
            words = statement.removeprefix(OTHER)
            for name_of_word, word in WORDS[self.flavor].items():
                words = words.replace("{" + name_of_word + "}", word)
            sessions["" if not statement.startswith(OTHER) else "other"].execute(words)
        self._reset(sessions[""])
        (FOLDER / f"{self.flavor}_{name}.bin").write_bytes((self._folder / "bin.000001").read_bytes())

    def _with_reset(self, statements: list[str], reset: str) -> Iterator[str]:
        """Settings of the server come first: another gtid_mode begins another file."""
        settings = [statement for statement in statements if statement.startswith("SET GLOBAL")]
        yield from settings
        yield reset
        yield from (statement for statement in statements if statement not in settings)

    def _reset(self, session: Any) -> None:
        session.execute("SET GLOBAL binlog_row_metadata=FULL")
        if self.flavor == MARIADB:
            session.execute("SET GLOBAL log_bin_compress=OFF")
            session.execute("SET GLOBAL mysql56_temporal_format=ON")
        else:
            session.execute("SET GLOBAL gtid_mode=ON_PERMISSIVE")
            session.execute("SET GLOBAL gtid_mode=ON")
        session.execute("FLUSH LOGS")

    def capture_types(self) -> None:
        """Three rows of all types, and their text forms as the server makes them."""
        columns = [column for column in COLUMNS if column.only in ("", self.flavor)]
        declared = ", ".join(f"{column.name} {column.type}" for column in columns)
        names = ", ".join(column.name for column in columns)
        rows = (", ".join(column.values[row] for column in columns) for row in range(3))
        self.capture(
            "types",
            [
                "SET time_zone='+03:00', sql_mode=''",
                f"CREATE TABLE types ({declared}, hidden INT INVISIBLE DEFAULT 5, {_REST})",
                *(f"INSERT INTO types ({names}) VALUES ({row})" for row in rows),
            ],
        )
        shown = {column.name: self._show(column) for column in columns}
        path = FOLDER / f"{self.flavor}_types.json"
        path.write_text(json.dumps(shown, ensure_ascii=False, indent=1) + "\n")

    def _show(self, column: Typed) -> list[str | None]:
        session = self.connect()
        session.execute("SET time_zone='+03:00'")
        session.execute(f"SELECT {column.shown(self.flavor)} FROM a.types ORDER BY id")
        return [None if value is None else str(value) for (value,) in session.fetchall()]


def main() -> None:
    """The captures of one server."""
    flavor, socket, folder = sys.argv[1:]
    server = Server(flavor, socket, Path(folder))
    for name, statements in (SCENARIOS | (OF_MARIADB if flavor == MARIADB else OF_MYSQL)).items():
        server.capture(name, statements)
    server.capture_types()


if __name__ == "__main__":
    main()
