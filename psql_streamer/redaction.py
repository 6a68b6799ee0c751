"""What must never be shown: which keys hold secrets, and how passwords are taken out of a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

# Shorter pieces of a secret occur in any text.
_SHORTEST_PIECE = 4
# From so many characters on, chance does not put a secret into a word.
_LONG = 6

_SECRET_KEY = re.compile(
    r"dsn|passw|pwd|passphrase|secret|token|credential|jaas|user\.?info|private|(?:ssl|tls)\.?key(?!\.?location|store\.?location)",
    re.IGNORECASE,
)
# user:password@ of a URL. The password runs to the last @ before a space: people forget to encode one.
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+._-]*://[^\s:/@]*):\S*@", re.IGNORECASE)
# password=x of libpq and JAAS strings and of URL queries, "password": "x" of JSON, PGPASSWORD=x of shells, PWD=x of
# ODBC strings, which in a URL are PWD%3Dx.
# "(using password: NO)" is MySQL's, and has none. Neither has `${PASSWORD:-default}`, which messages of ours propose,
# nor the text behind a name in the plural: tables are named password_resets and api_tokens. Nor has a sentence behind a
# name and a colon ("public.token: has no key", "PG_PASSWORD: is not set"): one of its small words is no secret.
_SMALL_WORDS = (
    "a|an|the|it|its|this|there|which|is|are|was|were|has|have|had|does|do|did|must|may|can|cannot|not|no|nothing|only|"
    "unknown|sets|names|column|broker:"
)
_ASSIGNED_PASSWORD = re.compile(
    r"""((?<!using )\b[\w.-]*(?:passw(?:or)?d|pwd|passphrase|secret|token|jaas\.config)[\w.-]*["']?"""
    r"""\s*(?:=>?|:|%3D)\s*)"""
    r"""('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|\{(?:[^}]|\}\})*\}|(?<!s: )(?!-default\})"""
    rf"""(?:(?<!: )|(?!(?:{_SMALL_WORDS})\s))[^\s,;&]+)""",
    re.IGNORECASE | re.DOTALL,
)


def is_secret(key: str) -> bool:
    """Whether a key of this name holds something that is never shown, neither whole nor in part."""
    return _SECRET_KEY.search(key) is not None


def hide(tree: Any) -> Any:
    """Nested tables and lists with HIDDEN in place of all that stands under the key of a secret."""
    if isinstance(tree, Mapping):
        return {key: HIDDEN if is_secret(str(key)) else hide(value) for key, value in tree.items()}
    return [hide(value) for value in tree] if isinstance(tree, list) else tree


def gives_away(text: str, secret: str) -> bool:
    """Whether a text that others wrote holds a secret, or a part of it that would do.

    What is short is looked for as a word: inside of words it is chance.
    """
    values = re.sub(r"\b\w+\s*=", " ", secret)  # the names of name=value are no secret
    pieces = [piece for piece in re.split(r"\W+", values) if len(piece) >= _SHORTEST_PIECE]
    return any(_holds(text, piece) for piece in (secret, *pieces))


def _holds(text: str, secret: str) -> bool:
    if len(secret) >= _LONG:
        return secret in text
    return re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", text) is not None


def redact(text: str) -> str:
    """The text without the passwords in its URLs and in its key=value pairs."""
    return _ASSIGNED_PASSWORD.sub(rf"\1{HIDDEN}", _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text))
