"""The file: TOML -> Document, and `${...}` in its values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli

from psql_streamer.config.document import Document, KeyPath, list_leaves, show_path
from psql_streamer.config.problems import Problems
from psql_streamer.config.small_files import read_small_file
from psql_streamer.errors import ConfigError
from psql_streamer.redaction import is_secret

# Only ${ is special, so that the lone dollar of a password or a regex needs no care; $${ stands for ${ itself.
_EXPANSION = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_DEEPEST_SECTION = 50
_MOST_BYTES_OF_CONFIG, _MOST_BYTES_OF_VALUE = 16 << 20, 1 << 20
"""Of a configuration, and of a file that a value names."""
_DECLARED_TWICE = re.compile(r"Cannot declare (\(.*\)) twice")


def read(path: Path) -> Document:
    """The file as it is written; ConfigError when it cannot be read or is not TOML."""
    try:
        text = read_small_file(path, _MOST_BYTES_OF_CONFIG).decode("utf-8-sig")
    except OSError as error:
        reason = (error.strerror or "cannot be opened").lower()
        raise ConfigError([f"{path}: cannot be read: {reason}: name the file with -config FILE"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text: byte {error.start} is not part of any character"]) from error
    try:
        return Document(str(path), tomli.loads(text))
    except tomli.TOMLDecodeError as error:
        raise ConfigError([f"{path}: {_describe_toml_problem(str(error))}"]) from error
    except RecursionError as error:
        raise _make_depth_error(str(path)) from error


def require_shallow(document: Document) -> None:
    """ConfigError when a value is nested deeper than any option goes."""
    level: list[Any] = [document.tree]
    for _ in range(_DEEPEST_SECTION):
        level = [child for node in level for child in _list_children(node)]
    if level:
        raise _make_depth_error(document.name)


def refuse_nul(document: Document, problems: Problems) -> None:
    """A NUL ends a string for libpq, librdkafka and the file system, which would take a part of it for the whole."""
    for path, value in list_leaves(document.tree):
        if any(isinstance(text, str) and "\0" in text for text in (value, *path)):
            problems.add(path, "holds a NUL character, which no option takes: remove it")


def expand(document: Document, environ: Mapping[str, str], problems: Problems) -> None:
    """Replace `${NAME}`, `${NAME:-default}` and `${file:PATH}` in all values that the file gave."""
    for path, value in list_leaves(document.tree):
        if isinstance(value, str) and _EXPANSION.search(value) and not document.comes_from_variable(path):
            document.templates[path] = value
            _put(document.tree, path, _expand_value(document, path, value, environ, problems))


def _expand_value(document: Document, path: KeyPath, value: str, environ: Mapping[str, str], problems: Problems) -> str:
    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        inside, end = match.groups()
        if not end:
            problems.add(path, "holds a ${ without its }: write ${NAME}, or $${ for ${ itself")
            return ""
        if inside.startswith("file:"):
            document.hidden.add(path)
            return _read_file(inside.removeprefix("file:"), path, problems)
        variable = _VARIABLE.fullmatch(inside)
        if variable is None:
            problems.add(
                path, "holds a ${...} that is none of ${NAME}, ${NAME:-default}, ${file:PATH}; $${ stands for ${"
            )
            return ""
        name, default = variable[1], variable[2]
        if is_secret(name):
            document.hidden.add(path)
        if default is not None:
            return environ.get(name) or default
        if name not in environ:
            problems.add(path, f"${{{name}}} is not set: set the environment variable, or write ${{{name}:-default}}")
        return environ.get(name, "")

    return _EXPANSION.sub(replacement, value)


def _read_file(name: str, path: KeyPath, problems: Problems) -> str:
    try:
        return read_small_file(Path(name), _MOST_BYTES_OF_VALUE).decode().rstrip("\r\n")
    except OSError as error:
        problems.add(path, f"${{file:{name}}} cannot be read: {(error.strerror or 'cannot be opened').lower()}")
    except UnicodeDecodeError:
        problems.add(path, f"${{file:{name}}} is not UTF-8 text")
    return ""


def _put(tree: Any, path: KeyPath, value: str) -> None:
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


def _make_depth_error(name: str) -> ConfigError:
    return ConfigError(
        [f"{name}: a value is nested more than {_DEEPEST_SECTION} lists or tables deep: no option is so deep"]
    )


def _list_children(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def _describe_toml_problem(message: str) -> str:
    """tomli's message, with the place first: `line 4: sink.kafka1 is declared twice`."""
    what, _, place = message.rpartition(" (at ")
    line = place.partition(",")[0].removesuffix(")") or "the end"
    twice = _DECLARED_TWICE.fullmatch(what)
    if twice:
        path = show_path(tuple(re.findall(r"'((?:[^'\\]|\\.)*)'", twice[1])))
        return f"{line}: [{path}] is declared twice: every source and sink needs a name of its own"
    if what == "Cannot overwrite a value":
        return f"{line}: this key has a value already: remove one of the two"
    return f"{line}: is not TOML: {what[:1].lower()}{what[1:]}"
