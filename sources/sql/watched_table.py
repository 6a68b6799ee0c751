"""A table that a source watches: what of it is settled, and what is read next."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial

from sqlalchemy.engine import Connection

from psql_streamer.errors import PositionRefused, SourceError, SourceRefused, SourceUnavailable
from psql_streamer.shown_commands import show_command
from sources.sql.basis import Basis, require_the_same_key, require_the_same_table
from sources.sql.database import ColumnsDiffer, Database
from sources.sql.engines.engine import AnyEngine, Writers
from sources.sql.engines.table_keys import TableKeys
from sources.sql.options import BEGINNING, NOW, SqlOptions
from sources.sql.polled_table import PolledTable, Rows, ShapeChanged
from sources.sql.progress import POLL_PIECE_ROWS, Piece
from sources.sql.row_sizes import RowsTooWide
from sources.sql.settling import Key, Settling

_SHAPE_ATTEMPTS = 3
"""Reads of rows whose columns change meanwhile."""

_COUNT_SECONDS = 1.0
"""Between two counts of rows that are not settled."""

_MOST_COUNTED = 10_000

_LARGEST_COMMIT = 2**63 - 1

_MOST_WRITERS_NAMED = 5

_SEQUENCE_SECONDS = 60.0
"""Between two looks at what gives the keys, which somebody may alter at any time."""

_KEYS_SECONDS = 5.0
"""Between two looks at the key of a table of which no rows come; with rows it is looked at each time."""

_SKIPPED_ROWS = 1000
"""The most rows before `now` among which those are found that commit later."""

_FORGOTTEN_SECONDS = 600.0
"""The time after which a transaction that rows wait for is somebody's affair."""

_UNKNOWN_SECONDS = 5.0
"""The time after which it is said that the server does not say who writes."""


SETTLE_REMEDY = "set settle to more than the longest transaction takes"

log = logging.getLogger(__name__)


def are_writers_told(kind: AnyEngine, table: PolledTable, connection: Connection) -> bool:
    """Whether the server says which transactions write to the table."""
    return not table.is_query and kind.are_writers_told(connection, table.name, table.key)


def explain_by_time(kind: AnyEngine, table: PolledTable, connection: Connection) -> str:
    """Why a row is read some time after it was seen; empty where those who write decide alone, and where none is late.

    A transaction may have taken the time of a row, as PostgreSQL's now() is, long before it is seen as a writer.
    """
    if not kind.settle_seconds:
        return ""
    return describe_what_decides(table, are_writers_told(kind, table, connection))


def describe_what_decides(table: PolledTable, told: bool) -> str:
    """The same of a server where rows may be late. told: whether it says who writes to the table."""
    if not told:
        return "the server does not say who writes"
    return "a time in their key may have been taken long before they were written" if table.has_time_in_key else ""


def describe_unsettled_risk(kind: AnyEngine, table: str, seconds: float | None) -> str:
    """What a table is not safe from that is read after so many seconds, where the server does not say who writes; empty
    where it is safe. seconds: the option `settle`.
    """
    if seconds != 0 or not kind.settle_seconds:
        return ""
    return f"rows of {table} that are committed later with smaller keys than others are left out (settle = 0)"


class WatchedTable:
    """Made in a look at the table: SourceRefused when rows could be left out.

    source: its name, for messages. unsettled: rows that were seen and are not settled, when last counted. skipped: keys
    behind the cursor whose rows are not read, because they were there before `now`. basis: what its keys rest on.
    """

    def __init__(
        self, table: PolledTable, database: Database, settings: SqlOptions, source: str, connection: Connection
    ) -> None:
        self.table = table
        self.name = table.name
        self.id = table.id
        self.unsettled = 0
        self.skipped: tuple[Key, ...] = ()
        self._database = database
        self._settings = settings
        self._source = source
        self._counted_at = 0.0
        self._sequences_at = self._keys_at = time.monotonic()
        self._why_by_time = ""
        self._require_a_safe_key(connection)
        self.basis = table.basis
        self._settling = self._make_settling(connection)

    @property
    def pending(self) -> bool:
        """Whether rows were seen that are not settled."""
        return self._settling.pending

    @property
    def by_time(self) -> str:
        """How long rows are watched, where nothing else decides; in words."""
        if not self._why_by_time:
            return ""
        seconds = self._settling.seconds
        if not seconds:
            return describe_unsettled_risk(self._database.kind, self.id, seconds)
        return f"rows of {self.id} are read {seconds:g} s after they were seen: {self._why_by_time}"

    @property
    def waits_for(self) -> str:
        """What rows wait for longer than a moment; empty for nothing."""
        if not self.pending:
            return ""
        seconds = time.monotonic() - self._settling.waits_since
        if names := sorted(self._settling.waits_for):
            return (
                f"rows of {self.id} have waited {seconds:.0f} s for transactions that may have written smaller keys "
                f"({len(names)}): {', '.join(names[:_MOST_WRITERS_NAMED])}"
            )
        if self._settling.by_writers and seconds > _UNKNOWN_SECONDS + self._settling.seconds:
            return f"rows of {self.id} have waited {seconds:.0f} s for the server to say which transactions write"
        return ""

    @property
    def is_held_up(self) -> bool:
        """Whether rows wait for so long that somebody should look."""
        waited = time.monotonic() - self._settling.waits_since if self.pending else 0.0
        return waited > _FORGOTTEN_SECONDS + self._settling.seconds

    def require_basis(self, before: Basis, last: Key | None) -> None:
        """PositionRefused when a position that rests on something else says nothing of this table. last: its key."""
        require_the_same_key(self.id, before, self.basis, last, self._source)
        if self._settings.shrunk_tables == "stop":
            require_the_same_table(self.id, before, self.basis, self._source)

    def find_start(self, connection: Connection) -> tuple[Key | None, tuple[Key, ...]]:
        """The key behind which a table starts that has no position, None for its beginning; and keys behind it whose
        rows are left out.

        From `now` on come the rows that are committed from now on. Those of transactions that write already may have
        smaller keys than others that are there: reading begins some rows before the last one, and leaves out what is
        there.
        """
        start, table = self._settings.find_start(self.table.options), self.table
        if start == (BEGINNING,):
            return None, ()
        if start != (NOW,):
            table.require_start(start)
            return start, ()
        most = _SKIPPED_ROWS if self._database.kind.settle_seconds else 0
        last = table.find_last_keys(connection, most + 1)
        return (last[most] if len(last) > most else None), tuple(last[:most])

    @property
    def asks_for_writers(self) -> bool:
        """Whether its rows wait for transactions that the server tells of."""
        return self._settling.by_writers

    @property
    def is_due(self) -> bool:
        """Whether there is something to do though it has no new rows."""
        return self.pending or self._are_sequences_due

    @property
    def are_keys_due(self) -> bool:
        """Whether its keys are to be looked at, though no rows come."""
        return time.monotonic() - self._keys_at >= _KEYS_SECONDS

    def note_keys(self, found: TableKeys) -> None:
        """What was asked for together with others. Where it is something else than it was, the next look asks why."""
        if self.table.has_keys(found):
            self._keys_at = time.monotonic()

    def find_newest(self, connection: Connection, cursor: Key | None) -> Key | None:
        """The largest key, if it lies behind the cursor and behind all that were seen before.

        PositionRefused when the table is shorter than it was, SourceRefused when keys are given out of order by now.
        """
        self._look_at_sequences(connection)
        self._look_at_keys(connection)
        return self._find_newest(connection, cursor)

    def note_newest(self, newest: Key | None, writers: Writers | None) -> None:
        """What was found, and the transactions that were writing to it behind that, if its rows wait for them."""
        if newest is None and not self.pending:
            return
        if not self._settling.by_writers:
            self._settling.observe(newest, time.monotonic())
            return
        if writers is None:
            raise SourceUnavailable("the server does not say any more which transactions write")
        now = time.monotonic()
        looked_at = now if self._database.kind.first_look_seconds == 0 else writers.looked_at
        if writers.known:
            self._settling.observe(newest, now, writers.names, writers.successors, looked_at)

    def find_settled(self, connection: Connection, cursor: Key | None) -> Key | None:
        """The largest settled key, None when none lies behind the cursor."""
        self._count(connection, cursor)
        settled = self._settling.settled
        if settled is None or settled == cursor:
            return None
        last = self.table.find_largest(connection, cursor=cursor, to=settled)
        if last != settled:
            self._settling.end_at(last or cursor)
        return last

    def plan(self, cursor: Key | None, first: Key | None, to: Key, commit: int, by_key: bool) -> Piece | None:
        """The next rows, up to a settled key. commit: the largest commit number that is given away.

        first: the smallest key, where there is no cursor. by_key: whether commit numbers may be the keys, because there
        are no others yet.
        """
        if not self.table.has_integer_key:
            return self._plan_by_rows(cursor, to, commit)
        if cursor is not None:
            before = int(cursor[0])
        elif first is not None:
            before = int(first[0]) - 1
        else:
            return None
        if int(to[0]) <= before:
            return None  # commit numbers would go back
        if int(to[0]) - before > POLL_PIECE_ROWS:
            to = self._cut(cursor, to)
        shift = max(commit, before) - before if by_key else commit - before
        last = int(to[0]) + shift
        if last > _LARGEST_COMMIT:  # keys so large, or so far apart, that no numbers are left: rows are counted
            return self._plan_by_rows(cursor, to, commit)
        return Piece(self.id, to, shift, last, ranked=False)

    def _plan_by_rows(self, cursor: Key | None, to: Key, commit: int) -> Piece:
        return Piece(self.id, self._cut(cursor, to), commit + 1, commit + POLL_PIECE_ROWS, ranked=True)

    def require_the_same_key(self) -> None:
        """PositionRefused or SourceRefused when the key is not what it was. Its columns are taken as they are now."""
        self._database.look(self._look_again, f"looking at table {self.id}")

    def read(self, cursor: Key | None, to: Key, most: int) -> Rows | None:
        """Rows behind the cursor, in the shape that the table has with them."""
        failure: ShapeChanged | ColumnsDiffer | None = None
        asked = most
        for _ in range(_SHAPE_ATTEMPTS):
            try:
                rows = self._database.look(
                    partial(self.read_rows, cursor=cursor, to=to, most=asked),
                    f"reading rows of {self.id}",
                )
                return rows if rows is None or asked == most else replace(rows, cut=True)
            except RowsTooWide as error:
                asked = error.rows
            except (ShapeChanged, ColumnsDiffer) as error:
                failure = error
                self.require_the_same_key()
        if isinstance(failure, ColumnsDiffer):
            raise failure
        raise SourceUnavailable(f"the columns of {self.id} change while its rows are read, or their sizes")

    def read_rows(self, connection: Connection, cursor: Key | None, to: Key, most: int) -> Rows | None:
        """As PolledTable.read_rows. PositionRefused where a table ends in front of the key that was seen: a server that
        is behind would have the rows up to there left out.
        """
        rows = self.table.read_rows(connection, cursor, to, most, self.skipped)
        if rows is None or (len(rows) < most and not rows.cut and rows.last != to):
            largest = self.table.find_largest(connection)
            if largest != to:
                self._is_ahead(connection, largest, to)
        return rows

    def _require_a_safe_key(self, connection: Connection) -> None:
        self.table.look(connection)
        self.table.require_unique_key()
        self._require_ascending_keys(connection)

    def _look_again(self, connection: Connection) -> None:
        self.table.look(connection)
        before, self.basis = self.basis, self.table.basis
        try:
            self.require_basis(before, None)
            self.table.require_unique_key()
        except SourceError:
            self.basis = before
            raise

    def _look_at_keys(self, connection: Connection) -> None:
        if self.are_keys_due:
            if not self.table.has_the_same_keys(connection):
                self._look_again(connection)
            self._keys_at = time.monotonic()

    @property
    def _are_sequences_due(self) -> bool:
        return time.monotonic() - self._sequences_at >= _SEQUENCE_SECONDS

    def _look_at_sequences(self, connection: Connection) -> None:
        if self._are_sequences_due:
            self._require_ascending_keys(connection)
            self._sequences_at = time.monotonic()

    def _require_ascending_keys(self, connection: Connection) -> None:
        if self._settings.unsafe_sequences == "refuse" and (unsafe := self.table.find_sequence_problem(connection)):
            raise SourceRefused(
                f"table {self.id}: {unsafe}; rows would be committed out of the order of their keys, and left out",
                'change that, or set settle long enough and unsafeSequences = "accept"',
            )

    def _make_settling(self, connection: Connection) -> Settling:
        kind, seconds, table = self._database.kind, self._settings.settle, self.table
        told = are_writers_told(kind, table, connection)
        self._why_by_time = describe_what_decides(table, told) if kind.settle_seconds else ""
        if self._why_by_time and (warning := describe_unsettled_risk(kind, self.id, seconds)):
            log.warning("source.%s: %s: %s", self._source, warning, SETTLE_REMEDY)
        if seconds is None:
            seconds = kind.settle_seconds if self._why_by_time else 0.0
        return Settling(seconds, told, kind.first_look_seconds)

    def _find_newest(self, connection: Connection, cursor: Key | None) -> Key | None:
        """The largest key, if it lies behind the cursor and behind all that were seen before."""
        largest, seen = self.table.find_largest(connection), self._settling.last_seen
        if largest == cursor or not self._is_ahead(connection, largest, cursor):
            return None
        if largest is None or seen is None:
            return largest
        if self.table.has_integer_key:
            return largest if int(largest[0]) > int(seen[0]) else None
        return None if largest == seen else self.table.find_largest(connection, seen)

    def _is_ahead(self, connection: Connection, largest: Key | None, cursor: Key | None) -> bool:
        """Whether there are rows behind the cursor."""
        if cursor is None:
            return True
        if largest is None:
            ahead = False
        elif self.table.has_integer_key:
            ahead = int(largest[0]) > int(cursor[0])
        else:
            ahead = self.table.has_rows_behind(connection, cursor)
        if not ahead:
            self._require_deletions(connection, cursor)
        return ahead

    def _require_deletions(self, connection: Connection, cursor: Key) -> None:
        if self._settings.shrunk_tables == "accept":
            return
        if self.table.has_integer_key and not self.table.is_query:
            given = self._database.kind.find_highest_given(connection, self.table.name, self.table.key[0])
            if given is not None and given >= int(cursor[0]):
                return  # its last rows were deleted, and the next ones get larger keys
        self._look_again(connection)  # a key of another order, or another table, is another reason
        raise PositionRefused(
            f"the last row of {self.id} that was read has a larger key than any that is there now: the table was "
            "emptied or restored, or its last rows were deleted, or detached with a partition, or this server is "
            "behind the one that was read before (a standby, a replica)",
            "let the url name the server that has the rows; if new rows get larger keys again, set "
            'shrunkTables = "accept"; if the table is another one now, forget '
            f"the position ({show_command('position', 'forget', self._source)}), or give the source another name",
        )

    def _count(self, connection: Connection, cursor: Key | None) -> None:
        """How many rows are seen and not settled, now and then."""
        if not self.pending:
            self.unsettled = 0
            return
        if time.monotonic() - self._counted_at < _COUNT_SECONDS:
            return
        behind = self._settling.settled or cursor
        self.unsettled = max(0, self.table.count(connection, behind, _MOST_COUNTED) - len(self.skipped))
        self._counted_at = time.monotonic()

    def _cut(self, cursor: Key | None, to: Key) -> Key:
        cut = self._database.look(
            lambda connection: self.table.find_key_at(connection, cursor, to, POLL_PIECE_ROWS - 1),
            f"counting rows of {self.id}",
        )
        return to if cut is None else cut
