"""What the instances of a handler say together: every sink that names it has one of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from psql_streamer.interfaces import Status
from psql_streamer.model import Stats

_OF_THE_ENGINE = frozenset({"executors"})
"""Figures of what all instances share."""


def choose_worst_by_name(of_sinks: Iterable[Mapping[str, Status]]) -> Mapping[str, Status]:
    """The status of every handler: that of an instance that is not well, or of the first one."""
    worst: dict[str, Status] = {}
    for of_sink in of_sinks:
        for name, status in of_sink.items():
            if name not in worst or (worst[name].ok and not status.ok):
                worst[name] = status
    return worst


def sum_by_name(of_sinks: Iterable[Mapping[str, Stats]]) -> Mapping[str, Stats]:
    """The numbers of every handler, summed over its instances.

    What is not a number is the last instance's, and so is what is said of an engine that they share.
    """
    total: dict[str, dict[str, Any]] = {}
    for of_sink in of_sinks:
        for name, stats in of_sink.items():
            so_far = total.setdefault(name, {})
            for key, value in stats.items():
                summed = _is_number(value) and _is_number(so_far.get(key, 0)) and key not in _OF_THE_ENGINE
                so_far[key] = so_far.get(key, 0) + value if summed else value
    return total


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
