"""Where a `mysql` source starts, and whether a server can go on there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from psql_streamer.binlog.decoded import OpenTransaction
from psql_streamer.errors import PositionRefused, SourceError, SourceRefused, SourceUnavailable
from psql_streamer.model import Position
from psql_streamer.shown_commands import show_command
from sources.mysql.gtid_sets import DomainPositions, Executed
from sources.mysql.log_identity import LogFinding, compare_log, find_other_begin
from sources.mysql.places import FIRST_EVENT, Place
from sources.mysql.positions import BinlogPosition, read_position
from sources.mysql.rights import grant, to_see_upstream
from sources.mysql.server import Session, describe_server
from sources.mysql.server_errors import LogMissing
from sources.snapshot.gap_remedies import accept_gap


def resolve_resume_position(
    source: str, position: Position, asking: Session, read_begin: Callable[[str], int], tables: str
) -> BinlogPosition:
    """Where to start: the position, as one of this server. read_begin: as compare_log takes it. tables: Wanted.choice
    of the configuration.

    PositionRefused when the server cannot go on. SourceRefused when the configuration cannot.
    """
    stored = read_position(source, position)
    _require_same_tables(stored, tables)
    server = describe_server(asking)
    if stored.executed is None:
        _require_place(source, stored, asking, read_begin)
        return replace(stored, server=server)
    finding = compare_log(stored, asking, read_begin)
    executed = _require_transactions(source, stored.executed, stored.open, asking, finding)
    _require_same_log(source, stored, executed, asking, finding)
    if finding.change or stored.server != server:
        stored = replace(stored, open=stored.open and replace(stored.open, file=""))
    if stored.server != server:
        return replace(stored, executed=str(executed), server=server, place=Place("", FIRST_EVENT), begun=0)
    return replace(stored, executed=str(executed))


def find_end_position(asking: Session) -> BinlogPosition:
    """The end of the binary log. The place is asked first: what is committed meanwhile lies behind it."""
    place = asking.read_end()
    executed = str(asking.read_executed()) if asking.has_gtids else None
    return BinlogPosition(executed, place, describe_server(asking))


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


def _require_transactions(
    source: str, text: str, opened: OpenTransaction | None, asking: Session, finding: LogFinding
) -> Executed:
    """What lies behind, without domains that the server has deleted. text, opened: of the stored position."""
    executed = asking.read_executed()
    try:
        stored = type(executed).parse(text)
    except ValueError:
        raise PositionRefused(
            f"the stored position {text} is not one of {asking.product}",
            f"give the source another name, or forget the position ({show_command('position', 'forget', source)})",
        ) from None
    deleted, purged = _list_deleted_domains(executed, stored), asking.read_purged()
    if finding.same:
        # The log is there from the place on and has nothing of them. Heads of elder files may still name them.
        stored, purged = (one.drop_domains(_list_deleted_domains(executed, one)) for one in (stored, purged))
    is_open_lacking = opened is not None and opened.gtid is not None and not executed.holds(*opened.gtid)
    if ahead := executed.count_lacking(stored) + is_open_lacking:
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
        if deleted and not finding.change and str(stored.drop_domains(deleted)):
            raise _make_domain_error(source, stored, executed, deleted)
        raise PositionRefused(
            f"{what}, and the stored position {stored}: its binary log was reset, it is another server, or a failover "
            "has lost them",
            _describe_choices(source),
        )
    if gap := stored.count_lacking(purged):
        raise PositionRefused(
            f"{gap} transactions behind the stored position {stored} are no longer in the server's binary log: they "
            "were removed (PURGE BINARY LOGS, binlog_expire_logs_seconds)",
            _describe_choices(source),
        )
    return stored


def _list_deleted_domains(executed: Executed, stored: Executed) -> list[int]:
    """Domains that MariaDB may have deleted: it lists them no more, and all of the others. FLUSH BINARY LOGS
    DELETE_DOMAIN_ID takes one of which no file of its log has a transaction.
    """
    if not isinstance(stored, DomainPositions) or not isinstance(executed, DomainPositions):
        return []
    missing = executed.find_missing_domains(stored)
    kept = stored.drop_domains(missing)
    return missing if str(executed) and executed.includes(kept) else []


def _make_domain_error(source: str, stored: Executed, executed: Executed, domains: Sequence[int]) -> PositionRefused:
    named, kept = ", ".join(map(str, domains)), stored.drop_domains(domains)
    return PositionRefused(
        f"the server, which has {executed}, does not list domain {named} of the stored position {stored}: it was "
        "deleted (FLUSH BINARY LOGS DELETE_DOMAIN_ID), or this is another server. The file in which the position ends "
        "would show that nothing of the domain is missing, and is gone or not known",
        f"if nothing of it is missing, set positionOverride to {kept}; else {accept_gap(source)}",
    )


def _require_same_log(
    source: str, stored: BinlogPosition, executed: Executed, asking: Session, finding: LogFinding
) -> None:
    """GTIDs that other servers gave stay what they are whatever becomes of this one's log."""
    own = asking.settings.get("server_id", "") if asking.is_mariadb else asking.uuid
    if finding.change and executed.holds_any_of(own):
        raise _make_other_log_error(source, stored, finding.change)


def _make_other_log_error(source: str, stored: BinlogPosition, change: str) -> PositionRefused:
    return PositionRefused(
        f"the binary log of the server is not the one that the stored position {stored} was read from: {change}. It "
        "was reset (RESET MASTER, RESET BINARY LOGS AND GTIDS), or the server was restored from a backup, and what the "
        "position names are other transactions there",
        f"{accept_gap(source)}; or, if a copy of the tables has all up to some GTIDs of this log, set positionOverride "
        "to them",
    )


def _require_place(source: str, stored: BinlogPosition, asking: Session, read_begin: Callable[[str], int]) -> None:
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
    if change := find_other_begin(stored, read_begin):
        raise _make_other_log_error(source, stored, change)


def name_choices(error: SourceError, source: str) -> SourceError:
    """The error, with what the operator of this source can do where the server lacks what lies behind its position."""
    return PositionRefused(error.what, _describe_choices(source)) if isinstance(error, LogMissing) else error


def _describe_choices(source: str) -> str:
    return f"{accept_gap(source)}; or set positionOverride to the GTIDs that a new copy of the tables holds"
