"""Where a source goes on: at its stored position, or once where the operator sends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.errors import PositionRefused
from psql_streamer.interfaces import Source
from psql_streamer.model import Position


@dataclass(frozen=True, slots=True)
class Resume:
    """position: None for where the server's own memory says. overriding: it is the operator's wish. moved: it is in
    front of the stored position, see Source.follow_stream.
    """

    position: Position | None
    overriding: bool = False
    moved: bool = False


def choose_position(source: Source, record: StoredPosition | None, found: Mapping[str, str]) -> Resume:
    """Where a source starts. found: its stream identity now.

    PositionRefused when the stored position belongs to another stream. An override that is followed for the first time
    is the operator's word that this is right.
    """
    override = find_pending_override(source, record)
    if override is not None:
        return Resume(override, overriding=True)
    if record is None:
        return Resume(None)
    position = require_same_stream(source, record.position, record.stream, found, what="the stored position")
    if record.was_ahead:
        raise PositionRefused(
            f"an earlier start found that the server ends in front of the stored position {record.position}: it was "
            "restored, or another server was asked. What has come up to that position since then would be left out",
            f"{_describe_choices(source)} (to this position, if a wrong server was asked)",
        )
    return Resume(position, moved=position != record.position)


def find_pending_override(source: Source, record: StoredPosition | None) -> Position | None:
    """Where the operator sends a source, if it has not gone there yet."""
    override = source.position_override
    return None if record is not None and record.override == str(override) else override


def require_same_stream(
    source: Source,
    position: Position | None,
    of_position: Mapping[str, str],
    found: Mapping[str, str],
    *,
    what: str = "position",
) -> Position | None:
    """Where to go on from a position: there, or in front of it (Source.follow_stream). PositionRefused when it belongs
    to another stream than the one that is there now.

    position: None for the place where the first session began. of_position: the stream identity that it was made with.
    what: messages call it so.
    """
    goes_on = position
    if position is not None:
        goes_on, of_position = source.follow_stream(position, of_position)
    differing = [key for key, value in of_position.items() if found.get(key, value) != value]
    if of_position and not of_position.keys() & found.keys():
        differing = list(of_position)  # a source of another kind had this name
    if differing:
        others = ", ".join(f'{key} "{of_position[key]}", {_describe_current(found.get(key))}' for key in differing)
        raise PositionRefused(
            f"{what} {position} was made with {others}", f"if that is right, {_describe_choices(source)}"
        )
    return goes_on


def _describe_choices(source: Source) -> str:
    return source.gap_remedy + (f"; or set {source.override_key} to where to go on" if source.override_key else "")


def _describe_current(value: str | None) -> str:
    return "of which this source knows nothing" if value is None else f'now "{value}"'
