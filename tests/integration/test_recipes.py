"""Every recipe of docs/recipes.md does what the page says: its changes through its rules, as the service does it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.cli import main
from psql_streamer.spark.handler import SparkHandler
from tests.integration.conftest import MASTER
from tests.recipes_page import Recipe, recipes

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

CONFIG = f"""
http = ":0"
lmdb = "/nonexistent/positions"

[source.db1]
type = "postgres"
dsn = "host=127.0.0.1 port=1 dbname=shop"
publication = "shop"
replicationSlot = "shop"

[sink.kafka]
type = "kafka"
sources = ["db1"]
hosts = ["127.0.0.1:1"]
topicPrefix = "shop"
deadLetterTopic = "shop.dead"
format = "envelope"

[spark]
master = "{MASTER}"
"""

RECIPES = list(recipes())


@pytest.fixture
def folder(engine: SparkHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which modules are found. engine: its JVM is there for all."""
    assert engine.status().ok
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_makes_of_its_changes_what_the_page_says(
    recipe: Recipe, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in recipe.python.items():
        (folder / f"{name}.py").write_text(text)
        sys.modules.pop(name, None)
    for name, text in recipe.files.items():
        (folder / name).write_text(text)
    (folder / "shop.toml").write_text(CONFIG + recipe.config)
    (folder / "events.jsonl").write_text("\n".join(recipe.changes))
    code = main(["try", "-c", "shop.toml", "--events", "events.jsonl", "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert list(_become(json.loads(out), recipe.becomes)) == recipe.becomes


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
    return {
        "topic": event["topic"],
        "key": event["key"],
        **({"headers": event["headers"]} if "headers" in named else {}),
        **row,
    }


def test_there_is_a_recipe_for_each_task() -> None:
    names = [recipe.name for recipe in RECIPES]
    assert len(set(names)) == len(names)
