"""The Dockerfile as its builder reads it: instructions, and what .dockerignore leaves of the context."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Instruction(NamedTuple):
    """One instruction; stage counts the FROM lines from 0."""

    stage: int
    keyword: str
    argument: str


def instructions() -> list[Instruction]:
    """Every instruction of the Dockerfile, continuation lines joined by a space."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found: list[Instruction] = []
    stage = -1
    for line in filter(None, map(str.strip, joined.splitlines())):
        keyword, _, argument = line.partition(" ")
        stage += keyword == "FROM"
        found.append(Instruction(stage, keyword, argument.strip()))
    return found


def argument(keyword: str) -> str:
    """The argument of the final stage's only instruction of this kind."""
    last = instructions()[-1].stage
    (found,) = [each.argument for each in instructions() if each.stage == last and each.keyword == keyword]
    return found


def image_environment() -> dict[str, str]:
    """What the image sets."""
    return dict(word.split("=", 1) for word in shlex.split(argument("ENV")))


def copied(stage: int) -> list[str]:
    """The paths that the COPY instructions of a stage take from the build context."""
    sources: list[str] = []
    for instruction in instructions():
        if instruction[:2] == (stage, "COPY") and "--from=" not in instruction.argument:
            words = [word for word in instruction.argument.split() if not word.startswith("--")]
            sources += words[:-1]
    return sources


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a path out of the build context: the last line that matches it decides.

    A line matches a path, or any folder that the path lies in; `**/` stands for any number of folders, none included.
    """
    out = False
    places = [path, *(str(parent) for parent in Path(path).parents if parent != Path())]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        name = pattern.removeprefix("!")
        wanted = name.removeprefix("**/")
        if any(_matches(place, wanted) or (name != wanted and _matches(Path(place).name, wanted)) for place in places):
            out = not pattern.startswith("!")
    return out


def _matches(path: str, pattern: str) -> bool:
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))
