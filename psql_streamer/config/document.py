"""A configuration as it was written: nested tables, and where each value came from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from psql_streamer.redaction import is_secret, redact

KeyPath = tuple[str | int, ...]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SHOWN = 80


@dataclass(slots=True)
class Document:
    """What was read.

    name: how messages call it. tree: nested dicts and lists, as TOML has them.
    variables: path -> the environment variable that set it. texts: the same -> that variable's text.
    templates: path -> a value's text before `${...}` was expanded. hidden: paths of values read from `${file:...}`.
    """

    name: str
    tree: dict[str, Any]
    variables: dict[KeyPath, str] = field(default_factory=dict)
    texts: dict[KeyPath, str] = field(default_factory=dict)
    templates: dict[KeyPath, str] = field(default_factory=dict)
    hidden: set[KeyPath] = field(default_factory=set)

    def name_place(self, path: KeyPath) -> str:
        """How a message names this place: `psql-streamer.toml: source.db1.batchSize`."""
        if path in self.variables:
            return f"environment variable {self.variables[path]}"
        return f"{self.name}: {show_path(path)}" if path else self.name

    def comes_from_variable(self, path: KeyPath) -> bool:
        """Whether an environment variable gave this value, or the list or table that it is in."""
        return any(path[:length] in self.texts for length in range(1, len(path) + 1))

    def is_secret(self, path: KeyPath) -> bool:
        """Whether the value at this path must not be shown."""
        return path in self.hidden or any(isinstance(key, str) and is_secret(key) for key in path)

    def show_value(self, path: KeyPath, value: Any) -> str:
        """The value, as a message may show it."""
        if self.is_secret(path):
            return "the value (not shown)"
        if isinstance(value, dict | list):
            return "a table" if isinstance(value, dict) else "a list"
        value = self.templates.get(path, value)
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)
        text = redact(text)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

    def list_secrets(self, path: KeyPath, hidden: bool) -> Iterator[str]:
        """Every text at this path and below that must not be shown. hidden: only those whose keys do not say so."""
        for place, value in list_leaves(self.tree):
            counts = place in self.hidden if hidden else self.is_secret(place)
            if counts and place[: len(path)] == path and str(value):
                yield str(value)


def show_path(path: KeyPath) -> str:
    """A path as TOML writes it: `sink.kafka1.kafka."sasl.username"`, `sink.kafka1.hosts[0]`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            bare = key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
            text += f".{bare}" if text else bare
    return text


def list_leaves(tree: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value that is neither a table nor a list, with its path."""
    if isinstance(tree, dict | list):
        for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
            yield from list_leaves(value, (*path, key))
    else:
        yield path, tree


def fold(key: str) -> str:
    """A key without case and separators, as names of environment variables have to be compared."""
    return re.sub(r"[^a-z0-9]", "", key.lower())
