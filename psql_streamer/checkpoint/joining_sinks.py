"""Sinks that take from a source which has come further without them. Pure.

The position of a source is that of the sinks that took from it. One that is added, or is back after a while, gets what
comes behind it: nobody else can tell that something is missing in front of that.
"""

from __future__ import annotations

from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.interfaces import Finding, Severity
from psql_streamer.shown_commands import show_command


def find_lack(sink: str, source: str, stored: StoredPosition | None, *, takes_snapshots: bool) -> Finding | None:
    """What a sink lacks of a source; None for nothing, and where it is not known who took from the source.

    sink, source: names. stored: of the source. takes_snapshots: whether the source does.
    """
    if stored is None or not stored.sinks or sink in stored.sinks:
        return None
    command = show_command("snapshot", "start", "--source", source)
    return Finding(
        Severity.WARNING,
        f"source.{source} has come to {stored.position} without it: it lacks what came up to there, unless it had "
        "another name then",
        f"{command} sends all rows anew, to all sinks of the source"
        if takes_snapshots
        else "give it a source of its own, which begins where you say",
    )
