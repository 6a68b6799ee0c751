"""What a server says while the service connects does not come into the log past its format."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from sources.postgres import replication
from sources.postgres.catalog import Catalog
from sources.postgres.snapshot.copying import connect_reader
from tests.database import Database

CONNECT: dict[str, Callable[[str], None]] = {
    "questions": lambda dsn: Catalog(dsn, 2.0)._connect().close(),
    "the stream": lambda dsn: replication.connect(dsn, 2.0, "test").close(),
    "a snapshot": lambda dsn: connect_reader(dsn, 2.0).close(),
}


@pytest.mark.parametrize("session", CONNECT)
def test_libpq_writes_nothing_of_a_chatty_database_to_stderr(
    database: Database, capfd: pytest.CaptureFixture[str], session: str
) -> None:
    database.execute(f"ALTER DATABASE {database.name} SET client_min_messages = debug5")
    CONNECT[session](database.dsn)
    assert capfd.readouterr().err == ""


def test_warnings_of_a_session_that_is_open_still_come(database: Database) -> None:
    with closing(replication.connect(database.dsn, 2.0, "test")) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW client_min_messages")
        assert cursor.fetchone() == ("warning",)
