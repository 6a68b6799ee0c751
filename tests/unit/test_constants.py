"""A number's name says by itself what it is, whatever module it stands in."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.unit.test_import_direction import modules


def test_two_numbers_of_one_name_are_the_same_number() -> None:
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module, path in modules():
        for name, number in numbers(path):
            found[name][number].add(module)
    assert found
    assert {name: dict(values) for name, values in found.items() if len(values) > 1} == {}


def numbers(path: Path) -> Iterator[tuple[str, str]]:
    """The constants of a module that are numbers: name and value."""
    for statement in ast.parse(path.read_text()).body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            name = target.id if isinstance(target, ast.Name) else ""
            if name.isupper() and is_number(statement.value):
                yield name, ast.unparse(statement.value)


def is_number(value: ast.expr) -> bool:
    """Whether it is a number, or arithmetic of numbers."""
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    return (
        isinstance(value, ast.Constant) and isinstance(value.value, int | float) and not isinstance(value.value, bool)
    )
