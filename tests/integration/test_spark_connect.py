"""The Spark handler on a Spark Connect server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.errors import HandlerRefused, HandlerUnavailable
from psql_streamer.model import ReplicaIdentity
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.options import SparkOptions
from tests.connect_server import ConnectServer
from tests.database import Database
from tests.spark_changes import INSERT, UPDATE, Texts, batch, changes, column, lacking, names, only, shop, values

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

RULES = """
from pyspark.sql import functions as f

import prices


@f.udf("int")
def tripled_number(number):
    return None if number is None else number * prices.FACTOR


def tripled(df):
    return df.withColumn("tripled", tripled_number("id"))
"""

DOCS = (column("id", 23, key=True), column("title", 25), column("body", 25))
BY_KEY = ReplicaIdentity.DEFAULT


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    made = ConnectServer(tmp_path_factory.mktemp("connect") / "log")
    made.start()
    yield made
    made.kill()


@pytest.fixture
def remote(server: ConnectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes handlers with the rules given, and with these keys of [spark] besides; stops them afterwards."""
    monkeypatch.setattr("psql_streamer.spark.handler.warm_up", lambda *_: None)
    made: list[SparkHandler] = []

    def make(keys: dict[str, Any] | None = None, /, **tables: Any) -> SparkHandler:
        handler = SparkHandler("spark", SparkOptions(remote=server.url, tables=tables, **(keys or {})))
        made.append(handler)
        handler.start()
        return handler

    yield make
    for handler in made:
        handler.stop()


def test_a_rule_works_as_on_a_local_engine(remote: Any) -> None:
    handler = remote(orders={"sql": "SELECT *, CAST(amount * 2 AS DECIMAL(13,2)) AS twice FROM changes"})
    result = only(handler.handle(batch(shop())))
    assert names(result) == ["id", "amount", "customer", "meta", "twice"]
    assert values(result, "twice") == [b"20.00", b"41.00", b"-2.00"]
    assert handler.status().reason.startswith("Spark 4")


@pytest.mark.soak
def test_what_is_computed_is_taken_to_be_made_of_every_column_that_the_query_names(remote: Any) -> None:
    rows: dict[int, Texts] = {0: [b"1", b"a", b"abc"], 1: [b"2", b"b", None]}
    given = changes([INSERT, UPDATE], rows, {}, DOCS, {2: [False, True]}, identity=BY_KEY)
    sql = "SELECT sha2(CAST(id AS STRING), 256) AS id, title, upper(title) AS t, length(body) AS n, _row FROM changes"
    result = only(remote(orders={"sql": sql}).handle(batch(given)))
    assert lacking(result) == {"t": [False, True], "n": [False, True]}
    assert values(result, "title") == [b"a", b"b"]


def test_what_cannot_be_judged_is_put_back(remote: Any) -> None:
    rows: dict[int, Texts] = {0: [b"1", b"a", b"abc"], 1: [b"2", b"b", None]}
    given = changes([INSERT, UPDATE], rows, {1: [b"9", None, None]}, DOCS, {2: [False, True]}, identity=BY_KEY)
    handler = remote(orders={"sql": "SELECT id, title, length(body) AS n, _row FROM changes WHERE length(body) > 5"})
    result = only(handler.handle(batch(given)))
    assert values(result, "id") == [b"2"]
    assert values(result, "title") == [b"b"]
    assert values(result, "id", "before") == [b"9"]
    assert lacking(result) == {"n": [True]}
    assert handler.stats()["passed_unknown"] == 1


def test_what_the_steps_of_a_rule_read_is_known(remote: Any) -> None:
    rows: dict[int, Texts] = {0: [b"1", b"a", b"abc"], 1: [b"2", b"b", None], 2: [b"3", b"c", b"d"]}
    given = changes(
        [INSERT, UPDATE, INSERT], rows, {1: [b"9", None, None]}, DOCS, {2: [False, True, False]}, "docs", BY_KEY
    )
    rule = {
        "mask": {"id": "hash", "body": {"method": "partial", "keep_last": 1}, "title": {"method": "constant"}},
        "rename": {"id": "doc"},
        "where": "title = '***' AND doc <> ''",
        "sql": "SELECT * FROM changes",
        "mask_secret": "a secret of the test, long enough",
    }
    for steps in (rule, {**rule, "sql": None}):
        result = only(remote(docs=steps).handle(batch(given)))
        assert [one.name for one in result.columns if one.key] == ["doc"]
        assert result.seq.tolist() == [0, 1, 2]
        assert values(result, "body")[0] == b"**c"
        assert lacking(result) == {"body": [False, True, False]}
        assert lacking(result, "before") == {"title": [True], "body": [True]}


def test_rows_that_fail_go_out_with_nulls(remote: Any) -> None:
    rows: dict[int, Texts] = {at: [b"%d" % at, b"x" if at == 3 else b"1", None] for at in range(8)}
    sql = "SELECT *, CAST(title AS INT) AS n FROM changes"
    handler = remote(docs={"sql": sql, "on_error": "null"})
    result = handler.handle(batch(changes([INSERT] * 8, rows, {}, DOCS, table="docs")))
    found = sorted(
        (seq, n) for part in result.changes for seq, n in zip(part.seq.tolist(), values(part, "n"), strict=True)
    )
    assert found == [(at, None if at == 3 else b"1") for at in range(8)]


def test_a_computed_row_is_refused(remote: Any) -> None:
    handler = remote(orders={"sql": "SELECT *, 1 - _row AS _row FROM changes"})
    with pytest.raises(HandlerRefused, match="column _row is computed"):
        handler.handle(batch(shop()))


def test_a_rule_that_does_not_give_the_row_is_told_to(remote: Any) -> None:
    with pytest.raises(HandlerRefused, match="add _row to its select list"):
        remote(orders={"sql": "SELECT id FROM changes"}).handle(batch(shop()))


def test_tables_of_a_batch_have_sessions_with_the_same_settings_and_files(
    remote: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "prices.py").write_text("FACTOR = 3\n")
    (tmp_path / "connect_rules.py").write_text(RULES)
    monkeypatch.syspath_prepend(str(tmp_path))
    zone = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    handler = remote(
        {"conf": zone, "py_files": (str(folder),)},
        orders={"function": "connect_rules:tripled"},
        others={"sql": "SELECT *, current_timezone() AS zone, _row FROM changes"},
        more={"sql": "SELECT *, current_timezone() AS zone, _row FROM changes"},
    )
    other, more = (changes([INSERT], {0: [b"1", None, None, None]}, {}, table=name) for name in ("others", "more"))
    parts = {part.relation.table: part for part in handler.handle(batch(shop(), other, more)).changes}
    assert values(parts["orders"], "tripled") == [b"3", b"6", b"12"]
    assert values(parts["others"], "zone") == values(parts["more"], "zone") == [b"Asia/Tokyo"]
    assert handler._session.shipped == f"modules of rules: connect_rules, prices; pyFiles: {folder}"


def test_a_module_that_the_executors_lack_is_no_fault_of_a_row(
    remote: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is installed here is taken to be installed there.
    monkeypatch.setattr("psql_streamer.spark.rule_modules._lies_outside", lambda _: False)
    (tmp_path / "prices.py").write_text("FACTOR = 3\n")
    (tmp_path / "lacking_rules.py").write_text(RULES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "prices", raising=False)
    handler = remote({"on_error": "dead-letter"}, orders={"function": "lacking_rules:tripled"})
    with pytest.raises(HandlerUnavailable, match=r"the executors of .* have no module prices: install it there, or"):
        handler.handle(batch(shop()))
    assert handler.stats()["dead_lettered"] == 0
    [error] = handler.review({"db1": [shop().relation]})
    assert "cannot import lacking_rules (there is no module prices)" in str(error)


def test_a_server_that_restarts_is_connected_again(remote: Any, server: ConnectServer) -> None:
    handler = remote(orders={"sql": "SELECT * FROM changes"})
    assert len(handler.handle(batch(shop()))) == 4
    server.kill()
    server.start()
    with pytest.raises(HandlerUnavailable):
        handler.handle(batch(shop()))
    handler.start()
    assert len(handler.handle(batch(shop()))) == 4
    assert handler.stats()["engine_restarts"] == 1


@pytest.mark.soak
def test_a_server_that_is_away_is_told_and_found_again(
    remote: Any, server: ConnectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psql_streamer.spark.connect._CONNECT_ATTEMPTS", 2)
    handler = remote(orders={"sql": "SELECT * FROM changes"})
    server.kill()
    with pytest.raises(HandlerUnavailable):
        handler.handle(batch(shop()))
    with pytest.raises(HandlerUnavailable, match=r"the Spark Connect server of .* does not answer"):
        handler.start()
    assert not handler.status().ok
    server.start()
    handler.start()
    assert len(handler.handle(batch(shop()))) == 4


def test_rows_are_split_and_sent_elsewhere_as_on_a_local_engine(remote: Any) -> None:
    """Nobody sees the plan: parts are numbered by their values, unless the rule does so."""
    columns = (column("id", 23, key=True), column("items", 25))
    given = changes([INSERT, UPDATE], {0: [b"0", b"b,a"], 1: [b"1", b"c"]}, {1: [b"1", b"c,d"]}, columns)
    sql = "SELECT *, item AS _key, 'own' AS _topic FROM changes LATERAL VIEW posexplode(split(items, ',')) AS at, item"
    for rule in (sql, sql.replace("AS at", "AS _part")):
        made = only(remote(orders={"sql": rule}).handle(batch(given)))
        assert made.part is not None
        assert made.part.tolist() == [(0, 2), (1, 2)] * 2
        assert made.after.addresses is not None
        assert made.after.addresses.field("topic").to_pylist() == [b"own"] * 3


def test_lookups_are_views_there_too(remote: Any, tmp_path: Path, database: Database) -> None:
    path = tmp_path / "segments.csv"
    path.write_text("name,segment\nann,gold\n")
    database.execute("CREATE TABLE tiers (name text, tier int); INSERT INTO tiers VALUES ('ann', 7)")
    lookups = {
        "segments": {"kind": "csv", "path": str(path), "options": {"header": True}, "refresh": "change"},
        "tiers": {"kind": "postgres", "url": database.dsn, "table": "tiers"},
    }
    sql = """SELECT c.id, s.segment, t.tier, c._row FROM changes c LEFT JOIN segments s ON s.name = c.customer
        LEFT JOIN tiers t ON t.name = c.customer"""
    handler = remote({"lookups": lookups}, orders={"sql": sql})
    result = only(handler.handle(batch(shop())))
    assert values(result, "segment") == [b"gold", None, None]
    assert values(result, "tier") == [b"7", None, None]
