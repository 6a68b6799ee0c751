"""Whether the binary log of a server is still the one that a position was read from.

RESET MASTER (RESET BINARY LOGS AND GTIDS) begins GTIDs at 1 again, and a server that was restored from a backup goes
back in them. The GTIDs of a position then name other transactions, and no comparison of numbers shows it. A file of the
log only grows, and keeps the moment at which it was begun: it is the time in the header of its FORMAT_DESCRIPTION event
(MySQL 8.4 source, Format_description_event; MariaDB Knowledge Base, "FORMAT_DESCRIPTION_EVENT").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from psql_streamer.binlog.events import EventType, read_header
from psql_streamer.errors import SourceUnavailable
from sources.mysql.connection import Connector
from sources.mysql.places import LogPlace, Place
from sources.mysql.positions import BinlogPosition
from sources.mysql.replication import Start, Stream, make_up_server_id
from sources.mysql.server import Session, describe_server
from sources.mysql.server_of_stream import Client, find_client, require_server_of

_BEGIN_HEARTBEAT_SECONDS = 1.0
_MOST_BEGIN_SECONDS = 10.0
"""That a server may take to send the first event of a file."""


class LogFinding(NamedTuple):
    """same: whether the log is certainly the one that it was. change: what shows that it is another one."""

    same: bool = False
    change: str = ""


def compare_log(stored: BinlogPosition, asking: Session, read_begin: Callable[[str], int]) -> LogFinding:
    """The log of a server, with what a position that has GTIDs notes of it. Nothing is found at another server.

    read_begin: when a file was begun, as make_begin_reader has it.
    """
    place = stored.place
    if not place.file or not stored.server or stored.server != describe_server(asking):
        return LogFinding()
    files = asking.list_files()
    if place.file not in dict(files):
        removed = _may_be_removed(place, files, asking)
        return LogFinding(change="" if removed else f"it has no file {place.file}, and did not remove it")
    if place.offset > (size := dict(files)[place.file]):
        return LogFinding(change=f"its file {place.file} has {size} bytes and had {place.offset}")
    change = find_other_begin(stored, read_begin)
    return LogFinding(bool(stored.begun) and not change, change)


def find_other_begin(stored: BinlogPosition, read_begin: Callable[[str], int]) -> str:
    """What shows that the file of a position, which the server has, was begun at another moment; empty for nothing."""
    if not stored.begun or (begun := read_begin(stored.place.file)) == stored.begun:
        return ""
    return f"its file {stored.place.file} was begun at {_show(begun)} and not at {_show(stored.begun)}"


def _may_be_removed(place: Place, files: Sequence[tuple[str, int]], asking: Session) -> bool:
    """Servers remove the oldest files. MySQL keeps its GTIDs when log_bin gets another name, MariaDB does not."""
    oldest = Place(*files[0]) if files else place
    if _get_base(place) != _get_base(oldest):
        return not asking.is_mariadb
    return LogPlace.from_place(place).number < LogPlace.from_place(oldest).number


def _get_base(place: Place) -> str:
    return place.file.rpartition(".")[0]


def _show(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"


def make_begin_reader(connector: Connector, asking: Session) -> Callable[[str], int]:
    """What asks the server of a session when a file was begun, in seconds since 1970."""
    return lambda file: _read_begin(connector, find_client(asking), file)


def _read_begin(connector: Connector, client: Client, file: str) -> int:
    """As a replica that begins there: the file's first event is the first that is no artificial one."""
    stream = Stream(connector, make_up_server_id(), _BEGIN_HEARTBEAT_SECONDS)
    deadline = time.monotonic() + _MOST_BEGIN_SECONDS
    try:
        asking = stream.connect()
        with connector.translate_errors():
            require_server_of(client, asking)
        stream.open(Start(None, file, mariadb_gtids=True))
        while time.monotonic() < deadline:
            stream.wait(_BEGIN_HEARTBEAT_SECONDS)
            headers = map(read_header, stream.buffer.events)
            found = next((one.timestamp for one in headers if one.type == EventType.FORMAT_DESCRIPTION), None)
            if found is not None:
                return found
            if stream.buffer.failure is not None:
                raise stream.buffer.failure
    finally:
        stream.close()
    raise SourceUnavailable(f"the server has not sent the first event of {file} in {_MOST_BEGIN_SECONDS:.0f} s")
