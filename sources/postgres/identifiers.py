"""Names as SQL and the replication commands take them, whatever they hold."""

from __future__ import annotations


def quote_identifier(name: str) -> str:
    """`"name"`, with the quotes in it doubled."""
    return '"' + name.replace('"', '""') + '"'
