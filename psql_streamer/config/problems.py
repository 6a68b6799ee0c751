"""What is wrong with a configuration: collected, and worded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from psql_streamer.config.document import Document, KeyPath
from psql_streamer.options import UNKNOWN_NAME
from psql_streamer.redaction import gives_away, redact

_REQUIREMENTS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "enum": "must be one of {expected}",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be one of {expected}",
    "mapping_type": "must be a table",
    "model_type": "must be a table",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must have at most {max_length} characters",
    "string_type": "must be a string",
    "tuple_type": "must be a list",
}
"""pydantic's error types, in the words of a TOML file."""

_NOT_SHOWN = "is not allowed (the reason is not shown, it would show a part of a secret)"


class Problems:
    """The problems found so far, a line each."""

    def __init__(self, document: Document) -> None:
        self.lines: list[str] = []
        self._document = document
        self._paths: set[KeyPath] = set()

    def add(self, path: KeyPath, text: str) -> None:
        """Something is wrong at this place."""
        self._paths.add(path)
        line = f"{self._document.name_place(path)}: {text}"
        if line not in self.lines:
            self.lines.append(line)

    def add_all(self, path: KeyPath, texts: Iterable[str]) -> None:
        """Several things are wrong at this place."""
        for text in texts:
            self.add(path, text)

    def add_invalid(self, path: KeyPath, value: Any, errors: Sequence[ErrorDetails], ours: bool) -> None:
        """A value is not what its option allows; several errors are the alternatives that it could have been.

        ours: the validators are this project's.
        """
        if path in self._paths:
            return  # what is wrong there has been said
        shown = self._document.show_value(path, value)
        first = errors[0]
        if first["type"] == "missing":
            self.add(path, "is required")
        elif first["type"] == "value_error":
            self.add(path, self._describe_refusal(path, value, shown, str(first["ctx"]["error"]), ours))
        elif first["type"] == UNKNOWN_NAME:
            secret = self._document.is_secret(path)
            self.add(path, _NOT_SHOWN if secret else self._describe_refusal(path, value, shown, first["msg"], ours))
        elif first["type"] in ("too_short", "string_too_short"):
            self.add(path, "must not be empty")
        else:
            requirements = list(dict.fromkeys(map(_describe_requirement, errors)))
            *others, last = [requirements[0], *(text.removeprefix("must be ") for text in requirements[1:])]
            allowed = f"{', '.join(others)} or {last}" if others else last
            self.add(path, f"{shown} is not allowed: {allowed}")

    def _describe_refusal(self, path: KeyPath, value: Any, shown: str, message: str, ours: bool) -> str:
        """A part's own words."""
        message = self._hide_secrets(path, value, message, ours)
        if isinstance(value, dict | list) or message is _NOT_SHOWN:
            return message
        return f"{shown} {message}" if message.startswith("is ") else f"{shown} is not allowed: {message}"

    def _hide_secrets(self, path: KeyPath, value: Any, message: str, ours: bool) -> str:
        """A message that holds a secret is not shown at all: where stars stand would tell what stood there.

        A validator of ours quotes nothing of a key that holds secrets, so that what it says is the same for each; one
        of a whole section may quote a key that holds none, into which `${file:...}` has brought one.
        """
        constant = ours and not isinstance(value, dict | list)
        secrets = () if constant else self._document.list_secrets(path, hidden=ours)
        return _NOT_SHOWN if any(gives_away(message, secret) for secret in secrets) else redact(message)


def _describe_requirement(error: ErrorDetails) -> str:
    template = _REQUIREMENTS.get(error["type"])
    if template is None:
        return error["msg"][:1].lower() + error["msg"][1:]
    return template.format_map(error.get("ctx", {})).replace("'", '"')
