"""Regular expressions of Debezium's for tables and columns, as entries of a configuration file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_NAME = re.compile(r"[\w$-]+(?:\.[\w$-]+)*")
_ALL_OF_SCHEMA = re.compile(r"([\w$-]+)(?:\\?\.)(?:\.?\*)")


def translate_list(value: str) -> Sequence[str]:
    """The entries of a comma-separated list."""
    return [translate_expression(one) for one in _split(value, ",")]


def translate_expression(expression: str) -> str:
    """A name, a glob, or a regular expression between slashes. Debezium's fit a whole name."""
    plain = expression.replace("\\.", ".")
    if _NAME.fullmatch(plain):
        return plain
    schema = _ALL_OF_SCHEMA.fullmatch(expression)
    return f"{schema[1]}.*" if schema else f"/^(?:{expression})$/"


def translate_keys(value: str) -> Iterator[tuple[str, list[str]]]:
    """`message.key.columns`: the columns of each table."""
    for one in _split(value, ";"):
        table, _, columns = one.rpartition(":")
        yield translate_expression(table), _split(columns, ",")


def _split(value: str, at: str) -> list[str]:
    return [one for one in map(str.strip, value.split(at)) if one]
