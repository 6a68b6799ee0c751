"""Foreign keys whose actions change rows without the binary log.

InnoDB carries out ON DELETE and ON UPDATE itself, below the layer that writes rows to the binary log: that has the
parent's row alone. MySQL does it above since 9.6, and logs the rows, unless innodb_native_foreign_keys is ON (MySQL 9.7
Reference Manual, "Replication and Foreign Keys").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pymysql

from psql_streamer.interfaces import Finding, Severity
from psql_streamer.shown_commands import show_command
from sources.mysql.server import Session, is_on
from sources.mysql.snapshot.values import quote_name

# MariaDB shows REFERENTIAL_CONSTRAINTS to nobody who may only SELECT, and these two to everybody who may.
_WITH_FOREIGN_KEYS = """
    SELECT k.TABLE_SCHEMA, k.TABLE_NAME FROM information_schema.KEY_COLUMN_USAGE k
    WHERE k.REFERENCED_TABLE_NAME IS NOT NULL
"""
_DEFINITION = "SHOW CREATE TABLE {}.{}"

_NAME = r"`(?:[^`]|``)+`"
_FOREIGN_KEY = re.compile(
    rf"^\s+CONSTRAINT (?P<name>{_NAME}) FOREIGN KEY \({_NAME}(?:, ?{_NAME})*\) "
    rf"REFERENCES (?:(?P<schema>{_NAME})\.)?(?P<parent>{_NAME}) \({_NAME}(?:, ?{_NAME})*\)(?P<actions>[A-Z ]*)",
    re.MULTILINE,
)
_ACTION = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")

_GONE, _DENIED = {1146, 1049}, {1142, 1143, 1044}


@dataclass(frozen=True, slots=True)
class CascadedTable:
    """A table whose rows foreign keys change without the binary log. keys: which, and what each does."""

    schema: str
    table: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


def logs_cascades(asking: Session) -> bool:
    """Whether the server writes rows that foreign keys change to its binary log."""
    return not is_on(asking.settings.get("innodb_native_foreign_keys", "ON"))


def find_cascaded_tables(asking: Session, wanted: Callable[[str, str], bool]) -> list[CascadedTable]:
    """The wanted tables that are changed without the binary log, as far as the account sees them."""
    if logs_cascades(asking):
        return []
    # Definitions are read as the server writes them with these.
    asking.read_rows("SET SESSION sql_mode = '', sql_quote_show_create = 1")
    found = []
    # DISTINCT would take `t` and `T` for one table on MariaDB.
    for schema, table in sorted(set(asking.read_rows(_WITH_FOREIGN_KEYS))):
        if wanted(schema, table) and (keys := tuple(_find_acting_keys(asking, schema, table))):
            found.append(CascadedTable(schema, table, keys))
    return found


def describe_cascades(source: str, tables: list[CascadedTable]) -> Iterator[Finding]:
    """What is missing of each, and what may be done. source: its name in the configuration."""
    for one in tables:
        command = show_command("snapshot", "start", "--source", source, "--table", str(one))
        yield Finding(
            Severity.WARNING,
            f"foreign keys change rows of {one}, which the server does not write to its binary log "
            f"({', '.join(one.keys)}): these changes are not sent",
            "change the rows by statements or by a trigger on the parent, before the foreign key does; after a change, "
            f"{command} sends the rows that are there "
            "(docs/sources/mysql.md)",
        )


def _find_acting_keys(asking: Session, schema: str, table: str) -> Iterator[str]:
    try:
        [(_, definition)] = asking.read_rows(_DEFINITION.format(quote_name(schema), quote_name(table)))
    except pymysql.Error as error:
        number = error.args[0] if error.args else 0
        if number in _DENIED:
            yield "what they do the account may not see"
        elif number not in _GONE:
            raise
        return
    for found in _FOREIGN_KEY.finditer(str(definition)):
        actions = " ".join(_ACTION.findall(found["actions"]))
        if actions:
            parent = _unquote_name(found["schema"] or quote_name(schema)), _unquote_name(found["parent"])
            yield f"{_unquote_name(found['name'])}: {actions} of {'.'.join(parent)}"


def _unquote_name(name: str) -> str:
    return name[1:-1].replace("``", "`")
