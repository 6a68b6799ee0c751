"""The numbers that decide how large batches are and who waits: on their page, with a unit, used, and light to load."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from psql_streamer import batching

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "batching.md").read_text()
MODULE = ROOT / "psql_streamer" / "batching.py"
CONSTANTS = {name: value for name, value in vars(batching).items() if name.isupper()}
COUNTED = ("ROWS", "CELLS", "FRAMES", "RECORDS", "BATCHES")


def written(name: str, value: float) -> str:
    """A constant's value as the page has it."""
    if name.endswith("_BYTES_PER_SECOND"):
        return f"{written('_BYTES', value)}/s"
    if name.endswith("_SECONDS"):
        return f"{value * 1000:g} ms"
    if name.endswith("_BYTES"):
        return f"{value / (1 << 20):g} MB" if value >= 1 << 20 else f"{value / (1 << 10):g} kB"
    assert name.endswith(COUNTED), f"{name} does not say its unit"
    return f"{value:,}"


def documented() -> dict[str, str]:
    """What is said of each constant in the module."""
    body = ast.parse(MODULE.read_text()).body
    return {
        before.targets[0].id: str(after.value.value)
        for before, after in pairwise(body)
        if isinstance(before, ast.Assign) and isinstance(before.targets[0], ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }


@pytest.mark.parametrize("name", CONSTANTS)
def test_the_page_names_every_constant_with_its_value_and_the_stage_that_it_is_for(name: str) -> None:
    assert re.search(rf"^\| `{name}` \| {re.escape(written(name, CONSTANTS[name]))} \|", PAGE, re.MULTILINE)
    stages = PAGE.partition("## Stage by stage")[2].partition("\n## ")[0]
    assert f"`{name}`" in stages


def test_the_page_names_no_constant_that_is_not_there() -> None:
    assert set(re.findall(r"`([A-Z_]{4,})`", PAGE)) == set(CONSTANTS)


@pytest.mark.parametrize("name", CONSTANTS)
def test_every_constant_has_its_reason_and_the_decision_behind_it_the_same_as_on_the_page(name: str) -> None:
    (row,) = re.findall(rf"^\| `{name}` \|.*$", PAGE, re.MULTILINE)
    reason = " ".join(documented()[name].split())
    assert len(reason) > 40
    assert set(re.findall(r"\b0\d\d\b", reason.partition("(decision")[2])) == set(re.findall(r"\[(0\d\d)\]", row))


def test_the_page_has_the_defaults_of_the_options() -> None:
    settings = (ROOT / "psql-streamer.toml").read_text()
    options = re.findall(r"^\| `(\w+)` \| .* \| `(.+)` \|$", PAGE, re.MULTILINE)
    assert len(options) == 8
    assert [f"#{key} = {default}" for key, default in options if f"#{key} = {default}\n" not in settings] == []


def test_every_constant_is_used() -> None:
    sources = [path for folder in ("psql_streamer", "sources", "sinks") for path in (ROOT / folder).rglob("*.py")]
    text = "".join(path.read_text() for path in sources if path != MODULE)
    assert [name for name in CONSTANTS if not re.search(rf"\b{name}\b", text)] == []


def test_the_reader_process_loads_nothing_large() -> None:
    large = ("numpy", "pyarrow", "pydantic", "ssl")
    program = f"import sys, sources.postgres.reader_program; print([name for name in {large} if sys.modules.get(name)])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
