"""The parts of a pipeline by name: what `type`, and an entry of `handlers`, stands for."""

from __future__ import annotations

from typing import TypeVar

from psql_streamer.entry_points import PASSTHROUGH, Kind, NameRefused, import_class, list_names
from psql_streamer.errors import ConfigError
from psql_streamer.interfaces import Handler, Sink, Source

__all__ = ["PASSTHROUGH", "Kind", "list_names", "load_handler_class", "load_sink_class", "load_source_class"]

_Part = TypeVar("_Part", Source, Handler, Sink)


def load_source_class(type_name: str) -> type[Source]:
    """The source of this name; ConfigError when there is none, or it cannot be imported."""
    return _load_class(Kind.SOURCE, type_name, Source)  # type: ignore[type-abstract]  # a base, not to be made


def load_handler_class(type_name: str) -> type[Handler]:
    """The handler of this name; ConfigError when there is none, or it cannot be imported."""
    return _load_class(Kind.HANDLER, type_name, Handler)  # type: ignore[type-abstract]


def load_sink_class(type_name: str) -> type[Sink]:
    """The sink of this name; ConfigError when there is none, or it cannot be imported."""
    return _load_class(Kind.SINK, type_name, Sink)  # type: ignore[type-abstract]


def _load_class(kind: Kind, type_name: str, base: type[_Part]) -> type[_Part]:
    try:
        return import_class(kind, type_name, base)
    except NameRefused as error:
        raise ConfigError([f'"{type_name}" {error}']) from error
