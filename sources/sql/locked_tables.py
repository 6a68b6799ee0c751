"""Tables that cannot be read for a while, locked or too slow: they are left alone, so that the others are read."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from sources.sql.database import StatementGivenUp, StatementTooSlow

LOCK_SECONDS = 1.0
"""For how long one of several tables is waited for that is locked."""

_LEFT_ALONE_SECONDS = 5.0
"""Between two looks at a table that was locked, or as long as the look took."""


log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Locked:
    since: float
    until: float
    is_slow: bool


class LockedTables:
    """By their names. patience: seconds after which it is a problem that a table is locked. source: its name, for
    messages. of_several: whether there are other tables to read meanwhile.
    """

    def __init__(self, patience: float, source: str) -> None:
        self.of_several = False
        self._patience = patience
        self._source = source
        self._tables: dict[str, _Locked] = {}

    def is_left_alone(self, table: str) -> bool:
        """Whether it is too early to look at a table again."""
        found = self._tables.get(table)
        return found is not None and time.monotonic() < found.until

    def leave_alone(self, table: str, error: StatementGivenUp, took: float) -> None:
        """After a look that waited in vain; the error of that where no other table is to be read. took: seconds."""
        if not self.of_several:
            raise error
        now = time.monotonic()
        found = self._tables.get(table)
        if found is None:
            log.warning("source.%s: %s; the other tables are read meanwhile", self._source, error)
        since = now - took if found is None else found.since
        self._tables[table] = _Locked(since, now + max(_LEFT_ALONE_SECONDS, took), isinstance(error, StatementTooSlow))

    def note_read(self, table: str) -> None:
        """After a look that did not wait."""
        if self._tables.pop(table, None) is not None:
            log.info("source.%s: %s is read again", self._source, table)

    @property
    def is_problem(self) -> bool:
        """Whether a table is locked for so long that somebody should look."""
        return any(time.monotonic() - one.since > self._patience for one in self._tables.values())

    def describe(self) -> str:
        """Which tables are locked or too slow, and for how long; empty for none."""
        now = time.monotonic()
        said = []
        for is_slow, what in ((False, "locked"), (True, "longer than the time limit of a statement")):
            some = [(table, one) for table, one in sorted(self._tables.items()) if one.is_slow == is_slow]
            if named := ", ".join(f"{table} ({now - one.since:.0f} s)" for table, one in some):
                said.append(f"{what}, and tried again while the other tables are read: {named}")
        return "; ".join(said)
