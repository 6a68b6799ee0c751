"""How far what was given has come: a position goes on by itself where the server writes WAL without changes for us.

What lies between is in no topic. So where the server's WAL goes on elsewhere in front of the position, but behind what
was given, nothing is lost (see timelines.py).
"""

from __future__ import annotations

from dataclasses import replace

from psql_streamer.lsn import Lsn
from psql_streamer.model import Batch, Position
from psql_streamer.pgoutput.wal_position import WalPosition

_GIVEN = "given"
"""The key of a position. Those that were stored by earlier versions have it not."""


def read_given(position: Position) -> Lsn:
    """Nothing was given behind this. Where it was not stored, the position itself."""
    if _GIVEN in position.data:
        return Lsn.parse(position.data[_GIVEN])
    there = WalPosition.from_position(position)
    return Lsn(max(there.lsn, there.commit_lsn + 1 if there.changes else 0))


def stamp_given(batch: Batch, given: Lsn) -> Batch:
    """A batch whose position says how far what was given has come. given: before it."""
    reached = given if batch.idle else read_given(batch.position)
    position = Position({**batch.position.data, _GIVEN: str(reached)}, batch.position.shown)
    return replace(batch, position=position)


def move_back(position: Position, lsn: Lsn) -> Position:
    """The position at an LSN in front of it, behind which nothing was given."""
    moved = WalPosition(lsn).position
    return Position({**position.data, **moved.data}, moved.shown)
