"""Sinks that may write what their source reads: its events would never end.

Where sections spell the brokers alike, loading the configuration finds them; else whoever has asked the brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from psql_streamer.interfaces import Finding, Severity, Sink, TopicsRead


def find_circles(
    sinks: Iterable[Sink], source: str, read: TopicsRead | None, are_allowed: bool
) -> Iterator[tuple[Sink, Finding]]:
    """Each sink that may write what a source reads, with what is to be said. source: its name. Raises SinkError.

    are_allowed: whether it is the user's wish, and a warning.
    """
    if read is None:
        return
    severity = Severity.WARNING if are_allowed else Severity.ERROR
    for sink in sinks:
        if topic := sink.find_circle(read):
            where = f'topic "{topic}", which source.{source} reads in the same cluster'
            yield sink, Finding(severity, f"may write to {where}: its events would never end", _REMEDY)


_REMEDY = "give the topics other names"
