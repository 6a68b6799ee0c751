"""The options of a `sql` source: what is refused, in which words, and what is never shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.config import load
from psql_streamer.errors import ConfigError
from sources.sql.names import TableName
from sources.sql.options import SqlOptions
from tests.config_files import written

SECTION = """
lmdb = "/tmp/positions"
[source.shop]
type = "sql"
{}
[sink.log]
type = "stub_log"
sources = ["shop"]
"""


def problems(folder: Path, section: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(written(folder, SECTION.format(section)), {})
    return str(caught.value)


def options(**given: Any) -> SqlOptions:
    section = {"type": "sql", "url": "sqlite:////tmp/shop.sqlite", "tables": ["orders"]}
    return SqlOptions.model_validate(section | given)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("no url", "is not an SQLAlchemy URL: write dialect+driver://"),
        (
            "postgresql+psycopg2://me:hunter2@home@host/shop",
            "has an @ in its user or password, which must be written %40",
        ),
        ("postgresql+psycopg2://me:hunter2@ho/me@host/shop", "has an @ in its user or password"),
        ("postgresql://me:hunter2@host/shop", "pip install psycopg[binary], or write postgresql+psycopg2://"),
        ("sqlite://", "is a SQLite database in memory"),
        ("sqlite:///:memory:", "is a SQLite database in memory"),
        (
            "nothing://me:hunter2@host/shop",
            "names a dialect that SQLAlchemy does not know: nothing; install the package",
        ),
        ("clickhouse://me:hunter2@host/shop", "does not know: clickhouse; pip install clickhouse-sqlalchemy"),
        ("db2+ibm_db://me:hunter2@host/shop", "does not know: db2+ibm_db; pip install ibm_db_sa"),
        ("oracle+oracledb://me:hunter2@host/shop", "needs a driver that is not installed: pip install oracledb"),
        ("mysql+mysqldb://me:hunter2@host/shop", "needs a driver that is not installed: pip install mysqlclient"),
        ("mssql+pyodbc://me:hunter2@host/shop", "needs a driver that is not installed: pip install pyodbc"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(tmp_path: Path, url: str, problem: str) -> None:
    found = problems(tmp_path, f'url = "{url}"\ntables = ["orders"]')
    assert "source.shop.url" in found
    assert problem in found
    assert "hunter2" not in found


def test_an_asynchronous_driver_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", sys)
    assert "asynchronous driver" in problems(tmp_path, 'url = "postgresql+asyncpg://h/d"\ntables = ["orders"]')


def test_the_password_is_not_shown() -> None:
    made = options(url="postgresql+psycopg2://me:hunter2@host/shop")
    assert "hunter2" not in repr(made)
    assert made.engine_url.password == "hunter2"


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ("[]", "must not be empty"),
        ('["a", "a"]', "names a twice"),
        ('[{ key = "id" }]', "must have a table or a query"),
        ('[{ table = "a", query = "SELECT 1" }]', "must have a table or a query"),
        ('[{ query = "SELECT 1" }]', "needs a name, for its events, and a key"),
        ('[{ table = "a", name = "b" }]', "has a name, which only a query needs"),
        ('["a..b"]', 'has no name of a table in "a..b"'),
        ('[{ table = "a", keys = "id" }]', "unknown key keys; did you mean key?"),
    ],
)
def test_an_entry_that_cannot_be_read_is_refused(tmp_path: Path, tables: str, problem: str) -> None:
    found = problems(tmp_path, f'url = "sqlite:////tmp/shop.sqlite"\ntables = {tables}')
    assert problem in found
    assert "source.shop.tables" in found


@pytest.mark.parametrize(
    ("text", "schema", "table"),
    [
        ("orders", "", "orders"),
        ("shop.orders", "shop", "orders"),
        ('"my.schema".orders', "my.schema", "orders"),
        ('"a""b"', "", 'a"b'),
        ("db.dbo.orders", "db.dbo", "orders"),
    ],
)
def test_names_are_read_as_they_are_written(text: str, schema: str, table: str) -> None:
    assert TableName.parse(text) == TableName(schema, table)


def test_settle_is_a_time_or_left_to_the_database() -> None:
    assert options().settle is None
    assert options(settle="auto").settle is None
    assert options(settle="2s").settle == 2.0


def test_a_table_may_start_elsewhere_than_the_others() -> None:
    made = options(startAt="now", tables=["a", {"table": "b", "startAt": [7, "x"]}])
    assert [made.find_start(table) for table in made.tables] == [("now",), (7, "x")]


def test_the_page_says_first_what_the_source_does_not_see() -> None:
    page = (Path(__file__).parents[2] / "docs/sources/sql.md").read_text()
    assert page.split("\n\n")[1].startswith("**UPDATE and DELETE are not seen.**")
