"""The functions of the walk in docs/architecture.md exist under the names that it gives them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.unit.test_import_direction import modules

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
WALK = PAGE.partition("## From bytes to Kafka\n")[2].partition("\n## ")[0]
NAMES = list(dict.fromkeys(re.findall(r"`((?:\w+\.)+\w+)`", WALK)))


def meant_by(name: str) -> Iterator[object]:
    """What stands under a name in a module that it calls by the end of its own name."""
    words = name.split(".")
    for at in range(1, len(words)):
        for module, _ in modules():
            if f".{module}".endswith("." + ".".join(words[:at])):
                yield from found_in(module, words[at:])


def found_in(module: str, words: list[str]) -> Iterator[object]:
    thing: object = import_module(module)
    for word in words:
        thing = getattr(thing, word, None)
    if thing is not None:
        yield thing


def test_the_walk_names_functions() -> None:
    assert len(NAMES) > 20


@pytest.mark.parametrize("name", NAMES)
def test_every_function_of_the_walk_exists(name: str) -> None:
    assert any(map(callable, meant_by(name))), f"{name} is nowhere"
