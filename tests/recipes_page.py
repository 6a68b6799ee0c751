"""docs/recipes.md, taken apart: each recipe with its configuration, its changes, and what becomes of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "recipes.md"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Recipe:
    """python: modules by name. files: what else a recipe needs, by name. sql: what fills the database that a lookup
    reads. changes: lines. becomes: an object for each event, and for each change that none is made of.
    """

    name: str
    config: str
    python: Mapping[str, str]
    files: Mapping[str, str]
    sql: str
    changes: list[str]
    becomes: list[Any]


def recipes() -> Iterator[Recipe]:
    """Those of the page, in its order."""
    for section in PAGE.read_text().split("\n## ")[1:]:
        name = section.partition("\n")[0]
        blocks = _BLOCK.findall(section)
        [config] = [text for language, text in blocks if language == "toml"]
        changes, becomes = [text.splitlines() for language, text in blocks if language == "json"]
        modules = re.findall(r'function = "(\w+):', config)
        python = [text for language, text in blocks if language == "python"]
        files = re.findall(r"`([\w.]+\.\w+)`:\n\n?```(?:csv|text)\n(.*?)```", section, re.DOTALL)
        yield Recipe(
            name,
            config,
            dict(zip(modules, python, strict=True)),
            dict(files),
            "".join(text for language, text in blocks if language == "sql"),
            changes,
            [json.loads(line) for line in becomes],
        )
