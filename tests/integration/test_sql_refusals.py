"""What a `sql` source says of tables, conditions and values that it cannot read: what it is, and what to do."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from psycopg2.extensions import parse_dsn

from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.errors import SourceRefused, SourceUnavailable
from psql_streamer.interfaces import Severity
from tests.database import Database, fresh_database
from tests.mariadb import Schema
from tests.sql_sources import execute, notes, read_quiet, read_rows, sql_source, url_of
from tests.started_source import started
from tests.tcp_proxy import TcpProxy


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "shop.sqlite"
    execute(
        file,
        "CREATE TABLE Orders (id INTEGER PRIMARY KEY AUTOINCREMENT, note TEXT, doc JSON)",
        "INSERT INTO Orders (note) VALUES ('a'), ('b')",
    )
    return file


def test_a_table_of_sqlite_in_other_letters_is_named_in_its_own(file: Path) -> None:
    source = sql_source(f"sqlite:///{file}", "orders")
    with pytest.raises(SourceRefused, match="table orders is called Orders: write Orders"):
        source.start(None)
    assert [one for one in source.check() if one.severity is Severity.ERROR and "is called Orders" in str(one)]


def test_a_condition_may_end_in_a_comment(file: Path) -> None:
    entry = {"table": "Orders", "where": "note = 'b' OR false -- only b"}
    with started(sql_source(f"sqlite:///{file}", entry)) as source:
        assert notes(source, 1) == ["b"]


def test_a_backslash_in_front_of_a_colon_stays_in_conditions_and_queries(file: Path) -> None:
    note = r"C:\:x \: \\:y :z \:"
    execute(file, f"UPDATE Orders SET note = '{note}' WHERE id = 1")
    query = {"query": f"SELECT id, '{note}' AS note FROM Orders", "name": "q", "key": "id"}
    with started(sql_source(f"sqlite:///{file}", {"table": "Orders", "where": f"note = '{note}'"}, query)) as source:
        assert notes(source, 3) == [note, json.dumps(note), json.dumps(note)]


def test_a_condition_that_is_none_is_refused(file: Path) -> None:
    for where in ("note = 'b';", "note = 'b'; --", "note = 'b"):
        source = sql_source(f"sqlite:///{file}", {"table": "Orders", "where": where})
        with pytest.raises(SourceRefused, match="correct where or query"), started(source):
            read_quiet(source, 1)
        assert [one for one in source.check() if one.severity is Severity.ERROR and "correct where" in str(one)]


def test_a_number_of_json_may_have_any_number_of_digits(file: Path) -> None:
    document = "[" + "9" * 5000 + ", 1e5, 0." + "1" * 5000 + "]"
    execute(file, f"UPDATE Orders SET doc = '{document}'")
    with started(sql_source(f"sqlite:///{file}", "Orders")) as source:
        assert [row["doc"] for row in read_rows(source, 2)] == [document] * 2


@pytest.mark.parametrize("column", ["note", "doc"])
def test_a_text_that_is_no_utf8_is_told_of_as_that(file: Path, column: str) -> None:
    with closing(connect(file)) as connection, connection:
        connection.execute(f"UPDATE Orders SET {column} = CAST(x'22c322' AS TEXT) WHERE id = 2")
    with (
        started(sql_source(f"sqlite:///{file}", "Orders")) as source,
        pytest.raises(SourceRefused, match=f"column {column} of the row with id 2 holds text that is no UTF-8"),
    ):
        read_quiet(source, 1)


def test_a_text_of_a_database_without_encoding_that_is_no_utf8_is_refused(database: Database) -> None:
    with fresh_database(database.dsn, f"{database.name}_ascii", "SQL_ASCII") as ascii_:
        ascii_.execute("CREATE TABLE orders (id bigserial PRIMARY KEY, note text)")
        with ascii_.session() as session, session.cursor() as cursor:
            session.set_client_encoding("SQL_ASCII")
            cursor.execute(b"INSERT INTO orders (note) VALUES ('\xff')")
            session.commit()
        with (
            started(sql_source(url_of(ascii_), "orders")) as source,
            pytest.raises(SourceRefused, match=r"public\.orders.*no UTF-8: correct the row"),
        ):
            read_rows(source, 1)
        with started(sql_source(url_of(ascii_), {"table": "orders", "columns": ["id"]})) as source:
            assert read_rows(source, 1) == [{"id": "1"}]


def test_a_date_of_zeros_as_key_is_read_or_refused_and_not_tried_for_ever(every_schema: Schema) -> None:
    every_schema.execute("SET sql_mode = ''", "CREATE TABLE orders (id DATETIME PRIMARY KEY)")
    every_schema.execute("SET sql_mode = ''", "INSERT INTO orders VALUES ('0000-00-00'), ('2026-01-01')")
    url = f"mysql+pymysql://root@{every_schema.host}:{every_schema.port}/{every_schema.name}"
    with started(sql_source(url, "orders", settle="0s", batchSize=1)) as source:
        if every_schema.on_mysql:
            with pytest.raises(SourceRefused, match="a date of zeros cannot be a key"):
                read_quiet(source, 2)
        else:
            assert len(read_rows(source, 2)) == 2


@pytest.mark.behaviour("P2")
@pytest.mark.parametrize(
    ("declared", "last", "rows"),
    [
        ("numeric", "'NaN'", "('1'), ('2'), ('-Infinity')"),
        ("numeric", "'Infinity'", "(1), (2), (3)"),
        ("date", "'infinity'", "('2026-01-01'), ('2026-01-02'), ('-infinity')"),
        ("timestamptz", "'infinity'", "('2026-01-01'), ('2026-01-02'), ('2026-01-03')"),
        ("interval", "NULL", "('1 day'), ('2 days'), ('3 days')"),
    ],
)
def test_a_key_behind_all_others_hides_no_rows_and_is_told_of(
    database: Database, declared: str, last: str, rows: str
) -> None:
    database.execute(f"CREATE TABLE orders (id {declared}, n int, UNIQUE (id, n)); CREATE INDEX ON orders (n)")
    database.execute(f"INSERT INTO orders VALUES ({last}, 1)")
    entry: dict[str, Any] = {"table": "orders", "key": ["id", "n"]}
    source = sql_source(url_of(database), entry, settle="0s")
    said = [str(one) for one in source.check() if "larger than all others" in str(one)]
    assert bool(said) == (last != "NULL")
    with started(source):
        assert not any(map(len, read_quiet(source, 0.2)))
        database.execute(f"INSERT INTO orders SELECT id::{declared}, 1 FROM (VALUES {rows}) v (id)")
        assert len(read_rows(source, 3)) == 3
        database.execute(f"INSERT INTO orders VALUES ({last}, 2)")
        assert not any(map(len, read_quiet(source, 0.2)))


def test_another_server_that_takes_the_address_is_noticed_before_a_row_of_it_is_read(
    database: Database, own_postgres: EmbeddedPostgres
) -> None:
    with fresh_database(own_postgres.build_dsn(tcp=True), database.name) as other:
        for one, rows in ((database, 3), (other, 9)):
            one.execute("CREATE TABLE orders (id bigserial PRIMARY KEY, note text)")
            one.execute("INSERT INTO orders (note) SELECT 'row ' || n FROM generate_series(1, %s) n", rows)
        with TcpProxy(find_port(database)) as proxy:
            url = url_of(replace(database, dsn=proxy.dsn(database.dsn)))
            with started(sql_source(url, "orders", pollInterval="50ms")) as source:
                assert notes(source, 3) == ["row 1", "row 2", "row 3"]
                proxy.cut()
                read_quiet(source, 0.2)  # the same server: it goes on
                assert source.status().ok
                proxy.target = find_port(other)
                proxy.cut()
                with pytest.raises(SourceUnavailable, match="another server answers under the same address"):
                    read_quiet(source, 10)


def find_port(database: Database) -> int:
    return int(parse_dsn(database.dsn)["port"])


@pytest.mark.behaviour("P5")
@pytest.mark.parametrize("batch_size", [1, 2, 10])
@pytest.mark.parametrize("entry", [{"table": "all_orders"}, {"query": "SELECT * FROM all_orders", "name": "q"}])
def test_rows_of_a_view_or_a_query_that_have_the_same_key_are_not_left_out_in_silence(
    database: Database, entry: dict[str, str], batch_size: int
) -> None:
    database.execute(
        "CREATE TABLE old (id bigint, note text); CREATE TABLE new (LIKE old);"
        "INSERT INTO old VALUES (1, 'a'), (2, 'b');"
        "CREATE VIEW all_orders AS TABLE old UNION ALL TABLE new"
    )
    settings: dict[str, Any] = {"settle": "10ms", "batchSize": batch_size}
    with started(sql_source(url_of(database), {**entry, "key": "id"}, **settings)) as source:
        assert notes(source, 2) == ["a", "b"]
        database.execute("INSERT INTO old VALUES (3, 'c'), (4, 'd'); INSERT INTO new VALUES (4, 'e')")
        with pytest.raises(SourceRefused, match=r"several rows have the key id 4, .*: add columns to its key"):
            read_quiet(source, 3)
        database.execute("DELETE FROM new")
    where = {"where": "note <> 'e'"} if "table" in entry else {}
    database.execute("INSERT INTO new VALUES (4, 'e')" if where else "SELECT 1")
    with started(sql_source(url_of(database), {**entry, "key": "id", **where}, **settings)) as source:
        assert notes(source, 4) == ["a", "b", "c", "d"]


@pytest.mark.behaviour("P5")
def test_texts_of_a_view_that_are_equal_by_their_collation_are_not_left_out_in_silence(schema: Schema) -> None:
    schema.execute(
        "CREATE TABLE old (id varchar(9), note text)",
        "INSERT INTO old VALUES ('a', '1'), ('B', '2'), ('b ', '3'), ('c', '4')",
        "CREATE VIEW both_of AS SELECT * FROM old",
    )
    url = f"mysql+pymysql://root@{schema.host}:{schema.port}/{schema.name}"
    source = sql_source(url, {"table": "both_of", "key": "id"}, batchSize=2)
    with started(source), pytest.raises(SourceRefused, match=r"several rows have the key id [Bb]"):
        read_quiet(source, 3)


def test_a_key_that_is_to_be_sent_as_text_is_refused_for_that(file: Path) -> None:
    with pytest.raises(SourceRefused, match="id is a part of its key, and cannot be sent as text: take it out of text"):
        sql_source(f"sqlite:///{file}", {"table": "Orders", "text": ["id"]}).start(None)


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:1/x?sslmode=bogus", "127.0.0.1:1/x?keepalives=x", "127.0.0.1:1/x?target_session_attrs=x", "h:99999/x"],
)
def test_a_value_of_the_url_that_libpq_refuses_is_refused_and_not_tried_for_ever(url: str) -> None:
    with pytest.raises(SourceRefused, match=r"invalid .*: correct it in the url"):
        sql_source(f"postgresql+psycopg2://{url}", "orders").read_stream_identity()
