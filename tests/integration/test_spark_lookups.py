"""Lookups of rules: where their rows come from, when they are read again, and what is said of them."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from psql_streamer.errors import HandlerRefused, HandlerUnavailable
from psql_streamer.interfaces import Published, Severity
from psql_streamer.model import ReplicaIdentity
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.lookups import lookup as lookup_module
from psql_streamer.spark.lookups import lookups as lookups_module
from psql_streamer.spark.lookups import reading, refreshing
from psql_streamer.spark.options import SparkOptions
from sources.postgres.source import PostgresSource
from tests.columns import postgres_table
from tests.database import Database
from tests.integration.conftest import MASTER
from tests.spark_changes import INSERT, ORDERS, UPDATE, Texts, batch, changes, lacking, only, shop, values

JOINED = {"sql": "SELECT c.id, s.segment FROM changes c LEFT JOIN segments s ON s.name = c.customer"}
SEGMENTS = "name,segment\nann,gold\ncarl,tin\n"
PUBLISHED: Published = {"db1": [postgres_table(1, "public", "orders", ReplicaIdentity.FULL, ORDERS)]}


@pytest.fixture
def with_lookups(engine: SparkHandler) -> Iterator[Callable[..., SparkHandler]]:
    """Makes handlers with lookups and rules; sources: those that lookups may read."""
    made: list[SparkHandler] = []

    def make(lookups: dict[str, Any], sources: dict[str, Any] | None = None, /, **tables: Any) -> SparkHandler:
        handler = SparkHandler("spark", SparkOptions(master=MASTER, tables=tables, lookups=lookups))
        made.append(handler)
        handler.attach(sources or {}, None)
        handler.start()
        return handler

    yield make
    for handler in made:
        handler.stop()


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "segments.csv"
    path.write_text(SEGMENTS)
    return path


def of_csv(path: Path, **more: Any) -> dict[str, Any]:
    return {"segments": {"kind": "csv", "path": str(path), "options": {"header": True}, **more}}


def replace(path: Path, text: str) -> None:
    """As whoever writes a file for others does."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)


def has_first_segment(handler: SparkHandler, shown: bytes | None) -> bool:
    return segments_of(handler) == [shown, None, None]


def segments_of(handler: SparkHandler) -> list[Any]:
    return values(only(handler.handle(batch(shop()))), "segment")


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_files_are_views_of_rules(with_lookups: Any, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"segments.{kind}"
    rows = [{"name": "ann", "segment": "gold"}, {"name": "carl", "segment": "tin"}]
    if kind == "csv":
        path.write_text(SEGMENTS)
    elif kind == "json":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    options = {"header": "true"} if kind == "csv" else {}
    handler = with_lookups({"segments": {"kind": kind, "path": str(path), "options": options}}, orders=JOINED)
    result = only(handler.handle(batch(shop())))
    assert values(result, "segment") == [b"gold", None, None]
    assert values(result, "segment", "before") == [None, b"tin"]


@pytest.mark.parametrize("what", [{"table": "segments"}, {"query": 'SELECT "name", "segment" FROM segments'}])
def test_a_table_of_another_database_is_read_by_jdbc(
    engine: SparkHandler, with_lookups: Any, what: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert engine._pool is not None
    rows = engine._pool.spark.sql("SELECT 'ann' AS name, 'gold' AS segment")
    rows.write.jdbc("jdbc:derby:memory:lookups;create=true", "segments", mode="overwrite")
    lookup = {"kind": "jdbc", "url": "jdbc:derby:memory:lookups", "options": {"fetchsize": 100}, **what}
    rule = {"sql": "SELECT c.id, s.SEGMENT AS segment FROM changes c LEFT JOIN segments s ON s.NAME = c.customer"}
    assert segments_of(with_lookups({"segments": lookup}, orders=rule)) == [b"gold", None, None]
    away = with_lookups({"segments": {**lookup, "url": "jdbc:derby:memory:away;password=verysecret"}}, orders=rule)
    assert "lookup segments not read: [FAILED_JDBC.CONNECTION]" in away.status().reason
    assert "verysecret" not in "".join([away.status().reason, *capfd.readouterr()])


def test_a_function_sees_lookups_by_their_names(with_lookups: Any, csv: Path) -> None:
    handler = with_lookups(of_csv(csv), orders={"function": f"{__name__}:joined"})
    assert segments_of(handler) == [b"gold", None, None]


def joined(df: Any) -> Any:
    segments = df.sparkSession.table("segments")
    return df.join(segments, df.customer == segments.name, "left").drop(segments.name)


def hides(df: Any) -> Any:
    """A function that makes a view with the name of a lookup."""
    spark = df.sparkSession
    spark.table("segments").where("name <> 'ann'").createOrReplaceTempView("segments")
    return df.join(spark.table("segments"), df["customer"] == spark.table("segments")["name"], "left").drop("name")


def drops(df: Any) -> Any:
    df.sparkSession.catalog.dropTempView("segments")
    return df


@pytest.mark.parametrize("function", [hides, drops])
def test_a_function_changes_its_own_view_of_a_lookup_alone(with_lookups: Any, csv: Path, function: Any) -> None:
    handler = with_lookups(of_csv(csv), others={"function": f"{__name__}:{function.__name__}"}, orders=JOINED)
    handler.handle(batch(changes([INSERT], {0: [b"1", None, b"ann", None]}, {}, table="others")))
    assert segments_of(handler) == [b"gold", None, None]


def clears(df: Any) -> Any:
    """A function that lets go of what Spark holds for others."""
    df.sparkSession.catalog.clearCache()
    return df


def test_a_lookup_that_spark_does_not_hold_any_more_is_read_again_and_not_made_of_the_files_as_they_are(
    with_lookups: Any, csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_MOST_COLLECTED_ROWS", 1)
    handler = with_lookups(of_csv(csv), orders=JOINED, others={"function": f"{__name__}:clears"})
    assert segments_of(handler) == [b"gold", None, None]
    handler.handle(batch(changes([INSERT], {0: [b"1", b"1.00", b"ann", None]}, {}, table="others")))
    replace(csv, "name,segment\n" + "zoe,x\n" * 10 + "ann,other\n")  # behind what was the end of the file

    with pytest.raises(HandlerUnavailable, match="Spark does not hold it any more"):
        segments_of(handler)
    until(lambda: handler.stats()["lookups"]["segments"]["loads"] == 2, "the lookup to be read again")
    assert segments_of(handler) == [b"other", None, None]


def test_several_tables_at_once_see_the_same_lookup(with_lookups: Any, csv: Path) -> None:
    handler = with_lookups(of_csv(csv), **{"*": JOINED})
    parts = [
        changes([INSERT], {0: [b"1", b"1.00", b"ann", None]}, {}, table=table, identity=identity)
        for table, identity in (
            ("a", ReplicaIdentity.FULL),
            ("b", ReplicaIdentity.DEFAULT),
            ("c", ReplicaIdentity.FULL),
        )
    ]
    parts = [dataclasses.replace(part, batch_order=part.batch_order + at) for at, part in enumerate(parts)]
    for _ in range(2):
        made = handler.handle(batch(*parts)).changes
        assert sorted(part.relation.table for part in made) == ["a", "b", "c"]
        assert [values(part, "segment") for part in made] == [[b"gold"]] * 3


def test_a_changed_file_takes_the_place_of_the_old_one_between_two_batches(
    with_lookups: Any, csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_module, "LOOK_AT_FILES_SECONDS", 0.05)
    handler = with_lookups(of_csv(csv, refresh="change"), orders=JOINED)
    assert segments_of(handler) == [b"gold", None, None]
    replace(csv, "name,segment\nann,platinum\ndan,new\n")
    until(lambda: handler.stats()["lookups"]["segments"]["loads"] == 2, "the file to be read again")
    assert segments_of(handler) == [b"platinum", None, b"new"]
    assert handler.stats()["lookups"]["segments"]["rows"] == 2


def test_a_lookup_with_other_columns_changes_what_a_rule_gives(
    with_lookups: Any, csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_module, "LOOK_AT_FILES_SECONDS", 0.05)
    rule = {"sql": "SELECT c.id, s.* FROM changes c LEFT JOIN segments s ON s.name = c.customer"}
    handler = with_lookups(of_csv(csv, refresh="change"), orders=rule)
    assert segments_of(handler) == [b"gold", None, None]
    replace(csv, "name,segment,since\nann,gold,2020\n")
    until(lambda: handler.stats()["lookups"]["segments"]["loads"] == 2, "the file to be read again")
    assert values(only(handler.handle(batch(shop()))), "since") == [b"2020", None, None]


def test_a_refresh_that_fails_keeps_the_version_that_is_there_and_is_told(
    with_lookups: Any, csv: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler = with_lookups(of_csv(csv, refresh="50ms"), orders=JOINED)
    csv.unlink()
    until(lambda: handler.stats()["lookups"]["segments"]["failed_loads"] > 0, "a refresh to fail")
    assert segments_of(handler) == [b"gold", None, None]
    status = handler.status()
    assert status.ok
    assert "lookup segments of 2 rows" in status.reason
    assert "in vain" in status.reason
    assert "lookup segments cannot be read" in caplog.text
    assert "the version that is there is kept; tried again in" in caplog.text
    csv.write_text("name,segment\nann,back\n")
    until(lambda: "in vain" not in handler.status().reason, "the file to be read again")
    assert segments_of(handler) == [b"back", None, None]


def test_a_column_of_a_lookup_that_a_where_names_is_kept_as_well(with_lookups: Any, csv: Path) -> None:
    rule = {"where": "customer IN (SELECT name FROM segments WHERE segment = 'gold')"}
    handler = with_lookups(of_csv(csv, refresh="50ms"), orders=rule)
    before = len(handler.handle(batch(shop())))
    replace(csv, "name,since\nann,2020\n")
    refusal = "now has no column segment, which the rule 'orders' may use"
    until(lambda: refusal in handler.status().reason, "the file to be refused")
    assert len(handler.handle(batch(shop()))) == before


@pytest.mark.parametrize("kind", ["csv", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("json", "parquet"))])
def test_a_version_that_lacks_a_column_which_a_rule_names_does_not_take_the_place_of_the_one_before(
    with_lookups: Any, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"segments.{kind}"

    def write(*rows: dict[str, str]) -> None:
        new, table = path.with_suffix(".new"), pa.Table.from_pylist(list(rows))
        if kind == "csv":
            pyarrow.csv.write_csv(table, new)
        elif kind == "json":
            new.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            pyarrow.parquet.write_table(table, new)
        new.rename(path)

    write({"name": "ann", "segment": "gold", "since": "2020"})
    options = {"header": "true"} if kind == "csv" else {}
    lookup = {"kind": kind, "path": str(path), "options": options, "refresh": "50ms"}
    handler = with_lookups({"segments": lookup}, orders=JOINED)
    assert segments_of(handler) == [b"gold", None, None]
    write({"name": "ann", "since": "2020"})
    refusal = "now has no column segment, which the rule 'orders' may use"
    until(lambda: refusal in handler.status().reason, "the file to be refused")
    assert segments_of(handler) == [b"gold", None, None]
    write({"name": "ann", "segment": "tin"})
    until(lambda: "in vain" not in handler.status().reason, "the file to be read: nothing names what it lacks now")
    assert segments_of(handler) == [b"tin", None, None]


@pytest.mark.parametrize(
    ("sql", "first", "second", "refusal"),
    [
        ("s.v + 1", {"v": 1}, {"v": "x"}, "v is of type string, and was bigint; the rule 'orders' may use it"),
        pytest.param(
            "s.v.a", {"v": {"a": 1}}, {"v": "x"}, "v is of type string, and was struct", marks=pytest.mark.soak
        ),
        pytest.param("s.v.a", {"v": {"a": 1, "b": 2}}, {"v": {"b": 2}}, "v.a is gone", marks=pytest.mark.soak),
        ("v || customer", {"v": 1}, {"v": 1, "customer": "ann"}, "a rule fails: public.orders, rule 'orders': "),
    ],
)
def test_a_version_of_other_types_with_which_a_rule_fails_does_not_take_the_place_of_the_one_before(
    with_lookups: Any, tmp_path: Path, sql: str, first: Any, second: Any, refusal: str
) -> None:
    path = tmp_path / "segments.json"
    path.write_text(json.dumps({"name": "ann", **first}))
    rule = {"sql": f"SELECT c.id, {sql} AS segment FROM changes c LEFT JOIN segments s ON s.name = c.customer"}
    lookup = {"kind": "json", "path": str(path), "refresh": "50ms"}
    handler = with_lookups({"segments": lookup}, orders=rule)
    before = segments_of(handler)
    replace(path, json.dumps({"name": "ann", **second}))

    def is_told() -> bool:
        assert segments_of(handler) == before
        return refusal in handler.status().reason

    until(is_told, "the file to be refused")
    assert handler.status().ok
    replace(path, json.dumps({"name": "ann", **first}))
    until(lambda: segments_of(handler) == before and "in vain" not in handler.status().reason, "the file to be read")


@pytest.mark.soak
def test_a_column_without_values_has_no_type_that_counts_and_numbers_may_become_wider(
    with_lookups: Any, tmp_path: Path
) -> None:
    path = tmp_path / "segments.json"
    lookup = {"kind": "json", "path": str(path), "refresh": "50ms"}
    path.write_text(json.dumps({"name": "ann", "segment": 1}))
    handler = with_lookups({"segments": lookup}, orders=JOINED)
    assert segments_of(handler) == [b"1", None, None]
    for value, shown in ((None, None), (2.5, b"2.5")):
        replace(path, json.dumps({"name": "ann", "segment": value}))
        until(partial(has_first_segment, handler, shown), "the file to be read again")
    replace(path, json.dumps({"name": "ann", "segment": "x"}))
    until(lambda: "segment is of type string, and was double" in handler.status().reason, "the file to be refused")


@pytest.mark.soak
@pytest.mark.parametrize("most_collected", [200_000, pytest.param(0, marks=pytest.mark.soak)])
def test_a_value_of_a_new_version_that_the_join_cannot_take_keeps_the_version_before(
    with_lookups: Any,
    csv: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    most_collected: int,
) -> None:
    monkeypatch.setattr(reading, "_MOST_COLLECTED_ROWS", most_collected)
    csv.write_text("id,segment\n1,gold\n")
    rule = {
        "sql": "SELECT c.id, s.segment FROM changes c LEFT JOIN segments s ON s.id = c.id",
        "onError": "dead-letter",
    }
    handler = with_lookups(of_csv(csv, refresh="50ms"), orders=rule)
    assert segments_of(handler) == [b"gold", None, None]
    replace(csv, "id,segment\n1,tin\nnot one,x\n")

    def is_told() -> bool:
        assert segments_of(handler) == [b"gold", None, None]
        return "with what is there now a rule fails: public.orders, rule 'orders': a value of a lookup" in (
            handler.status().reason
        )

    until(is_told, "the version to be refused")
    assert "CAST_INVALID_INPUT" in handler.status().reason
    assert "not one" not in handler.status().reason + caplog.text
    replace(csv, "id,segment\n1,tin\n")
    until(lambda: segments_of(handler)[0] == b"tin", "the version that can be taken")
    assert "in vain" not in handler.status().reason


@pytest.mark.soak
def test_a_value_that_the_join_cannot_take_in_the_first_version_is_told_as_the_lookups(
    with_lookups: Any, csv: Path
) -> None:
    csv.write_text("id,segment\nnot one,x\n")
    rule = {"sql": "SELECT c.id, s.segment FROM changes c LEFT JOIN segments s ON s.id = c.id"}
    handler = with_lookups(of_csv(csv), orders=rule)
    with pytest.raises(HandlerUnavailable, match=r"a value of a lookup that it joins with cannot be taken: .*try_cast"):
        segments_of(handler)


def selects_segment(df: Any) -> Any:
    segments = df.sparkSession.table("segments").select("name", "segment")
    return df.join(segments, df.customer == segments.name, "left").drop(segments.name)


@pytest.mark.soak
def test_a_lost_column_that_a_function_does_not_use_keeps_no_version_back_and_one_that_it_uses_does(
    with_lookups: Any, csv: Path
) -> None:
    csv.write_text("name,segment,since\nann,gold,2020\n")
    handler = with_lookups(of_csv(csv, refresh="50ms"), orders={"function": f"{__name__}:selects_segment"})
    assert segments_of(handler) == [b"gold", None, None]
    replace(csv, "name,segment\nann,tin\n")
    until(lambda: segments_of(handler)[0] == b"tin", "the version that the function can take")
    replace(csv, "name,since\nann,2020\n")

    def is_told() -> bool:
        assert segments_of(handler) == [b"tin", None, None]
        return "with what is there now a rule fails: " in handler.status().reason

    until(is_told, "the version to be refused")


def test_a_lookup_whose_reading_hangs_is_told_and_makes_no_other_one_old(
    with_lookups: Any, csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, really_read = threading.Event(), reading.read

    def hang(options: Any, *given: Any, **named: Any) -> Any:
        if options.kind == "json":
            answers.wait(60)
        return really_read(options, *given, **named)

    monkeypatch.setattr(refreshing, "read", hang)
    monkeypatch.setattr(lookup_module, "_SLOW_SECONDS", 0.2)
    monkeypatch.setattr(lookups_module, "_FIRST_READINGS_SECONDS", 2.0)
    (csv.parent / "silent.json").write_text('{"name": "ann"}')
    silent = {"silent": {"kind": "json", "path": str(csv.parent / "silent.json")}}
    try:
        handler = with_lookups({**silent, **of_csv(csv, refresh="50ms")}, orders=JOINED)
        assert "lookup silent not read: this is its first reading, being read for" in handler.status().reason
        replace(csv, "name,segment\nann,new\n")
        until(lambda: segments_of(handler)[0] == b"new", "the other lookup to be read again")
    finally:
        answers.set()
    until(lambda: handler.status().ok, "the lookup that hung to be read")


def test_an_error_that_nobody_foresaw_is_told_as_well_and_the_lookup_read_again(
    with_lookups: Any, csv: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise MemoryError("of ann")

    with monkeypatch.context() as patched:
        patched.setattr(refreshing, "read", fail)
        handler = with_lookups(of_csv(csv, refresh="50ms"), orders=JOINED)
        until(lambda: handler.stats()["lookups"]["segments"]["failed_loads"] > 1, "two refreshes to fail")
        assert "lookup segments not read: the reading ended with MemoryError" in handler.status().reason
    until(lambda: handler.status().ok, "the file to be read")
    assert segments_of(handler) == [b"gold", None, None]
    assert "lookup segments cannot be read: the reading ended with MemoryError" in caplog.text
    assert "of ann" not in "".join(record.getMessage() for record in caplog.records)


def test_each_version_of_rows_that_spark_alone_holds_is_its_own(
    with_lookups: Any, csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_module, "LOOK_AT_FILES_SECONDS", 0.05)
    handler = with_lookups(of_csv(csv, refresh="change", maxBytes=1), orders=JOINED)
    assert segments_of(handler) == [b"gold", None, None]
    replace(csv, "name,segment\nann,platinum\ndan,new\neve,none\n")
    until(lambda: handler.stats()["lookups"]["segments"]["loads"] == 2, "the file to be read again")
    assert handler.stats()["lookups"]["segments"]["rows"] == 3
    assert segments_of(handler) == [b"platinum", None, b"new"]
    csv.unlink()
    until(lambda: handler.stats()["lookups"]["segments"]["failed_loads"] > 0, "a refresh to fail")
    assert segments_of(handler) == [b"platinum", None, b"new"]


def test_a_lookup_that_is_not_there_yet_keeps_batches_waiting_and_not_the_start(
    with_lookups: Any, csv: Path, tmp_path: Path
) -> None:
    late = tmp_path / "late.csv"
    handler = with_lookups(of_csv(late), orders=JOINED, other={"sql": "SELECT id FROM changes"})
    assert not handler.status().ok
    assert "lookup segments not read" in handler.status().reason
    with pytest.raises(HandlerUnavailable, match=r"lookup segments has not been read yet: .*late\.csv"):
        handler.handle(batch(shop()))
    other = changes([INSERT], {0: [b"1", None, None, None]}, {}, table="other")
    assert len(handler.handle(batch(other)).changes) == 1, "a rule that does not use it goes on"
    csv.rename(late)
    until(lambda: "rows" in handler.stats()["lookups"]["segments"], "the file to be read")
    assert segments_of(handler) == [b"gold", None, None]
    assert handler.status().ok


def test_a_version_that_is_too_old_is_used_waited_for_or_the_end(with_lookups: Any, csv: Path) -> None:
    handlers = {
        on_stale: with_lookups(of_csv(csv, refresh="10ms", maxAge="200ms", onStale=on_stale), orders=JOINED)
        for on_stale in ("use", "wait", "stop")
    }
    csv.unlink()
    until(lambda: all(not handler.status().ok for handler in handlers.values()), "all of them to be too old")
    assert segments_of(handlers["use"]) == [b"gold", None, None]
    assert "too old" in handlers["use"].status().reason
    with pytest.raises(HandlerUnavailable, match=r"lookup segments is .* old, more than maxAge"):
        handlers["wait"].handle(batch(shop()))
    with pytest.raises(HandlerRefused, match=r"lookup segments is .* old, more than maxAge"):
        handlers["stop"].handle(batch(shop()))


def test_a_csv_that_does_not_fit_its_schema_is_not_read_as_nulls(with_lookups: Any, csv: Path) -> None:
    csv.write_text("name,segment\nann,secretvalue\n")
    handler = with_lookups(of_csv(csv, schema="name STRING, segment INT"), orders=JOINED)
    status = handler.status()
    assert not status.ok
    assert "Spark ended with" in status.reason
    assert "secretvalue" not in status.reason


OTHER_ORDER = "segment,name\ngold,ann\n"


def test_a_csv_whose_header_has_the_columns_in_another_order_than_the_schema_is_refused(
    with_lookups: Any, csv: Path
) -> None:
    csv.write_text(OTHER_ORDER)
    handler = with_lookups(of_csv(csv, schema="name STRING, segment STRING", refresh="50ms"), orders=JOINED)
    reason = handler.status().reason
    assert "Header: segment, name Schema: name, segment" in reason
    assert "enforceSchema = true" in reason
    replace(csv, SEGMENTS)
    until(lambda: handler.status().ok, "the files to be read again")
    assert segments_of(handler) == [b"gold", None, None]


@pytest.mark.parametrize("most", [200_000, 1], ids=["kept by the service", "kept by Spark"])
def test_files_of_a_folder_whose_headers_differ_are_refused(
    with_lookups: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(reading, "_MOST_COLLECTED_ROWS", most)
    (tmp_path / "part-0.csv").write_text(SEGMENTS)
    (tmp_path / "part-1.csv").write_text("segment,name\n" + "tin,bob\n" * 100)
    handler = with_lookups(of_csv(tmp_path), orders=JOINED)
    assert "CSV header does not conform to the schema" in handler.status().reason


@pytest.mark.parametrize(
    ("written", "section"),
    [
        ("a,b\nann,gold\n", {"options": {"Header": "TRUE", "enforceschema": True}}),
        ("NAME,Segment\nann,gold\n", {}),
        ("ann,gold\n", {"options": {"header": False}}),
    ],
    ids=["names do not count", "the case does not count", "there is no header"],
)
def test_a_csv_whose_header_is_not_to_be_the_schema_is_read_by_the_order_of_its_columns(
    with_lookups: Any, csv: Path, written: str, section: dict[str, Any]
) -> None:
    csv.write_text(written)
    lookups = {"segments": of_csv(csv, schema="name STRING, segment STRING")["segments"] | section}
    assert segments_of(with_lookups(lookups, orders=JOINED)) == [b"gold", None, None]


@pytest.mark.parametrize("header", [",name,segment", "name,segment,name"], ids=["without a name", "the same twice"])
def test_a_csv_of_whose_columns_spark_makes_the_names_is_read(with_lookups: Any, csv: Path, header: str) -> None:
    csv.write_text(f"{header}\n1,ann,gold\n")
    of_spark = "_c0" if header.startswith(",") else "name0"
    handler = with_lookups(of_csv(csv), orders={"sql": f"SELECT c.id, s.{of_spark} AS n FROM changes c, segments s"})
    assert values(only(handler.handle(batch(shop()))), "n") == [b"1"] * 3


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_name_of_a_schema_that_files_do_not_have_is_told_of(
    with_lookups: Any, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / f"segments.{kind}"
    if kind == "json":
        path.write_text(json.dumps({"segment": "gold", "name": "ann"}))
    else:
        pyarrow.parquet.write_table(pa.table({"segment": ["gold"], "name": ["ann"]}), path)
    lookup = {"kind": kind, "path": str(path), "schema": "name STRING, segment STRING, sgement STRING"}
    assert segments_of(with_lookups({"segments": lookup}, orders=JOINED)) == [b"gold", None, None]
    assert "lookup segments: of its schema sgement has no value in any row" in caplog.text


@pytest.mark.parametrize(
    "schema", [{}, pytest.param({"schema": "name string, segment string"}, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("found", ["a folder whose files are being replaced", "a file without columns"])
def test_files_that_are_being_replaced_are_no_version_without_rows(
    with_lookups: Any, tmp_path: Path, schema: dict[str, str], found: str
) -> None:
    folder = tmp_path / "segments"
    folder.mkdir()
    (folder / "part-0.csv").write_text(SEGMENTS)
    handler = with_lookups(of_csv(folder, refresh="50ms", **schema), orders=JOINED)
    if found == "a file without columns":
        (folder / "part-0.csv").write_text("")
    else:
        (folder / "part-0.csv").unlink()
        (folder / "_temporary").mkdir()
        (folder / "_temporary" / "part-0.csv").write_text("name,seg")
    until(lambda: handler.stats()["lookups"]["segments"]["failed_loads"] > 0, "a refresh to fail")
    assert segments_of(handler) == [b"gold", None, None]
    (folder / "part-1.csv").write_text("name,segment\nann,back\n")
    (folder / "_SUCCESS").write_text("")
    until(lambda: "in vain" not in handler.status().reason, "the files to be read again")
    assert segments_of(handler) == [b"back", None, None]


def test_a_lookup_that_cannot_be_read_says_what_spark_says_of_it_without_its_values(
    with_lookups: Any, csv: Path
) -> None:
    csv.write_text("name,segment\nsecret,gold\n")
    handler = with_lookups(of_csv(csv, schema="name int, segment string"), orders=JOINED)
    reason = handler.status().reason
    assert "MALFORMED_RECORD_IN_PARSING" in reason
    assert "secret" not in reason


def test_what_comes_from_a_lookup_is_missing_where_its_key_is(with_lookups: Any, csv: Path) -> None:
    given = changes(
        [UPDATE],
        {0: [b"2", b"20.50", None, b"{}"]},
        {0: [b"2", None, None, None]},
        absent={2: [True]},
        identity=ReplicaIdentity.DEFAULT,
    )
    result = only(with_lookups(of_csv(csv), orders=JOINED).handle(batch(given)))
    assert lacking(result) == {"segment": [True]}


def test_an_insert_that_finds_two_rows_becomes_two_rows(with_lookups: Any, csv: Path) -> None:
    csv.write_text("name,segment\nann,gold\nann,tin\n")
    handler = with_lookups(of_csv(csv), orders=JOINED)
    inserted = changes([INSERT], {0: [b"1", b"1.00", b"ann", None]}, {})
    assert sorted(values(only(handler.handle(batch(inserted))), "segment")) == [b"gold", b"tin"]


def test_a_plan_that_is_used_again_sees_each_batch_and_each_version(
    with_lookups: Any, csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_module, "LOOK_AT_FILES_SECONDS", 0.05)
    hinted = JOINED["sql"].replace("SELECT", "SELECT /*+ {} */")
    rules = {
        "orders": JOINED,
        "both": {"sql": hinted.format("BROADCAST(c), BROADCAST(s)").replace("LEFT JOIN", "JOIN")},
        "shuffled": {"sql": hinted.format("MERGE(c, s)")},
        "unequal": {"sql": JOINED["sql"].replace("s.name = c.customer", "s.name < c.customer AND s.name > 'b'")},
    }
    handler = with_lookups(of_csv(csv, refresh="change"), **rules)

    def segments(customer: bytes) -> list[Any]:
        row: dict[int, Texts] = {0: [b"1", b"1.00", customer, None]}
        parts = [changes([INSERT], row, {}, table=table) for table in rules]
        parts = [dataclasses.replace(part, batch_order=part.batch_order + at) for at, part in enumerate(parts)]
        made = {part.relation.table: values(part, "segment") for part in handler.handle(batch(*parts)).changes}
        return [made.get(table) for table in rules]

    assert segments(b"ann") == [[b"gold"], [b"gold"], [b"gold"], [None]]
    assert segments(b"carl") == [[b"tin"], [b"tin"], [b"tin"], [None]]
    assert segments(b"dan") == [[None], None, [None], [b"tin"]]
    replace(csv, "name,segment\nann,new\ncarl,newer\n")
    until(lambda: handler.stats()["lookups"]["segments"]["loads"] == 2, "the file to be read again")
    assert segments(b"ann") == [[b"new"], [b"new"], [b"new"], [None]]
    assert segments(b"dan") == [[None], None, [None], [b"newer"]]


def test_a_review_names_lookups_that_are_not_there(with_lookups: Any, tmp_path: Path, csv: Path) -> None:
    rule = {"sql": "SELECT c.id, s.segment FROM changes c LEFT JOIN segmnts s ON s.name = c.customer"}
    found = [str(one) for one in with_lookups(of_csv(csv), orders=rule).review(PUBLISHED)]
    assert len(found) == 1
    assert "segmnts" in found[0]
    assert "did you mean segments?" in found[0]


def test_a_review_warns_of_a_lookup_that_cannot_be_read_and_passes_over_its_rules(
    with_lookups: Any, tmp_path: Path
) -> None:
    found = list(with_lookups(of_csv(tmp_path / "none.csv"), orders=JOINED).review(PUBLISHED))
    assert [one.severity for one in found] == [Severity.WARNING]
    assert "lookup segments cannot be read" in found[0].problem


def test_a_check_finds_missing_files_and_options_that_spark_does_not_have(tmp_path: Path, csv: Path) -> None:
    lookups = {
        "a": {"kind": "csv", "path": str(tmp_path / "none.csv")},
        "b": {"kind": "csv", "path": str(csv), "options": {"hedaer": True}},
    }
    handler = SparkHandler("spark", SparkOptions(master=MASTER, tables={"orders": JOINED}, lookups=lookups))
    found = [str(one) for one in handler.check()]
    assert found == [
        f"error: lookup a: there is no file or folder {tmp_path}/none.csv: correct its path",
        "warning: lookup b: Spark's reader of csv has no option hedaer; did you mean header?: correct its name",
    ]


@pytest.fixture
def customers(database: Database) -> Database:
    database.execute(
        "CREATE TABLE customers (name text PRIMARY KEY, segment text, rate numeric(5,2),"
        " since timestamptz, tags text[]);"
        "INSERT INTO customers VALUES ('ann', 'gold', 1.50, '2020-01-02 03:04:05+00', '{a,b}');"
        "INSERT INTO customers VALUES ('carl', NULL, 'NaN', NULL, NULL)"
    )
    return database


def test_a_table_of_postgresql_is_read_by_copy_with_its_types(with_lookups: Any, customers: Database) -> None:
    lookups = {"customers": {"kind": "postgres", "url": customers.dsn, "table": "public.customers"}}
    rule = {
        "sql": """SELECT c.id, concat_ws('|', l.segment, typeof(l.rate), l.rate, l.since, l.tags) AS seen
            FROM changes c LEFT JOIN customers l ON l.name = c.customer"""
    }
    result = only(with_lookups(lookups, orders=rule).handle(batch(shop())))
    assert values(result, "seen")[0] == b"gold|decimal(5,2)|1.50|2020-01-02 03:04:05|{a,b}"
    assert values(result, "seen", "before")[1] == b"decimal(5,2)"


def test_a_query_of_a_configured_source_is_a_lookup(with_lookups: Any, customers: Database) -> None:
    options = {"type": "postgres", "dsn": customers.dsn, "publication": "p", "replication_slot": "s"}
    source = PostgresSource("db1", PostgresSource.Options(**options))
    lookups = {
        "segments": {
            "kind": "postgres",
            "source": "db1",
            "query": "SELECT name, upper(segment) AS segment FROM public.customers; ",
        }
    }
    handler = with_lookups(lookups, {"db1": source}, orders=JOINED)
    assert segments_of(handler) == [b"GOLD", None, None]


def test_a_query_that_names_no_schema_is_told_to(with_lookups: Any, customers: Database) -> None:
    lookups = {"segments": {"kind": "postgres", "url": customers.dsn, "query": "SELECT * FROM customers"}}
    handler = with_lookups(lookups, orders=JOINED)
    with pytest.raises(HandlerUnavailable, match=r'"customers" does not exist \(queries of lookups name the schema'):
        handler.handle(batch(shop()))


def test_a_database_that_refuses_is_told_without_its_password(
    with_lookups: Any, customers: Database, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{customers.dsn} password=verysecret"
    lookups = {"segments": {"kind": "postgres", "url": url, "query": "SELECT * FROM public.nothing"}}
    handler = with_lookups(lookups, orders=JOINED)
    with pytest.raises(HandlerUnavailable, match=r'relation "public\.nothing" does not exist'):
        handler.handle(batch(shop()))
    assert "verysecret" not in caplog.text + handler.status().reason + repr(handler.options)


def test_a_lookup_larger_than_its_limit_is_refused(with_lookups: Any, customers: Database) -> None:
    customers.execute("INSERT INTO customers SELECT i::text, repeat('x', 100) FROM generate_series(1, 100) i")
    lookups = {"segments": {"kind": "postgres", "url": customers.dsn, "table": "customers", "maxBytes": "4kB"}}
    assert "larger than maxBytes" in with_lookups(lookups, orders=JOINED).status().reason


def test_lookups_are_there_again_with_another_engine(with_lookups: Any, csv: Path) -> None:
    handler = with_lookups(of_csv(csv), orders=JOINED)
    assert segments_of(handler) == [b"gold", None, None]
    csv.unlink()
    handler._leave()
    handler.start()
    assert segments_of(handler) == [b"gold", None, None]
