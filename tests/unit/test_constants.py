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


def test_numbers_that_are_assigned_together_or_computed_are_seen(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "_A, _B = 1, -2\n(C, (D, e)) = 0xFF, (4, 5)\nE: int = max(2, 3)\nF = [1]\nG = frozenset({1})\nH = True\n"
    )
    assert dict(numbers(module)) == {"_A": "1", "_B": "-2", "C": "255", "D": "4", "E": "max(2, 3)"}


def numbers(path: Path) -> Iterator[tuple[str, str]]:
    """The constants of a module that are numbers: name and value."""
    for statement in ast.parse(path.read_text()).body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            yield from assigned(target, statement.value)


def assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, str]]:
    """The same of one target, which may be a tuple."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=True):
            yield from assigned(one, its)
    elif isinstance(target, ast.Name) and target.id.isupper() and is_number(value):
        yield target.id, ast.unparse(value)


def is_number(value: ast.expr) -> bool:
    """Whether it is a number, arithmetic of numbers, or what a function makes of them."""
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    if isinstance(value, ast.UnaryOp):
        return is_number(value.operand)
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("float", "int", "max", "min", "round")
    return (
        isinstance(value, ast.Constant) and isinstance(value.value, int | float) and not isinstance(value.value, bool)
    )
