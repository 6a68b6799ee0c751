"""Places in a binary log, and where an operator may want to start."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sources.mysql.gtid_sets import DomainPositions, Executed, GtidSet

FIRST_EVENT = 4
"""Where the first event of a file begins: behind its magic number."""

_PLACE = re.compile(r"([^\s/:,]+\.\d{6,}):(\d+)")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the binary log something is: the file, and the bytes before it there."""

    file: str
    offset: int

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"


_NUMBER = re.compile(r"(\d+)$")


@dataclass(frozen=True, slots=True, order=True)
class LogPlace:
    """A place in the binary log of one server: the number of the file, and the bytes before it there."""

    number: int
    offset: int
    file: str = field(compare=False, default="")

    @classmethod
    def from_place(cls, place: Place) -> LogPlace:
        """What a server says."""
        found = _NUMBER.search(place.file)
        return cls(int(found[1]) if found else 0, place.offset, place.file)

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"


def parse_override(text: str) -> tuple[str | None, Place]:
    """Executed GTIDs, and where they end in the binary log if that is what is given. ValueError when it is neither."""
    if place := _PLACE.fullmatch(text.strip()):
        return None, Place(place[1], int(place[2]))
    return str(parse_executed(text)), Place("", FIRST_EVENT)


def parse_executed(text: str) -> Executed:
    """Whichever of the two it is. ValueError when it is neither. An empty one is MariaDB's and MySQL's alike."""
    try:
        return DomainPositions.parse(text) if re.match(r"\s*\d+-\d+-\d+\s*(,|$)", text) else GtidSet.parse(text)
    except ValueError:
        raise ValueError(
            "is neither GTIDs (0-1-4711, or UUID:1-4711) nor a file and an offset (binlog.000007:4)"
        ) from None
