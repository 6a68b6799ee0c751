"""The blocks of docs/extending.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)


def files() -> Mapping[str, str]:
    """The files of the package that the page describes: those whose first line is a comment with their path."""
    named = (text for text in blocks("python") if re.match(r"# \S+\.py\n", text))
    return {text.splitlines()[0].removeprefix("# "): text for text in named}
