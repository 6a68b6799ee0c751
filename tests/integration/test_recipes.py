"""Every recipe of docs/recipes.md does what the page says: its changes through its rules, as the service does it."""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.cli import main
from psql_streamer.spark.handler import SparkHandler
from tests.database import Database
from tests.integration.conftest import MASTER
from tests.recipes_page import Recipe, recipes

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

CONFIG = """
http = ":0"
lmdb = "/nonexistent/positions"

[source.db1]
type = "postgres"
dsn = "{dsn}"
publication = "shop"
replicationSlot = "shop"

[sink.kafka]
type = "kafka"
sources = ["db1"]
hosts = ["127.0.0.1:1"]
topicPrefix = "shop"
deadLetterTopic = "shop.dead"
format = "envelope"
"""

DERBY = f"jdbc:derby:memory:{uuid.uuid4().hex};create=true"
"""A database in Spark's own JVM, whose driver comes with Spark."""

RECIPES = list(recipes())


@pytest.fixture
def folder(engine: SparkHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which modules are found. engine: its JVM is there for all."""
    assert engine.status().ok
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MASK_SECRET", "sixteen-characters")
    return tmp_path


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_makes_of_its_changes_what_the_page_says(
    recipe: Recipe, folder: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    for name, text in recipe.python.items():
        (folder / f"{name}.py").write_text(text)
        sys.modules.pop(name, None)
    for name, text in recipe.files.items():
        (folder / name).write_text(text)
    dsn = "host=127.0.0.1 port=1 dbname=shop"
    if "jdbc:" in recipe.config:
        _fill_derby(recipe.sql, folder)
    elif recipe.sql:
        database: Database = request.getfixturevalue("database")
        database.execute(f"{recipe.sql}; CREATE PUBLICATION shop FOR ALL TABLES")
        dsn = database.dsn
    (folder / "shop.toml").write_text(CONFIG.replace("{dsn}", dsn) + _of_this_place(recipe.config, folder))
    (folder / "events.jsonl").write_text("\n".join(recipe.changes))
    code = main(["try", "-c", "shop.toml", "--events", "events.jsonl", "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert list(_become(json.loads(out), recipe.becomes)) == recipe.becomes


def _of_this_place(config: str, folder: Path) -> str:
    """The page's configuration with an engine, the folder and the database of this test."""
    if "[spark]\n" not in config:
        config = f"[spark]\n{config}"
    config = config.replace("[spark]\n", f'[spark]\nmaster = "{MASTER}"\n').replace("/data/", f"{folder}/")
    return re.sub('jdbc:postgresql:[^"]*', DERBY, re.sub("packages = .*\n", "", config))


def _fill_derby(sql: str, folder: Path) -> None:
    from pyspark import SparkContext

    assert SparkContext._jvm is not None
    java: Any = SparkContext._jvm.java
    java.lang.System.setProperty("derby.stream.error.file", str(folder / "derby.log"))
    connection = java.sql.DriverManager.getConnection(DERBY)
    for statement in sql.split(";"):
        if statement.strip():
            connection.createStatement().execute(statement)
    connection.close()


def _become(told: Any, expected: list[Any]) -> Iterator[Any]:
    """The events as the page has them, with the fields that it names."""
    named = iter(expected)
    for change in told["changes"]:
        for letter in change["dead_letters"]:
            yield {"dead letter": letter["reason"], "column": letter["column"]}
            next(named, None)
        for event in change["events"]:
            yield _shown(event, next(named, {}))
        if change["outcome"] in ("dropped", "no-topic"):
            yield {"dropped": True} if change["outcome"] == "dropped" else {"no topic": True}
            next(named, None)


def _shown(event: Any, named: Any) -> dict[str, Any]:
    value = event["value"]
    row = {"row": value["after"]} if value["after"] is not None else {"deleted": value["before"]}
    if "row" in row and "before" in named:
        row["before"] = value["before"]
    return {
        "topic": event["topic"],
        "key": event["key"],
        **({"headers": event["headers"]} if "headers" in named else {}),
        **row,
    }


def test_there_is_a_recipe_for_each_task() -> None:
    names = [recipe.name for recipe in RECIPES]
    assert len(set(names)) == len(names) == 15
