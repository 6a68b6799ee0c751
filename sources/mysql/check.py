"""What `check` looks at before a `mysql` source is started; nothing is changed on the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pymysql

from psql_streamer.errors import SourceError
from psql_streamer.interfaces import Finding, Severity
from sources.mysql.connection import Connector
from sources.mysql.options import SYSTEM_SCHEMAS, MysqlOptions, Wanted
from sources.mysql.published_tables import find_unreadable_tables
from sources.mysql.replication import make_up_server_id, register
from sources.mysql.rights import grant, grant_needed, to_see_replicas, to_see_upstream
from sources.mysql.server import Session, is_on, open_session
from sources.mysql.server_errors import from_pymysql
from sources.mysql.snapshot.findings import check_snapshot
from sources.mysql.untold import find_untold

_SHORTEST_RETENTION_SECONDS = 24 * 3600

_TABLES = """
    SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
    WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN ({})
"""
_KEYED = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.STATISTICS WHERE INDEX_NAME = 'PRIMARY'"
"""Names are compared here: the catalog of MariaDB does it whatever their case, where `t` and `T` may be two tables."""


_TRANSACTION_PRECISE = """
    SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.COLUMNS
    WHERE GENERATION_EXPRESSION = 'ROW START' AND DATA_TYPE = 'bigint'
"""


@dataclass(frozen=True, slots=True)
class _Setting:
    """A variable of the server. fits: whether a value is right."""

    name: str
    fits: Callable[[str], bool]
    severity: Severity
    problem: str
    remedy: str


def _is(*values: str) -> Callable[[str], bool]:
    return lambda value: value.upper() in values


_OFF = _is("OFF", "0", "")

_SETTINGS = (
    _Setting(
        "binlog_format",
        _is("ROW"),
        Severity.ERROR,
        "binlog_format is {}: changes of rows are not in the binary log",
        "SET GLOBAL binlog_format = 'ROW', for sessions that begin afterwards, and the same in the server's my.cnf",
    ),
    _Setting(
        "binlog_row_metadata",
        _is("FULL"),
        Severity.ERROR,
        "binlog_row_metadata is {}: the binary log does not name the columns",
        "SET GLOBAL binlog_row_metadata = 'FULL', and the same in the server's my.cnf",
    ),
    _Setting(
        "binlog_row_image",
        _is("FULL"),
        Severity.WARNING,
        "binlog_row_image is {}: events lack the columns that a change did not touch, with MINIMAL also those that an "
        "INSERT does not name",
        "SET GLOBAL binlog_row_image = 'FULL', for sessions that begin afterwards, and the same in the server's my.cnf",
    ),
    _Setting(
        "binlog_row_value_options",
        _OFF,
        Severity.ERROR,
        "binlog_row_value_options is {}: documents come as differences, which are not read",
        "SET GLOBAL binlog_row_value_options = '', and the same in the server's my.cnf",
    ),
)


def check_source(source: str, options: MysqlOptions, connector: Connector, wanted: Wanted) -> Iterator[Finding]:
    """Everything that would keep the source from working, and what may surprise. source: its name."""
    try:
        with open_session(connector) as asking:
            yield from _check_server(asking)
            yield from _check_privileges(asking, connector, own_id=bool(options.server_id))
            yield from _check_upstream(asking)
            yield from _check_relayed(asking)
            yield from _check_server_ids(asking, options.server_id)
            yield from _check_tables(asking, wanted)
            yield from _check_statement_tables(asking)
            yield from find_untold(asking, source, options, wanted).findings
            yield from check_snapshot(asking, options.snapshot, wanted)
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)


def _check_server(asking: Session) -> Iterator[Finding]:
    try:
        asking.require_binary_log()
    except SourceError as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)
        return
    settings = asking.settings
    for setting in _SETTINGS:
        value = settings.get(setting.name)
        if value is not None and not setting.fits(value):
            yield Finding(setting.severity, setting.problem.format(value), setting.remedy)
    yield from _check_retention(asking)
    yield from _check_history(asking)


def _check_retention(asking: Session) -> Iterator[Finding]:
    """For how long the server keeps its binary log; 0 is for ever."""
    settings = asking.settings
    seconds = float(settings.get("binlog_expire_logs_seconds", 0))
    seconds = seconds or float(settings.get("expire_logs_days", 0)) * 24 * 3600
    if 0 < seconds < _SHORTEST_RETENTION_SECONDS:
        yield Finding(
            Severity.WARNING,
            f"the server removes its binary log after {seconds / 3600:g} hours: a stop for longer loses changes",
            "SET GLOBAL binlog_expire_logs_seconds = 604800, and the same in the server's my.cnf",
        )


def _check_history(asking: Session) -> Iterator[Finding]:
    if not asking.has_gtids:
        yield Finding(
            Severity.WARNING,
            f"gtid_mode is {asking.settings.get('gtid_mode', 'OFF')}: positions are files of this server, and a "
            "failover to another one cannot be followed",
            "turn GTIDs on (gtid_mode = ON, enforce_gtid_consistency = ON)",
        )
    for name in ("binlog_do_db", "binlog_ignore_db"):
        if filtered := _read_filter(asking, name):
            yield Finding(
                Severity.WARNING,
                f"{name} is {filtered}: changes of other databases, or of these, are not in the binary log",
                "remove it from the server's my.cnf, if they should be streamed",
            )


def _read_filter(asking: Session, name: str) -> str:
    """SHOW MASTER STATUS has the databases that are filtered, in its third and fourth column."""
    command = "SHOW MASTER STATUS" if asking.is_mariadb or asking.numbers < (8, 2, 0) else "SHOW BINARY LOG STATUS"
    try:
        row = asking.read_rows(command)[0]
    except (pymysql.Error, IndexError):
        return ""  # _privileges says so
    return str(row[2 if name == "binlog_do_db" else 3])


def _check_privileges(asking: Session, connector: Connector, *, own_id: bool) -> Iterator[Finding]:
    """By trying: roles and privileges of other names give the same rights."""
    account = str(asking.read_value("SELECT CURRENT_USER()"))
    for what, attempt in (
        ("read the binary log", lambda: _try_to_register(connector)),
        ("see where the binary log ends", asking.read_end),
    ):
        try:
            attempt()
        except IndexError:
            return  # there is no binary log
        except (SourceError, pymysql.Error) as error:
            told = from_pymysql(error, str(connector.address)) if isinstance(error, pymysql.Error) else error
            yield Finding(
                Severity.ERROR,
                f"the account {account} may not {what}: {told.what}",
                grant_needed(asking, own_id=own_id),
            )


def _try_to_register(connector: Connector) -> None:
    """Under an id of its own: MySQL would forget another client that has the same."""
    with connector.open_connection() as connection:
        register(connection, make_up_server_id())


def _check_upstream(asking: Session) -> Iterator[Finding]:
    if asking.has_gtids and asking.is_replica() is None:
        right = to_see_upstream(asking)
        yield Finding(
            Severity.WARNING,
            f"the account lacks {right}, and so may not see whether the server is a replica: a server without "
            "transactions that were delivered is waited for, and never refused",
            grant(asking, right),
        )


def _check_relayed(asking: Session) -> Iterator[Finding]:
    """A replica may leave out of its binary log what it gets from its primary. MySQL has the option's newer name."""
    name = next((one for one in _RELAYING if one in asking.settings), None)
    if name is not None and not is_on(asking.settings[name]) and asking.is_replica():
        yield Finding(
            Severity.WARNING,
            f"the server is a replica and {name} is OFF: changes that it gets from its primary are not in its binary "
            "log, and are not sent",
            f"set {name} = ON in the server's my.cnf and restart it, or let dsn name the primary",
        )


_RELAYING = ("log_replica_updates", "log_slave_updates")


def _check_server_ids(asking: Session, server_id: int) -> Iterator[Finding]:
    if not server_id:
        return
    if str(server_id) == asking.settings.get("server_id"):
        yield Finding(Severity.ERROR, f"serverId {server_id} is the server's own", "set serverId to another number")
    connected = asking.list_replica_ids()
    if connected is None:
        right = to_see_replicas(asking)
        yield Finding(
            Severity.WARNING,
            f"the account lacks {right}, and so may not see whether another client has serverId {server_id}",
            f"{grant(asking, right)}, or leave serverId out",
        )
    elif server_id in connected:
        yield Finding(
            Severity.WARNING,
            f"a client with serverId {server_id} is connected: the service is running, or another one has the same",
            "nothing to do if the service is running; else set serverId to another number",
        )


def _check_tables(asking: Session, wanted: Wanted) -> Iterator[Finding]:
    for error in find_unreadable_tables(asking, wanted):
        yield Finding(Severity.ERROR, error.what, error.remedy or "leave the table out (excludeTables)")
    schemas = ", ".join(f"'{name}'" for name in sorted(SYSTEM_SCHEMAS))
    tables = asking.read_rows(_TABLES.format(schemas))
    for schema, table in sorted(set(tables) - set(asking.read_rows(_KEYED))):
        if wanted(schema, table):
            yield Finding(
                Severity.WARNING,
                f"{schema}.{table} has no primary key: its events have no key",
                f"ALTER TABLE {schema}.{table} ADD PRIMARY KEY (...), or leave the table out (excludeTables)",
            )


def _check_statement_tables(asking: Session) -> Iterator[Finding]:
    """MariaDB has no row events for a history by numbers of transactions (MariaDB documentation, "System-Versioned
    Tables"). Whether such a table is wanted makes no difference: a statement may change others, too.
    """
    for schema, table in sorted(asking.read_rows(_TRANSACTION_PRECISE)) if asking.is_mariadb else ():
        yield Finding(
            Severity.ERROR,
            f"{schema}.{table} keeps its history by transactions (ROW START is BIGINT): the server writes changes of "
            "it as statements whatever binlog_format is, and the first one stops the source",
            "keep its history by TIMESTAMP(6), or drop the table's system versioning",
        )
