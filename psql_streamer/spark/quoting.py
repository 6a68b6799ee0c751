"""Names and texts as Spark's SQL writes them."""

from __future__ import annotations


def quote_name(name: str) -> str:
    """A column's name."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """A string literal, in which a backslash escapes what follows it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
