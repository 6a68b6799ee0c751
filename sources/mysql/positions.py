"""What the position of a `mysql` source holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psql_streamer.binlog.decoded import OpenTransaction, Standing
from psql_streamer.binlog.events import Gtid
from psql_streamer.errors import PositionRefused
from psql_streamer.model import Position
from psql_streamer.shown_commands import show_command
from sources.mysql.gtid_sets import Executed
from sources.mysql.places import Place, parse_executed, parse_override

_NUMBER = re.compile(r"(\d+)$")


@dataclass(frozen=True, slots=True)
class BinlogPosition:
    """Where a stream goes on.

    executed: the transactions that lie wholly behind; None where they have no GTIDs: then it is the place that counts.
    place: where the last of them ends, on the server that it was read from; with GTIDs it may lie further ahead.
    server: that one, as describe_server has it. begun: when the file of the place was begun, in seconds since 1970; 0
    where nobody knows. open: of the transaction after them, what is delivered already. tables: by which choice of
    tables its changes were counted, as Wanted.choice has it; empty where nobody knows.
    """

    executed: str | None
    place: Place
    server: str = ""
    open: OpenTransaction | None = None
    tables: str = field(default="", compare=False)
    begun: int = 0

    @classmethod
    def from_position(cls, position: Position) -> BinlogPosition:
        """What a position holds. KeyError, TypeError or ValueError for one that another kind of source made."""
        data = position.data
        executed = data["executed"]
        if executed is not None:
            parse_executed(executed)
        place = Place(str(data["file"]), int(data["offset"]))
        opened = data["open"]
        tables = "" if opened is None else str(opened.get("tables", ""))
        return cls(executed, place, str(data["server"]), _open(opened), tables, int(data.get("begun", 0)))

    @property
    def position(self) -> Position:
        """The same for the core, which does not look inside."""
        held = self.open
        inside = held and {
            "source": held.gtid.source if held.gtid else None,
            "commit": held.commit,
            "changes": held.changes,
            "tables": self.tables,
            "file": held.file,
        }
        return Position(
            {
                "executed": self.executed,
                "file": self.place.file,
                "offset": self.place.offset,
                "begun": self.begun,
                "server": self.server,
                "open": inside,
            },
            str(self),
        )

    def advance_to(self, standing: Standing, executed: str | None) -> BinlogPosition:
        """The same source later."""
        place = Place(standing.file, standing.position)
        return BinlogPosition(executed, place, self.server, standing.open, self.tables, standing.begun)

    def has_reached(self, mark: BinlogPosition) -> bool:
        """Whether everything up to the mark lies before this."""
        if self.executed is None or mark.executed is None:
            return self._place_order() >= mark._place_order()
        kind = type(parse_executed(self.executed or mark.executed))
        mine: Executed = kind.parse(self.executed)
        return mine.includes(kind.parse(mark.executed)) and self._has_changes(mine, mark.open)

    def _has_changes(self, mine: Executed, wanted: OpenTransaction | None) -> bool:
        if wanted is None or wanted.gtid is None or mine.holds(*wanted.gtid):
            return True
        held = self.open
        return held is not None and held.gtid == wanted.gtid and held.changes >= wanted.changes

    def _place_order(self) -> tuple[int, int, int]:
        found = _NUMBER.search(self.place.file)
        return (int(found[1]) if found else 0, self.place.offset, self.open.changes if self.open else 0)

    @property
    def behind(self) -> str:
        """What lies wholly behind, as positionOverride takes it."""
        return self.executed or str(self.place)

    def __str__(self) -> str:
        where = str(self.place) if self.executed is None else self.executed or "the first transaction"
        return f"{where}, and {self.open.changes} changes of the next transaction" if self.open else where


def _open(data: Mapping[str, Any] | None) -> OpenTransaction | None:
    if data is None:
        return None
    commit = int(data["commit"])
    gtid = None if data["source"] is None else Gtid(str(data["source"]), commit)
    return OpenTransaction(gtid, commit, int(data["changes"]), str(data.get("file", "")))


def make_override_position(text: str) -> Position | None:
    """The position that an operator wants; None for none. text: validated by the options."""
    return BinlogPosition(*parse_override(text)).position if text else None


def read_position(source: str, position: Position) -> BinlogPosition:
    """PositionRefused when another kind of source made it."""
    try:
        return BinlogPosition.from_position(position)
    except (KeyError, TypeError, ValueError):
        raise PositionRefused(
            f"the stored position {position} is not one in a binary log: a source of another kind had this name",
            f"give the source another name, or forget the position ({show_command('position', 'forget', source)})",
        ) from None
