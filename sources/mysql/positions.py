"""What the position of a `mysql` source holds, and whether a server can go on there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psql_streamer.binlog.decoded import OpenTransaction, Standing
from psql_streamer.binlog.events import Gtid
from psql_streamer.errors import PositionRefused, SourceRefused, SourceUnavailable
from psql_streamer.model import Position
from sources.mysql.gtid_sets import Executed
from sources.mysql.places import Place, parse_executed, parse_override
from sources.mysql.rights import grant, to_see_upstream
from sources.mysql.server import Session
from sources.snapshot.gap_remedies import accept_gap

_NUMBER = re.compile(r"(\d+)$")


@dataclass(frozen=True, slots=True)
class BinlogPosition:
    """Where a stream goes on.

    executed: the transactions that lie wholly behind; None where they have no GTIDs: then it is the place that counts.
    place: where the last of them ends, on the server that it was read from. server: that one's uuid, where it has one.
    open: of the transaction after them, what is delivered already. tables: by which choice of tables its changes were
    counted, as Wanted.choice has it; empty where nobody knows.
    """

    executed: str | None
    place: Place
    server: str = ""
    open: OpenTransaction | None = None
    tables: str = field(default="", compare=False)

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
        return cls(executed, place, str(data["server"]), _open(opened), tables)

    @property
    def position(self) -> Position:
        """The same for the core, which does not look inside."""
        held = self.open
        inside = held and {
            "source": held.gtid.source if held.gtid else None,
            "commit": held.commit,
            "changes": held.changes,
            "tables": self.tables,
        }
        return Position(
            {
                "executed": self.executed,
                "file": self.place.file,
                "offset": self.place.offset,
                "server": self.server,
                "open": inside,
            },
            str(self),
        )

    def advance_to(self, standing: Standing, executed: str | None) -> BinlogPosition:
        """The same source later."""
        return BinlogPosition(
            executed, Place(standing.file, standing.position), self.server, standing.open, self.tables
        )

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
    return OpenTransaction(gtid, commit, int(data["changes"]))


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
            f"give the source another name, or forget the position (psql-streamer position forget {source})",
        ) from None


def resolve_resume_position(source: str, position: Position | None, asking: Session, tables: str) -> BinlogPosition:
    """Where to start: the position, or the end of the binary log. tables: Wanted.choice of the configuration.

    PositionRefused when the server cannot go on. SourceRefused when the configuration cannot.
    """
    if position is None:
        executed = str(asking.read_executed()) if asking.has_gtids else None
        return BinlogPosition(executed, asking.read_end(), asking.uuid)
    stored = read_position(source, position)
    _require_same_tables(stored, tables)
    if stored.executed is None:
        _require_place(source, stored, asking)
    else:
        _require_transactions(source, stored.executed, asking)
    return stored


def _require_same_tables(stored: BinlogPosition, tables: str) -> None:
    """Changes of a transaction are counted without those of tables that are not wanted."""
    if stored.open is not None and stored.tables not in ("", tables):
        raise SourceRefused(
            f"tables or excludeTables are not those by which the stored position {stored} was counted, which is inside "
            "a transaction",
            "start with those of before, and change them when /stats shows a stored_position without changes of the "
            f"next transaction; or set positionOverride to {stored.behind} and get the transaction again from its "
            "beginning, with other numbers (Seq)",
        )


def _require_transactions(source: str, text: str, asking: Session) -> None:
    here = type(asking.read_executed())
    try:
        stored = here.parse(text)
    except ValueError:
        raise PositionRefused(
            f"the stored position {text} is not one of {asking.product}",
            f"give the source another name, or forget the position (psql-streamer position forget {source})",
        ) from None
    executed = asking.read_executed()
    if ahead := executed.count_lacking(stored):
        what = (
            f"{ahead} transactions that were delivered are not in the binary log of this server, which has {executed}"
        )
        is_replica = asking.is_replica()
        if is_replica:
            raise SourceUnavailable(f"{what}: it is a replica that has not got so far")
        if is_replica is None:
            raise SourceUnavailable(
                f"{what}, and the account may not see whether it is a replica that has not got so far",
                f"{grant(asking, to_see_upstream(asking))}; until then the source waits",
            )
        raise PositionRefused(
            f"{what}, and the stored position {stored}: it is another server, or a failover has lost them",
            _describe_choices(source),
        )
    if gap := stored.count_lacking(asking.read_purged()):
        raise PositionRefused(
            f"{gap} transactions behind the stored position {stored} are no longer in the server's binary log: they "
            "were removed (PURGE BINARY LOGS, binlog_expire_logs_seconds)",
            _describe_choices(source),
        )


def _require_place(source: str, stored: BinlogPosition, asking: Session) -> None:
    if stored.server and asking.uuid and stored.server != asking.uuid:
        raise PositionRefused(
            f"the stored position {stored} is a place in the binary log of the server {stored.server}, and this one is "
            f"{asking.uuid}",
            _describe_choices(source),
        )
    files = asking.list_files()
    sizes = dict(files)
    if stored.place.file not in sizes:
        raise PositionRefused(
            f"the stored position {stored} is in a file that the server does not have any more: the oldest is "
            f"{files[0][0] if files else 'none'}, and what lies between is lost to this source",
            _describe_choices(source),
        )
    if stored.place.offset > sizes[stored.place.file]:
        raise PositionRefused(
            f"the stored position {stored} is behind the end of its file, which has {sizes[stored.place.file]} bytes: "
            "it belongs to another server, or to another state of this one",
            _describe_choices(source),
        )


def _describe_choices(source: str) -> str:
    return f"{accept_gap(source)}; or set positionOverride to the GTIDs that a new copy of the tables holds"
