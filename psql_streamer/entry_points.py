"""Entry points -> classes. A third party's package and the parts that ship come through the same door.

A name is that of an entry point (`postgres`, `debezium`), or `package.module:Class`. Classes are imported when they are
asked for, one by one: a pipeline that has no Spark imports none.
"""

from __future__ import annotations

import importlib
import re
from contextlib import suppress
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from psql_streamer.nearest import suggest_nearest
from psql_streamer.redaction import redact
from psql_streamer.shortage import explain_shortage

Base = TypeVar("Base")

PASSTHROUGH = "passthrough"
"""The handler name that stands for no handler at all."""

_INSTALL = "run `pip install .` in its folder, with the Python that runs it"
_CLASS_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class Kind(StrEnum):
    """The kinds of parts, as the configuration calls them."""

    SOURCE = "source"
    HANDLER = "handler"
    SINK = "sink"
    FORMAT = "format"

    @property
    def group(self) -> str:
        """The entry point group."""
        return f"psql_streamer.{self.value}s"


class NameRefused(ValueError):
    """A name stands for no class that can be used. The text says what it is not, and does not quote it."""


def list_names(kind: Kind) -> tuple[str, ...]:
    """The names that the configuration may hold, sorted."""
    builtin = {PASSTHROUGH} if kind is Kind.HANDLER else set()
    return tuple(sorted(builtin | _read_entry_points(kind).keys()))


def import_class(kind: Kind, name: str, base: type[Base]) -> type[Base]:
    """The class of this name, a subclass of `base`. NameRefused when there is none, or it cannot be imported."""
    found = _import_object(_look_up_entry_point(kind, name))
    if isinstance(found, type) and issubclass(found, base):
        return found
    raise NameRefused(f"is not a {kind}: it must be a subclass of {base.__module__}.{base.__qualname__}")


def _import_object(point: EntryPoint) -> object:
    """What it stands for; None where the module has nothing of this name."""
    try:
        found: object = importlib.import_module(point.module)
    except ImportError as error:
        _refuse_shortage(error)
        remedy = "install the package that it is part of, or correct package.module:Class"
        raise NameRefused(f"cannot be imported: {error}: {remedy}") from error
    except (Exception, SystemExit) as error:  # the module is a third party's, and runs when it is imported
        _refuse_shortage(error)
        what = f"{type(error).__name__}: {redact(str(error))}"
        raise NameRefused(f"cannot be imported: {what}: correct {point.module}, or install another version") from error
    for attribute in (point.attr or "").split("."):
        found = getattr(found, attribute, None)
    return found


def _refuse_shortage(error: BaseException) -> None:
    """StreamerError where the machine does not give what the import takes: no other name would help."""
    shortage = explain_shortage(error)
    if shortage is not None:
        raise shortage from error


def _look_up_entry_point(kind: Kind, name: str) -> EntryPoint:
    if _CLASS_PATH.fullmatch(name):
        return EntryPoint(name, name, kind.group)
    found = _read_entry_points(kind).get(name, ())
    if not found and not _read_entry_points(kind):
        raise NameRefused(f"cannot be found, as no {kind} can: psql-streamer is not installed here: {_INSTALL}")
    if not found:
        raise NameRefused(f"is not a known {kind}{_suggest_name(kind, name)}")
    if len(found) > 1:
        classes = " or ".join(sorted(point.value for point in found))
        raise NameRefused(f"is a {kind} of several packages: write {classes} in its place")
    return found[0]


def _suggest_name(kind: Kind, name: str) -> str:
    """What to say after a name that is not known. Classes of sources and sinks say by `also_called` who is meant."""
    word = re.sub("[^a-z]", "", name.lower())
    for known in list_names(kind) if kind in (Kind.SOURCE, Kind.SINK) else ():
        with suppress(NameRefused):  # another one may be meant
            if word in getattr(import_class(kind, known, object), "also_called", ()):
                return f"; did you mean {known}?"
    return suggest_nearest(name, list_names(kind))


@cache
def _read_entry_points(kind: Kind) -> dict[str, tuple[EntryPoint, ...]]:
    """The entry points by name: several where packages have given one name to different classes.

    Looking for them reads every package's metadata, so it is done once.
    """
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=kind.group):
        found.setdefault(point.name, {}).setdefault(point.value, point)
    return {name: tuple(points.values()) for name, points in found.items()}
