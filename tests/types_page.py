"""The first table of docs/types.md out of the table of types: `python -m tests.types_page` writes it."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from psql_streamer.pgtype import JsonForm
from psql_streamer.pgtypes.builtin import BUILT_IN

PAGE = Path(__file__).parents[1] / "docs" / "types.md"

HEAD = "| PostgreSQL | JSON |\n|---|---|\n"

_TABLE = re.compile(f"{re.escape(HEAD)}(\\|.*\\n)*")


def page(text: str) -> str:
    """The page with the table as the types are in the code."""
    by_form: dict[JsonForm, list[str]] = defaultdict(list)
    for kind in BUILT_IN:
        by_form[kind.form].append(f"`{kind.name}`")
    rows = [f"| {', '.join(by_form[form])} | {form.value} |\n" for form in JsonForm if form in by_form]
    return _TABLE.sub(lambda _: HEAD + "".join(rows), text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
