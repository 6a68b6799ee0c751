"""What a server says while the service connects does not come into the log past its format."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from sqlalchemy.engine import make_url

from sources.postgres import replication
from sources.postgres.catalog import Catalog
from sources.postgres.snapshot.copying import connect_reader
from sources.sql.database import Database as Polled
from tests.database import Database
from tests.sql_sources import url_of

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


def test_a_source_that_polls_is_sent_nothing_below_a_warning(database: Database) -> None:
    database.execute(f"ALTER DATABASE {database.name} SET client_min_messages = debug5")
    polled = Polled(make_url(url_of(database)), 2.0, 1.0)
    shown = polled.look(lambda opened: opened.exec_driver_sql("SHOW client_min_messages").scalar(), "asking")
    polled.close()
    assert shown == "warning"
