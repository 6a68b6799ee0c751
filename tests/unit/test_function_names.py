"""Functions are named by verbs. A machine knows no verbs, but it knows the prepositions that stand in their place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("psql_streamer", "sources", "sinks", "benchmarks")

PREPOSITIONS = {"after", "at", "before", "behind", "between", "by", "for", "in", "of", "on", "over", "per", "under"}
"""`to`, `from`, `as`, `with` and `without` begin names of conversions and of changed copies."""

GOALS = {"at_least", "at_most"}
"""Words of a table of goals, in benchmarks."""

PREDICATES = {"has", "is"}
"""May end in one: `is_of(topic)`."""


def functions() -> Iterator[str]:
    """Names of functions and methods, but those of properties."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            for holder in ast.walk(ast.parse(file.read_text())):
                if isinstance(holder, (ast.Module, ast.ClassDef)):
                    for one in holder.body:
                        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and not is_property(one):
                            yield one.name


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(one) for one in function.decorator_list)


def has_no_verb(name: str) -> bool:
    first, *others = name.strip("_").split("_")
    return name not in GOALS and (first in PREPOSITIONS or (others == ["of"] and first not in PREDICATES))


def test_no_function_is_named_by_a_preposition() -> None:
    names = list(functions())
    assert len(names) > 5000
    assert [name for name in names if has_no_verb(name)] == []


def test_a_preposition_in_place_of_a_verb_is_found() -> None:
    assert [name for name in ("of", "_place_of", "by_topic", "find_place", "is_of") if has_no_verb(name)] == [
        "of",
        "_place_of",
        "by_topic",
    ]
