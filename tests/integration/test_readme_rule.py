"""The first example of README: its rule makes of its INSERT the event that stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import tomli

from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.options import SparkOptions
from tests.database import Database
from tests.integration.conftest import MASTER
from tests.source_at_work import read_all, source_of
from tests.spark_changes import values

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_first_rule_makes_the_first_event(engine: SparkHandler, database: Database, tmp_path: Path) -> None:
    rule, event = tomli.loads(block("toml")), json.loads(block("json"), parse_float=str)
    tables = re.findall(r"^CREATE TABLE .*;$", README, re.MULTILINE)
    database.execute("\n".join(tables) + "CREATE PUBLICATION p FOR ALL TABLES")
    database.execute("INSERT INTO customers VALUES (7, 'customer 7', 'business')")
    source = source_of(database)
    rule["spark"]["lookups"]["customers"]["source"] = "db1"
    handler = SparkHandler("spark", SparkOptions.model_validate({"master": MASTER, **rule["spark"]}))
    handler.attach({"db1": source}, tmp_path)
    handler.start()
    try:
        source.read_stream_identity()
        assert list(handler.review({"db1": source.list_published()})) == []
        handler.begin_stream("db1", None)
        source.start(None)
        database.execute(found(r"`(INSERT INTO orders [^`]*)`"))
        [changes] = [part for batch in read_all(source, database) for part in handler.handle(batch).changes]
    finally:
        source.stop()
        handler.stop()
    sent = {column.name: values(changes, column.name) for column in changes.columns}
    assert sent == {name: [str(value).encode()] for name, value in event["Columns"].items()}


def block(language: str) -> str:
    """The first one in this language."""
    return found(rf"(?ms)^```{language}\n(.*?)^```$")


def found(pattern: str) -> Any:
    match = re.search(pattern, README)
    assert match, pattern
    return match[1]
