"""Entry points -> classes. A third party's package and the parts that ship come through the same door.

A section's `type` is the name of an entry point (`postgres`), or `package.module:Class`. Classes are imported when
they are asked for, one by one: a pipeline that has no Spark imports none.
"""

from __future__ import annotations

import importlib
import re
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from psql_streamer.errors import ConfigError
from psql_streamer.interfaces import Handler, Sink, Source
from psql_streamer.nearest import nearest

PASSTHROUGH = "passthrough"
"""The handler name that stands for no handler at all."""


_CLASS_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class Kind(StrEnum):
    """The kinds of parts, as the sections of the configuration call them."""

    SOURCE = "source"
    HANDLER = "handler"
    SINK = "sink"

    @property
    def group(self) -> str:
        """The entry point group."""
        return f"psql_streamer.{self.value}s"


_NOT_IN_THIS_VERSION = {
    (Kind.SOURCE, "kafka"): "reading from Kafka is not available in this version: remove this section and its name "
    "from the sinks' sources, or leave this pipeline to the service that runs it now",
}


def names(kind: Kind) -> tuple[str, ...]:
    """The names that `type` (for handlers: `handlers`) may hold, sorted."""
    builtin = {PASSTHROUGH} if kind is Kind.HANDLER else set()
    return tuple(sorted(builtin | _points(kind).keys()))


def source_class(type_name: str) -> type[Source]:
    """The source of this name; ConfigError when there is none, or it cannot be imported."""
    found = _load(Kind.SOURCE, type_name)
    if isinstance(found, type) and issubclass(found, Source):
        return found
    raise _not_a(Kind.SOURCE, type_name)


def handler_class(type_name: str) -> type[Handler]:
    """The handler of this name; ConfigError when there is none, or it cannot be imported."""
    found = _load(Kind.HANDLER, type_name)
    if isinstance(found, type) and issubclass(found, Handler):
        return found
    raise _not_a(Kind.HANDLER, type_name)


def sink_class(type_name: str) -> type[Sink]:
    """The sink of this name; ConfigError when there is none, or it cannot be imported."""
    found = _load(Kind.SINK, type_name)
    if isinstance(found, type) and issubclass(found, Sink):
        return found
    raise _not_a(Kind.SINK, type_name)


def _load(kind: Kind, type_name: str) -> object:
    absent = _NOT_IN_THIS_VERSION.get((kind, type_name))
    if absent:
        raise ConfigError([absent])
    point = _entry_point(kind, type_name)
    remedy = "install the package that it is part of, or correct package.module:Class"
    try:
        found: object = importlib.import_module(point.module)
    except ImportError as error:
        raise ConfigError([f'"{type_name}" cannot be imported: {error}: {remedy}']) from error
    for attribute in point.attr.split("."):
        found = getattr(found, attribute, None)
    return found


def _entry_point(kind: Kind, type_name: str) -> EntryPoint:
    if _CLASS_PATH.fullmatch(type_name):
        return EntryPoint(type_name, type_name, kind.group)
    found = _points(kind).get(type_name)
    if found is None:
        raise ConfigError([f'"{type_name}" is not a known {kind}{nearest(type_name, names(kind))}'])
    return found


@cache
def _points(kind: Kind) -> dict[str, EntryPoint]:
    """The entry points by name. Looking for them reads every package's metadata, so it is done once."""
    return {point.name: point for point in entry_points(group=kind.group)}


def _not_a(kind: Kind, type_name: str) -> ConfigError:
    return ConfigError(
        [f'"{type_name}" is not a {kind}: it must be a subclass of psql_streamer.interfaces.{kind.title()}']
    )
