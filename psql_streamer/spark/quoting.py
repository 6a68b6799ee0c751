"""Names and texts as Spark's SQL writes them."""

from __future__ import annotations


def quoted_name(name: str) -> str:
    """A column's name."""
    return "`" + name.replace("`", "``") + "`"


def quoted_text(text: str) -> str:
    """A string literal, in which a backslash escapes what follows it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
