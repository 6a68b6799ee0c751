"""What the position of a `postgres` source holds."""

from __future__ import annotations

from dataclasses import dataclass

from psql_streamer.lsn import NO_LSN, Lsn
from psql_streamer.model import Position


@dataclass(frozen=True, slots=True, order=True)
class WalPosition:
    """Where a replication session resumes. Later positions are greater.

    lsn: end LSN of the last committed transaction that lies wholly behind.
    commit_lsn, changes: of the transaction after it, how many changes are durable already (0, 0: none).
    """

    lsn: Lsn
    commit_lsn: Lsn = NO_LSN
    changes: int = 0

    @classmethod
    def from_position(cls, position: Position) -> WalPosition:
        """What a position holds. KeyError, TypeError or ValueError for one that another kind of source made."""
        data = position.data
        return cls(Lsn.parse(data["lsn"]), Lsn.parse(data["commit_lsn"]), int(data["changes"]))

    @property
    def position(self) -> Position:
        """The same for the core, which does not look inside."""
        return Position({"lsn": str(self.lsn), "commit_lsn": str(self.commit_lsn), "changes": self.changes}, str(self))

    def __str__(self) -> str:
        inside = f"+{self.changes} of {self.commit_lsn}" if self.changes else ""
        return f"{self.lsn}{inside}"
