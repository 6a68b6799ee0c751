"""Spark's settings in files that only this user can read; a command line can be read by every user of the machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
_KEY_ESCAPES = {**_ESCAPES, " ": "\\ ", ":": "\\:", "=": "\\=", "#": "\\#", "!": "\\!"}


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """A file for spark-submit's --properties-file, in the format of java.util.Properties."""
    _write(
        path, "".join(f"{_escape_text(key, _KEY_ESCAPES)}={_escape_value(value)}\n" for key, value in settings.items())
    )


def write_java_options(path: Path, options: str) -> None:
    """A file of options for the JVM, one a line, to be named with @. options: as a shell would take them."""
    _write(path, "".join(f'"{_escape_option(option)}"\n' for option in shlex.split(options)))


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _escape_value(text: str) -> str:
    """Spaces at the beginning would be skipped."""
    spaces = len(text) - len(text.lstrip(" "))
    return "\\ " * spaces + _escape_text(text[spaces:], _ESCAPES)


def _escape_text(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(one) or (one if 0x20 <= ord(one) < 0x7F else _escape_unicode(one)) for one in text)


def _escape_unicode(one: str) -> str:
    units = one.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _escape_option(option: str) -> str:
    """In double quotes a backslash is an escape (java(1), "argument files")."""
    return option.replace("\\", "\\\\").replace('"', '\\"')
