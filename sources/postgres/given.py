"""How far what was given has come: a position goes on by itself where the server writes WAL without changes for us.

What lies between is in no topic. So where the server's WAL goes on elsewhere in front of the position, but behind what
was given, nothing is lost (see timelines.py).
"""

from __future__ import annotations

from psql_streamer.lsn import Lsn
from psql_streamer.model import Position
from psql_streamer.pgoutput.wal_position import WalPosition

_GIVEN = "given"
"""The key of a position. Those that were stored by earlier versions have it not."""


def read_given(position: Position) -> Lsn:
    """Nothing was given behind this. Where it was not stored, the position itself."""
    if _GIVEN in position.data:
        return Lsn.parse(position.data[_GIVEN])
    return find_given(WalPosition.from_position(position))


def find_given(there: WalPosition) -> Lsn:
    """The same behind a batch with changes, where the stream has come to."""
    return Lsn(max(there.lsn, there.commit_lsn + 1 if there.changes else 0))


def stamp_given(position: Position, given: Lsn) -> Position:
    """A position that says how far what was given has come."""
    return Position({**position.data, _GIVEN: str(given)}, position.shown)


def move_back(position: Position, lsn: Lsn) -> Position:
    """The position at an LSN in front of it, behind which nothing was given."""
    moved = WalPosition(lsn).position
    return Position({**position.data, **moved.data}, moved.shown)
