"""What a registry says, for messages."""

from __future__ import annotations

from psql_streamer.name_counts import escape_unprintable
from psql_streamer.redaction import gives_away
from psql_streamer.registry.options import RegistryOptions

_MOST_OF_WORDS = 500
"""Characters. The begin names the first difference, and the end of a long text the version and the rule."""


def quote_words(words: object, options: RegistryOptions) -> str:
    """The words on one line, short, and without what steers a terminal; "" for none."""
    if not isinstance(words, str) or not words.strip():
        return ""
    secrets = (options.password.get_secret_value(), options.token.get_secret_value())
    if any(secret and gives_away(words, secret) for secret in secrets):
        return ": its words are not shown, since they have a part of password or token"
    # What is escaped is longer.
    return f': it says "{_shorten(escape_unprintable(_shorten(" ".join(words.split()))))}"'


def _shorten(text: str) -> str:
    half = _MOST_OF_WORDS // 2
    return text if len(text) <= _MOST_OF_WORDS else f"{text[:half]} ... {text[-half:]}"
