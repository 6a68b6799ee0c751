"""Commands as messages name them: what an operator pastes works on the configuration that is in use."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_file: Path | None = None


def remember_file(path: Path | None) -> None:
    """Say which file this process was started with, before any message is made; None: the environment alone."""
    global _file
    _file = path


@contextmanager
def remembering_file(path: Path | None) -> Iterator[None]:
    """`remember_file` for as long as a command runs: whoever calls commands in one process has each by itself."""
    before = _file
    remember_file(path)
    try:
        yield
    finally:
        remember_file(before)


def get_file() -> Path | None:
    """The file that this process was started with, for a process of its own that makes messages."""
    return _file


def show_command(*words: str) -> str:
    """A command for a shell in the folder that this process was started in. words: its subcommand and arguments."""
    of_file = () if _file is None else ("-config", str(_file))
    return shlex.join(["psql-streamer", *words, *of_file])
