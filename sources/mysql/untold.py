"""What a stream of the binary log would leave out without a word: said by `check`, and in the log at the start."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from psql_streamer.interfaces import Finding, Severity
from psql_streamer.table_patterns import TablePatterns
from sources.mysql.cascades import describe_cascades, find_cascaded_tables
from sources.mysql.options import SYSTEM_SCHEMAS, MysqlOptions, Wanted
from sources.mysql.published_tables import VERSIONED, list_seen_tables
from sources.mysql.server import Session
from sources.mysql.snapshot.requests import GRANT, may_read

log = logging.getLogger(__name__)

_Tables = Mapping[tuple[str, str], str]
"""Schema and name -> the kind of table."""


@dataclass(frozen=True, slots=True)
class Untold:
    """What is to be said.

    cascaded: how many tables foreign keys change without the binary log; None where the account cannot see it.
    """

    findings: Sequence[Finding]
    cascaded: int | None


def find_untold(asking: Session, source: str, options: MysqlOptions, wanted: Wanted) -> Untold:
    """Asks the server. source: its name in the configuration."""
    seen = {table: kind for table, kind in list_seen_tables(asking).items() if table[0].lower() not in SYSTEM_SCHEMAS}
    if not seen and not may_read(asking):
        return Untold([_NOTHING_SEEN], None)
    cascaded = find_cascaded_tables(asking, wanted)
    findings = [
        *_check_entries(options, seen, wanted),
        *_check_versioned(seen, wanted),
        *describe_cascades(source, cascaded),
    ]
    return Untold(findings, len(cascaded))


class UntoldWatch:
    """Says it in the log, each finding once. cascaded: as Untold has it."""

    def __init__(self, source: str, options: MysqlOptions, wanted: Wanted) -> None:
        self._source = source
        self._options = options
        self._wanted = wanted
        self._told: set[Finding] = set()
        self.cascaded: int | None = None

    def look(self, asking: Session) -> None:
        """Ask the server, and log what is new."""
        untold = find_untold(asking, self._source, self._options, self._wanted)
        self.cascaded = untold.cascaded
        for finding in untold.findings:
            if finding not in self._told:
                self._told.add(finding)
                log.warning("source %s: %s: %s", self._source, finding.problem, finding.remedy)


_NOTHING_SEEN = Finding(
    Severity.WARNING,
    "the account sees no tables: whether `tables` fits any is not known, nor whether foreign keys change rows that the "
    "server does not write to its binary log",
    GRANT,
)


def _check_entries(options: MysqlOptions, seen: _Tables, wanted: Wanted) -> Iterator[Finding]:
    unfit = [entry for entry in options.tables if not _fits_one(entry, seen)]
    for entry in unfit:
        yield Finding(
            Severity.WARNING,
            f'tables has "{entry}", which fits no table that the account sees: nothing is sent for it',
            f"correct it, or {GRANT}",
        )
    if not unfit and not any(wanted(*table) for table in seen):
        yield Finding(
            Severity.WARNING,
            "excludeTables leaves none of the tables that `tables` fits: nothing is sent",
            "correct tables and excludeTables",
        )


def _fits_one(entry: str, tables: Iterable[tuple[str, str]]) -> bool:
    patterns = TablePatterns({entry: None})
    return any(patterns.find(*table) for table in tables)


def _check_versioned(seen: _Tables, wanted: Wanted) -> Iterator[Finding]:
    for (schema, table), kind in sorted(seen.items()):
        if kind == VERSIONED and wanted(schema, table):
            yield Finding(
                Severity.WARNING,
                f"{schema}.{table} is system-versioned: a delete is sent as an update of the column that says when the "
                "row ended, the history as inserts, and a snapshot leaves the table out",
                "leave it out (excludeTables), or go by that column (docs/sources/mysql.md)",
            )
