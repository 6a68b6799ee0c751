"""The secrets of a part's options. Not in redaction.py: the reader process imports that one, and no pydantic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Secret, SecretStr

from psql_streamer.redaction import is_secret


def find_secrets(tree: Any, secret: bool = False) -> Iterator[str]:
    """The texts that stand under keys of secrets in nested tables and lists, and those of pydantic's types of secrets.

    secret: whether all of them are.
    """
    if isinstance(tree, SecretStr | Secret):
        yield from find_secrets(tree.get_secret_value(), secret=True)
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from find_secrets(value, secret or is_secret(str(key)))
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from find_secrets(value, secret)
    elif secret and str(tree):
        yield str(tree)
