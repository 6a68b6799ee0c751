"""The formats by name. docs/events.md shows an event of each that ships, docs/extending.md how to write another one."""

from __future__ import annotations

from psql_streamer.entry_points import Kind, import_class
from psql_streamer.events.format import Format


def format_class(name: str) -> type[Format]:
    """The format that `format` stands for: an entry point's name, or package.module:Class. NameRefused for none."""
    return import_class(Kind.FORMAT, name, Format)  # type: ignore[type-abstract]  # a base, not to be made
