"""The `sql` source: rows that are added to tables, found by looking for larger keys again and again."""

from __future__ import annotations

import json
import logging
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlalchemy.engine import Connection

from psql_streamer.binary_columns import nbytes
from psql_streamer.errors import PositionRefused, SourceError, SourceRefused, SourceUnavailable
from psql_streamer.interfaces import Finding, Source, Status
from psql_streamer.model import (
    NO_TRANSACTIONS,
    Batch,
    Changes,
    Position,
    Relation,
    SchemaChange,
    SourceInfo,
    Stats,
    Transactions,
    batch_overhead,
    text_form,
)
from psql_streamer.options import SourceOptions
from psql_streamer.pgtypes import casts
from sources.sql.check import findings
from sources.sql.database import ColumnsDiffer, Database
from sources.sql.options import BEGINNING, NOW, SqlOptions
from sources.sql.polled_table import PolledTable, Rows, ShapeChanged
from sources.sql.progress import PIECE_ROWS, Piece, Progress
from sources.sql.settling import Key, Settling

log = logging.getLogger(__name__)

KIND = "sql"

_RECHECK_SECONDS = 0.1
"""Between two looks at transactions that rows wait for."""

_COUNT_SECONDS = 1.0
"""Between two counts of rows that are not settled."""

_MOST_COUNTED = 10_000

_BATCH_BYTES = 32 << 20
"""Where rows are wide, a batch has fewer of them."""

_LARGEST_COMMIT = 2**63 - 1


class SqlSource(Source):
    """Polls tables, each with a cursor of its own, in the order of its key."""

    Options: ClassVar[type[SourceOptions]] = SqlOptions

    def __init__(self, name: str, options: SqlOptions) -> None:
        super().__init__(name, options)
        self._settings = options
        self._url = options.engine_url
        self._database = Database(self._url, options.timeout)
        self._tables: dict[str, PolledTable] = {}
        self._settling: dict[str, Settling] = {}
        self._shapes: dict[str, Relation] = {}
        self._identity: Mapping[str, str] = {}
        self._progress = Progress()
        self._unsaid = False  # the progress has cursors that would be others at the next start
        self._due = 0.0
        self._more = False
        self._limit = options.batch_size
        self._stored_plans = 0
        self._stored = threading.Condition()
        self._started = False
        self._starts = 0
        self._polls = 0
        self._rows = 0
        self._last_row_at: float | None = None
        self._unsettled: dict[str, int] = {}
        self._counted_at: dict[str, float] = {}
        self._by_time = ""
        self._status = Status(False, "not started")

    def check(self) -> Iterable[Finding]:
        return findings(self._settings, self._database)

    def stream_identity(self) -> Mapping[str, str]:
        found = self._identity = self._database.look(self._database.kind.identity, "asking which database it is")
        where = {"database": self._url.database or ""}
        return {**where, **found} if found else {**where, "server": f"{self._url.host or ''}:{self._url.port or ''}"}

    def published(self) -> Sequence[Relation]:
        return [self._database.look(table.look, f"looking at table {table.id}") for table in self._make_tables()]

    def remember(self, relations: Iterable[Relation]) -> None:
        self._shapes = {relation.id: relation for relation in relations}

    def has_reached(self, position: Position, mark: Position) -> bool:
        return Progress.of(position).reached(Progress.of(mark))

    def start(self, position: Position | None) -> None:
        self._database.close()
        try:
            self._begin(Progress() if position is None else Progress.of(position))
        except SourceError as error:
            self._status = Status(False, str(error))
            raise
        if not self._starts:  # a later start is where reading got to
            self._stored_plans = self._progress.plans
        self._starts += 1
        self._started = True
        self._due = 0.0
        self._status = Status(True, self._describe())

    def read(self, timeout: float) -> Batch | None:
        if not self._started:
            raise SourceUnavailable("the source is not started")
        try:
            batch = self._next(timeout)
        except SourceError as error:
            self._status = Status(False, str(error))
            raise
        self._status = Status(True, self._describe())
        return batch

    def confirm(self, position: Position) -> None:
        with self._stored:
            self._stored_plans = max(self._stored_plans, position.data["plans"])
            self._stored.notify_all()

    def interrupt(self) -> None:
        self._database.interrupt()
        with self._stored:
            self._stored.notify_all()

    def stop(self) -> None:
        self._started = False
        self._database.close()
        self._status = Status(False, "stopped")

    def status(self) -> Status:
        return self._status

    def stats(self) -> Stats:
        age = {} if self._last_row_at is None else {"last_row_age_seconds": round(time.time() - self._last_row_at, 3)}
        return {
            "rows": self._rows,
            "polls": self._polls,
            "reconnects": max(0, self._starts - 1),
            "unsettled_rows": sum(self._unsettled.values()),
            "cursors": {
                name: None if key is None else key[0] if len(key) == 1 else list(key)
                for name, key in dict(self._progress.cursors).items()
            },
            **age,
        }

    # The start.

    def _make_tables(self) -> list[PolledTable]:
        kind = self._database.kind
        schema = self._database.look(
            lambda connection: connection.dialect.default_schema_name or "", "asking for the default schema"
        )
        return [PolledTable(entry, kind, schema) for entry in self._settings.tables]

    def _begin(self, progress: Progress) -> None:
        settings = self._settings
        tables = {table.id: table for table in self._make_tables()}
        if len(tables) < len(settings.tables):
            raise SourceRefused("two entries of tables name the same table", "name it once")
        cursors: dict[str, Key | None] = {}
        unsaid = False
        settling: dict[str, Settling] = {}
        self._by_time = ""
        for table in tables.values():
            self._database.look(partial(_require_a_safe_key, table, settings), f"looking at table {table.id}")
            if table.id not in progress.cursors:
                cursors[table.id] = self._start_of(table)
                unsaid = unsaid or self._settings.start_of(table.options) != (BEGINNING,)
            settling[table.id] = self._settling_of(table)
        if unknown := sorted(piece.table for piece in progress.pieces if piece.table not in tables):
            raise PositionRefused(
                f"the position is in the middle of rows of {', '.join(unknown)}, which tables no longer names",
                "start once more with it, and take it out of tables when the service has stopped",
            )
        self._tables, self._settling, self._unsettled = tables, settling, {}
        self._progress = progress.with_cursors(cursors)
        self._unsaid = unsaid

    def _start_of(self, table: PolledTable) -> Key | None:
        start = self._settings.start_of(table.options)
        if start == (BEGINNING,):
            return None
        if start == (NOW,):
            return self._database.look(table.largest, f"looking for the last row of {table.id}")
        if len(start) != len(table.key):
            raise SourceRefused(
                f"startAt has {len(start)} values, and the key of {table.id} is {', '.join(table.key)}",
                "give a value for each column of the key",
            )
        if table.has_integer_key and not isinstance(start[0], int):
            raise SourceRefused(
                f"startAt of {table.id} is no whole number, and its key is",
                'write "beginning", "now" or a number without quotes',
            )
        return start

    def _settling_of(self, table: PolledTable) -> Settling:
        kind, seconds = self._database.kind, self._settings.settle
        told = not table.is_query and self._database.look(
            lambda connection: kind.writers(connection, table.name, table.key) is not None,
            f"asking who writes to {table.id}",
        )
        if seconds is None:
            seconds = 0.0 if told else kind.settle_seconds
        if seconds and not told:
            self._by_time = (
                f"rows of {table.id} are read {seconds:g} s after they were seen: the server does not say who writes"
            )
        return Settling(seconds, told, kind.first_look_seconds)

    # What is next.

    def _next(self, timeout: float) -> Batch | None:
        if self._unsaid:
            self._unsaid = False
            return self._move()
        if self._progress.pieces:
            return self._read_piece() if self._wait_until_stored(timeout) else None
        return self._poll() if self._wait_until_due(timeout) else None

    def _wait_until_stored(self, timeout: float) -> bool:
        """Whether the plan is stored. Its rows would have other commit numbers if another one were made of them."""
        plans = self._progress.plans
        with self._stored:
            self._stored.wait_for(lambda: self._stored_plans >= plans or self._database.interrupted, timeout)
        self._require_not_interrupted()
        return self._stored_plans >= plans

    def _wait_until_due(self, timeout: float) -> bool:
        wait = self._due - time.monotonic()
        with self._stored:
            self._stored.wait_for(lambda: self._database.interrupted, max(0.0, min(wait, timeout)))
        self._require_not_interrupted()
        return self._due <= time.monotonic()

    def _require_not_interrupted(self) -> None:
        if self._database.interrupted:
            raise SourceUnavailable("interrupted while it waited for new rows")

    def _move(self) -> Batch:
        """A batch without rows."""
        return Batch(self._info, self._progress.position, NO_TRANSACTIONS, received_at=time.monotonic())

    # Looking for rows.

    def _poll(self) -> Batch | None:
        """Look at every table; a plan of what is to be read, if there is something."""
        began = time.monotonic()
        self._database.kind.require_the_same_file()
        moment, commit = time.time_ns() // 1000, self._progress.commit
        self._polls += 1
        self._more = False
        pieces: list[Piece] = []
        for table in self._tables.values():
            to = self._look(table)
            piece = None if to is None else self._plan(table, to, commit)
            if piece is not None:
                pieces.append(piece[0])
                commit = piece[1]
        pending = any(one.pending for one in self._settling.values())
        pause = min(self._settings.poll_interval, _RECHECK_SECONDS) if pending else self._settings.poll_interval
        self._due = began if self._more else began + pause
        if not pieces:
            return None
        self._progress = self._progress.with_plan(pieces, commit, moment)
        return self._move()

    def _look(self, table: PolledTable) -> Key | None:
        """The largest settled key, if it lies behind the cursor."""
        settling, kind, cursor = self._settling[table.id], self._database.kind, self._progress.cursors[table.id]

        def look(connection: Connection) -> None:
            largest = table.largest(connection)
            if largest == cursor or not self._is_ahead(table, connection, largest, cursor) or largest is None:
                return
            if settling.by_writers:
                # Behind the largest key: who took a smaller one holds a lock by then, or has ended.
                writers = kind.writers(connection, table.name, table.key)
                if writers is None:
                    raise SourceUnavailable("the server does not say any more which transactions write")
                now = time.monotonic()
                looked_at = now if kind.first_look_seconds == 0 else writers.looked_at
                if writers.known:
                    settling.observe(largest, now, writers.names, writers.successors, looked_at)
            else:
                settling.observe(largest, time.monotonic())

        self._database.look(look, f"looking for new rows in {table.id}")
        self._count(table, settling)
        settled = settling.settled
        return None if settled == cursor else settled

    def _is_ahead(self, table: PolledTable, connection: Connection, largest: Key | None, cursor: Key | None) -> bool:
        """Whether there are rows behind the cursor. PositionRefused when the table is shorter than it was."""
        if cursor is None:
            return True
        if largest is None:
            ahead = False
        elif table.has_integer_key:
            ahead = int(largest[0]) > int(cursor[0])
        else:
            ahead = table.has_rows_behind(connection, cursor)
        if not ahead:
            self._require_deletions(table, connection, cursor)
        return ahead

    def _require_deletions(self, table: PolledTable, connection: Connection, cursor: Key) -> None:
        if self._settings.shrunk_tables == "accept":
            return
        if table.has_integer_key and not table.is_query:
            given = self._database.kind.highest_given(connection, table.name, table.key[0])
            if given is not None and given >= int(cursor[0]):
                return  # its last rows were deleted, and the next ones get larger keys
        raise PositionRefused(
            f"the last row of {table.id} that was read has a larger key than any that is there now: the table was "
            "emptied or restored, or its last rows were deleted",
            'if new rows get larger keys again, set shrunkTables = "accept"; if the table is another one now, forget '
            f"the position (psql-streamer position forget {self.name}), or give the source another name",
        )

    def _count(self, table: PolledTable, settling: Settling) -> None:
        """How many rows are seen and not settled, now and then."""
        if not settling.pending:
            self._unsettled[table.id] = 0
            return
        if time.monotonic() - self._counted_at.get(table.id, 0.0) < _COUNT_SECONDS:
            return
        behind = settling.settled or self._progress.cursors[table.id]
        self._unsettled[table.id] = self._database.look(
            lambda connection: table.count(connection, behind, _MOST_COUNTED), f"counting new rows in {table.id}"
        )
        self._counted_at[table.id] = time.monotonic()

    def _plan(self, table: PolledTable, to: Key, commit: int) -> tuple[Piece, int] | None:
        """The next rows of a table, and the largest commit number behind them."""
        cursor = self._progress.cursors[table.id]
        if not table.has_integer_key:
            return Piece(table.id, self._cut(table, cursor, to), commit + 1, ranked=True), commit + PIECE_ROWS
        if cursor is None:
            smallest = self._database.look(table.smallest, f"looking for the first row of {table.id}")
            if smallest is None:
                return None
            before = int(smallest[0]) - 1
        else:
            before = int(cursor[0])
        if not self._progress.plans and len(self._tables) == 1:
            commit = max(commit, before)  # so that the commit number is the key
        if int(to[0]) - before > PIECE_ROWS:
            to = self._cut(table, cursor, to)
        last = int(to[0]) + commit - before
        if last > _LARGEST_COMMIT:
            raise SourceRefused(
                f"the keys of {table.id} leave no commit number for other tables", "read it by a source of its own"
            )
        return Piece(table.id, to, commit - before, ranked=False), last

    def _cut(self, table: PolledTable, cursor: Key | None, to: Key) -> Key:
        cut = self._database.look(
            lambda connection: table.key_at(connection, cursor, to, PIECE_ROWS - 1), f"counting rows of {table.id}"
        )
        self._more = self._more or (cut is not None and cut != to)
        return to if cut is None else cut

    # Reading rows.

    def _read_piece(self) -> Batch:
        piece, limit = self._progress.pieces[0], self._limit
        table = self._tables[piece.table]
        rows = self._read_rows(table, piece, limit)
        if rows is None:
            self._progress = self._progress.behind_piece()
            return self._move()
        self._progress = self._progress.behind(len(rows), rows.last)
        if len(rows) < limit or rows.last == piece.to:
            self._progress = self._progress.behind_piece()
        self._rows += len(rows)
        self._last_row_at = time.time()
        return self._batch(rows, piece)

    def _read_rows(self, table: PolledTable, piece: Piece, limit: int) -> Rows | None:
        cursor = self._progress.cursors[table.id]
        read = partial(table.rows, cursor=cursor, to=piece.to, most=limit)
        for _ in range(_ATTEMPTS):
            try:
                return self._database.look(read, f"reading rows of {table.id}")
            except (ShapeChanged, ColumnsDiffer) as error:
                failure = error
                self._database.look(table.look, f"looking at table {table.id}")
        if isinstance(failure, ColumnsDiffer):
            raise failure
        raise SourceUnavailable(f"the columns of {table.id} change while its rows are read")

    def _batch(self, rows: Rows, piece: Piece) -> Batch:
        relation, change = self._known(rows.relation)
        count = len(rows)
        commit, seq = _numbers(rows.key, piece)
        changes = replace(Changes.of_new_rows(relation, rows.arrays, np.arange(count, dtype=np.int32)), seq=seq)
        held = sum(map(nbytes, rows.arrays))
        self._limit = min(self._settings.batch_size, max(1, _BATCH_BYTES * count // max(held, 1)))
        batch = Batch(
            self._info,
            self._progress.position,
            Transactions(commit, self._times(rows)),
            (changes,),
            schema_changes=() if change is None else (replace(change, seq=int(seq[0])),),
            received_at=time.monotonic(),
        )
        return replace(batch, nbytes=held + batch_overhead(batch.rows))

    def _known(self, relation: Relation) -> tuple[Relation, SchemaChange | None]:
        """The relation with its version, and what is new about it."""
        before = self._shapes.get(relation.id)
        if before is not None and replace(relation, version=before.version) == before:
            return before, None
        relation = replace(relation, version=before.version + 1 if before else 1)
        self._shapes[relation.id] = relation
        return relation, SchemaChange(relation, before, 0, 0, 0)

    def _times(self, rows: Rows) -> NDArray[np.int64]:
        """The moment of the plan, so that a repeat has the same; or what a column says."""
        moments = np.full(len(rows), self._progress.moment)
        column = rows.relation.columns
        if rows.times is None:
            return moments
        kind = next(one.type for one in column if one.name == self._tables[rows.relation.id].options.timestamp)
        form = text_form(kind)
        if form is None:
            return moments
        typed = casts.cast(rows.times, form)
        given = typed.cast(pa.timestamp("us", getattr(typed.type, "tz", None))).cast(pa.int64())
        found: NDArray[np.int64] = pc.fill_null(given, self._progress.moment).to_numpy(zero_copy_only=False)
        return found

    # Words.

    @property
    def _info(self) -> SourceInfo:
        identity = self._identity.get("system identifier") or self._identity.get("server uuid", "")
        return SourceInfo(KIND, self.name, self._url.host or "localhost", self._url.database or "", identity)

    def _describe(self) -> str:
        """What it does, and what it waits for."""
        now = time.monotonic()
        for name, settling in self._settling.items():
            if not settling.pending:
                continue
            seconds = now - settling.waits_since
            if names := sorted(settling.waits_for):
                return (
                    f"rows of {name} wait for {len(names)} transactions that may have written smaller keys, for "
                    f"{seconds:.0f} s: {', '.join(names[:_MOST_NAMED])}"
                )
            if settling.by_writers and seconds > _UNKNOWN_SECONDS + (self._settings.settle or 0):
                return f"rows of {name} have waited {seconds:.0f} s for the server to say which transactions write"
        waits = f"; {self._by_time}" if self._by_time else ""
        return f"polls {len(self._tables)} tables every {self._settings.poll_interval:g} s{waits}"


_ATTEMPTS = 3
_MOST_NAMED = 5
_UNKNOWN_SECONDS = 5.0


def _require_a_safe_key(table: PolledTable, settings: SqlOptions, connection: Connection) -> None:
    """SourceRefused when rows could be left out."""
    table.look(connection)
    table.require_unique_key(connection)
    if settings.unsafe_sequences == "refuse" and (unsafe := table.unsafe_sequence(connection)):
        raise SourceRefused(
            f"table {table.id}: {unsafe}; rows would be committed out of the order of their keys, and left out",
            'change that, or set settle long enough and unsafeSequences = "accept"',
        )


def _numbers(key: Sequence[Sequence[int | str]], piece: Piece) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The commit number and seq of rows.

    A row that is deleted between two readings moves the place of those behind it: where the commit number comes from
    the place, seq is a hash of the key, so that no row gets the identity that another one had.
    """
    if piece.ranked:
        places = np.arange(len(key[0]), dtype=np.uint64) + np.uint64(piece.shift + piece.done)
        hashes = [zlib.crc32(json.dumps(of_row).encode()) for of_row in zip(*key, strict=True)]
        return places, np.array(hashes, np.int64)
    numbers = np.array(key[0], np.object_) + piece.shift
    return numbers.astype(np.uint64), np.zeros(len(numbers), np.int64)
