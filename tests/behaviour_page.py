"""docs/behaviour.md names the tests that hold each of its lines; `python -m tests.behaviour_page` writes them in.

What a line says is written by hand; which tests hold it is said by their marker, `@pytest.mark.behaviour("D4")`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "behaviour.md"

_LINE = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \|.*\|$", re.MULTILINE)


def marked() -> dict[str, list[str]]:
    """Id -> tests that are marked with it, as pytest names them from the repository's root."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.glob("*/test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                for one in _ids(node):
                    found[one].append(f"tests/{path.relative_to(TESTS)}::{node.name}")
    return found


def listed(text: str) -> dict[str, list[str]]:
    """Id -> tests that a page names for it."""
    return {line[1]: re.findall(r"`(tests/[^`]+)`", line[0]) for line in _LINE.finditer(text)}


def page(text: str) -> str:
    """The page with the tests of every line as they are marked now."""
    tests = marked()

    def line(found: re.Match[str]) -> str:
        names = "<br>".join(f"`{name}`" for name in tests[found[1]])
        return f"| {found[1]} | {found[2]} | {names} |"

    return _LINE.sub(line, text)


def _ids(test: ast.FunctionDef) -> Iterator[str]:
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.behaviour":
            yield from (str(ast.literal_eval(argument)) for argument in decorator.args)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
