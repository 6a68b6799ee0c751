"""docs/behaviour.md names the tests that check each of its promises; `python -m tests.behaviour_page` writes its index.

What is promised is written by hand and ends with its id, [D4]. Which tests check it is said by their marker,
`@pytest.mark.behaviour("D4")`, or by that of their file, `pytestmark = pytest.mark.behaviour("O1")`, or in a list.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "behaviour.md"

_PROMISE = re.compile(r"\[([A-Z]\d+)\]")
_ROW = re.compile(r"^\| ([A-Z]\d+) \|.*\|$", re.MULTILINE)
_HEAD = "| id | tests |\n|---|---|\n"


def marked() -> dict[str, list[str]]:
    """Id -> tests and files that are marked with it, by their paths below tests/."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.glob("*/test_*.py")):
        file = str(path.relative_to(TESTS))
        for node in ast.parse(path.read_text()).body:
            for one in _ids(node):
                found[one].append(f"{file}::{node.name}" if isinstance(node, ast.FunctionDef) else file)
    return found


def promised(text: str) -> list[str]:
    """The ids of a page's promises, in its order."""
    return _PROMISE.findall(text)


def indexed(text: str) -> dict[str, list[str]]:
    """Id -> tests that a page's index names for it."""
    return {row[1]: re.findall(r"`([^`]+)`", row[0]) for row in _ROW.finditer(text)}


def page(text: str) -> str:
    """The page with the index of its promises, as tests are marked now."""
    tests = marked()
    rows = [f"| {one} | {'<br>'.join(f'`{test}`' for test in tests[one])} |\n" for one in promised(text)]
    return text.partition(_HEAD)[0] + _HEAD + "".join(rows)


def _ids(node: ast.stmt) -> Iterator[str]:
    for mark in _marks(node):
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.behaviour":
            yield from (str(ast.literal_eval(argument)) for argument in mark.args)


def _marks(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.FunctionDef):
        return node.decorator_list
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
        return node.value.elts if isinstance(node.value, ast.List) else [node.value]
    return []


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
