"""The `sql` source: rows that are added to tables, found by looking for larger keys again and again."""

from __future__ import annotations

import json
import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlalchemy.engine import Connection

from psql_streamer.errors import PositionRefused, SourceError, SourceRefused, SourceUnavailable
from psql_streamer.interfaces import CaptureRequest, Finding, Source, Status
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
    find_text_form,
    measure_batch_overhead,
)
from psql_streamer.options import SourceOptions
from psql_streamer.pgtypes import casts
from psql_streamer.shown_commands import show_command
from sources.sql.check import check_source
from sources.sql.database import Database, StatementGivenUp
from sources.sql.groups import look_at_each
from sources.sql.locked_tables import LOCK_SECONDS, LockedTables
from sources.sql.names import TableName
from sources.sql.options import BEGINNING, SqlOptions
from sources.sql.piece_reading import PieceReader
from sources.sql.polled_table import PolledTable, Rows
from sources.sql.polling import NewRows, Poll
from sources.sql.progress import Piece, Progress
from sources.sql.row_limits import RowLimits
from sources.sql.settling import Key
from sources.sql.watched_table import WatchedTable

KIND = "sql"

log = logging.getLogger(__name__)

_LOOKING = "looking at table"

_RECHECK_SECONDS = 0.1
"""Between two looks at transactions that rows wait for."""


class SqlSource(Source):
    """Polls tables, each with a cursor of its own, in the order of its key."""

    Options: ClassVar[type[SourceOptions]] = SqlOptions
    also_called = ("jdbc", "odbc", "sqlalchemy", "sqlite", "oracle", "mssql", "sqlserver", "database", "polling")
    first_start = "at startAt"
    no_snapshots: ClassVar[str] = (
        'to read its tables from their first row again, set startAt = "beginning", stop the service and forget the '
        "position"
    )

    @classmethod
    def say_no_snapshots(cls, name: str) -> str:
        return f"{cls.no_snapshots} ({show_command('position', 'forget', name)})"

    def __init__(
        self,
        name: str,
        options: SqlOptions,
        fits: Callable[[str, str], bool] | None = None,
        *,
        has_an_end: bool = False,
    ) -> None:
        """fits: which tables (schema, table) are polled; None: all. has_an_end: rows that are added are not wanted."""
        super().__init__(name, options)
        self._settings = options
        self._fits = fits
        self._has_an_end = has_an_end
        self._is_at_the_end = False  # the last poll found nothing, and nothing that is still to settle
        self._url = options.engine_url
        of_several = min(LOCK_SECONDS, options.timeout) if len(options.tables) > 1 else options.timeout
        self._database = Database(self._url, options.timeout, of_several)
        self._database.kind.source = name
        self._locked = LockedTables(options.timeout, name)
        self._tables: dict[str, WatchedTable] = {}
        self._watched = Poll(self._database, (), self._locked)
        self._shapes: dict[str, Relation] = {}
        self._identity: Mapping[str, str] = {}
        self._progress = Progress()
        self._unsaid = False  # the progress has cursors that would be others at the next start
        self._due = 0.0
        self._limits = RowLimits(options.batch_size)
        self._reader = PieceReader(self._database, self._tables, self._limits)
        self._stored_plans = 0
        self._stored = threading.Condition()
        self._started = False
        self._starts = 0
        self._polls = 0
        self._rows = 0
        self._last_row_at: float | None = None
        self._status = Status(False, "not started")

    def check(self) -> Iterable[Finding]:
        return check_source(self._settings, self._database)

    def read_stream_identity(self) -> Mapping[str, str]:
        found = self._identity = self._database.read_identity()
        where = {"database": self._url.database or ""}
        return {**where, **found} if found else {**where, "server": f"{self._url.host or ''}:{self._url.port or ''}"}

    def list_published(self) -> Sequence[Relation]:
        tables = self._make_tables()
        return list(look_at_each(self._database, tables, lambda connection, table: table.look(connection), _LOOKING))

    def remember(self, relations: Iterable[Relation]) -> None:
        self._shapes = {relation.id: relation for relation in relations}

    def has_reached(self, position: Position, mark: Position) -> bool:
        return Progress.from_position(position).has_reached(Progress.from_position(mark))

    def start(self, position: Position | None) -> None:
        self._database.close()
        try:
            self._begin(Progress() if position is None else Progress.from_position(position))
        except SourceError as error:
            self._status = Status(False, str(error))
            raise
        if not self._starts:  # a later start is where reading got to
            self._stored_plans = self._progress.plans
        self._starts += 1
        self._started = True
        self._due = 0.0
        self._status = self._describe()

    def read(self, timeout: float) -> Batch | None:
        if not self._started:
            raise SourceUnavailable("the source is not started")
        try:
            batch = self._read_next(timeout)
        except SourceError as error:
            self._status = Status(False, str(error))
            raise
        self._status = self._describe()
        return batch

    @property
    def is_exhausted(self) -> bool:
        return self._has_an_end and self._is_at_the_end

    def confirm(self, position: Position) -> None:
        with self._stored:
            self._stored_plans = max(self._stored_plans, position.data["plans"])
            self._stored.notify_all()

    def make_capture(self, request: CaptureRequest) -> Source:
        """Of the rows that are there, and of those that come if these are wanted: it writes nothing to the database."""
        tables = tuple(one.model_copy(update={"start_at": None}) for one in self._settings.tables)
        begins = {"start_at": (BEGINNING,), "tables": tables}
        settings = self._settings.model_copy(update=begins)
        return SqlSource(self.name, settings, request.fits, has_an_end=request.existing)

    def interrupt(self) -> None:
        self._database.interrupt()
        with self._stored:
            self._stored.notify_all()

    def stop(self) -> None:
        self._started = False
        self._database.close()
        self._database.kind.release()
        self._status = Status(False, "stopped")

    def status(self) -> Status:
        return self._status

    def stats(self) -> Stats:
        age = (
            {}
            if self._last_row_at is None
            else {"last_row_age_seconds": round(time.monotonic() - self._last_row_at, 3)}
        )
        return {
            "rows": self._rows,
            "polls": self._polls,
            "reconnects": max(0, self._starts - 1),
            "unsettled_rows": sum(table.unsettled for table in self._tables.values()),
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
        tables = [PolledTable(entry, kind, schema) for entry in self._settings.tables]
        return [table for table in tables if self._fits is None or self._fits(table.schema, table.name.table)]

    def _begin(self, progress: Progress) -> None:
        made = self._watch_tables()
        tables = {table.id: table for table in made}
        if len(tables) < len(made):
            raise SourceRefused("two entries of tables name the same table", "name it once")
        new = [table for table in made if table.id not in progress.cursors]
        found = look_at_each(self._database, new, _find_start, "looking for the last row of")
        starts = dict(zip((table.id for table in new), found, strict=True))
        unsaid = False
        for table in made:
            if table.id in progress.cursors:
                table.require_basis(progress.bases[table.id], progress.cursors[table.id])
                progress = progress.with_keys_of(table.id, table.basis, table.table.convert_key)
            else:
                progress = progress.with_table(table.id, table.basis, *starts[table.id])
                unsaid = unsaid or self._settings.find_start(table.table.options) != (BEGINNING,)
            table.skipped = progress.skipped.get(table.id, ())
        left = sorted({piece.table for piece in progress.pieces if piece.table not in tables})
        if gone := [name for name in left if self._is_gone(name, progress)]:
            what = "is not in tables and not there any more: rows that were found in it are not read"
            log.warning("source.%s: %s %s", self.name, ", ".join(gone), what)
            progress = progress.without_pieces_of(gone)
        if unknown := [name for name in left if name not in gone]:
            raise PositionRefused(
                f"the position is in the middle of rows of {', '.join(unknown)}, which tables no longer names",
                "start once more with it, and take it out of tables when the service has stopped",
            )
        self._tables, self._progress, self._unsaid = tables, progress, unsaid
        self._locked.of_several = len(made) > 1
        self._watched = Poll(self._database, made, self._locked)
        self._reader = PieceReader(self._database, tables, self._limits)

    def _is_gone(self, name: str, progress: Progress) -> bool:
        """Whether a table of a position is not there any more, or not for this user. Its name may have dots."""
        if not progress.bases[name].types:
            return False  # a query, of which that is not known
        splits = [at for at, sign in enumerate(name) if sign == "."]
        return not any(
            map(self._is_there, [TableName("", name), *(TableName(name[:at], name[at + 1 :]) for at in splits)])
        )

    def _is_there(self, name: TableName) -> bool:
        try:
            self._database.look(
                lambda connection: self._database.kind.describe(connection, name), f"looking for table {name}"
            )
        except SourceRefused:
            return False
        return True

    def _watch_tables(self) -> list[WatchedTable]:
        tables = self._make_tables()
        made: list[WatchedTable] = []

        def watch(connection: Connection, table: PolledTable) -> WatchedTable:
            return WatchedTable(table, self._database, self._settings, self.name, connection)

        try:
            made.extend(look_at_each(self._database, tables, watch, _LOOKING))
        except SourceUnavailable:
            if self._database.interrupted and made:
                what = f"interrupted when {len(made)} of {len(tables)} tables had been looked at"
                raise SourceUnavailable(what, "raise startTimeout if that was too short for all of them") from None
            raise
        return made

    # What is next.

    def _read_next(self, timeout: float) -> Batch | None:
        if self._unsaid:
            self._unsaid = False
            return self._move()
        if self._progress.pieces:
            return self._read_pieces() if self._wait_until_stored(timeout) else None
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
        began, moment = time.monotonic(), time.time_ns() // 1000
        self._database.kind.require_the_same_file()
        self._polls += 1
        pieces: list[Piece] = []
        more = False
        for new in self._watched.find_new_rows(self._progress.cursors):
            commit = pieces[-1].last if pieces else self._progress.commit
            if piece := self._plan(new, commit):
                pieces.append(piece)
                more = more or piece.to != new.to
        self._due = began if more else began + self._pause
        waits = any(table.pending for table in self._tables.values()) or bool(self._locked.describe())
        self._is_at_the_end = not pieces and not waits
        if not pieces:
            return None
        self._progress = self._progress.with_plan(pieces, moment)
        return self._move()

    def _plan(self, new: NewRows, commit: int) -> Piece | None:
        """What is to be read of a table. commit: the largest number that is given away."""
        table, cursor = new.table, self._progress.cursors[new.table.id]
        by_key = not self._progress.plans and len(self._tables) == 1
        began = time.monotonic()
        try:
            return table.plan(cursor, new.first, new.to, commit, by_key)
        except SourceRefused:
            table.require_the_same_key()  # which says what happened, if it is the key
            raise
        except StatementGivenUp as error:
            self._locked.leave_alone(table.id, error, time.monotonic() - began)
            return None

    @property
    def _pause(self) -> float:
        """Seconds from one poll to the next."""
        pending = any(table.pending for table in self._tables.values())
        return min(self._settings.poll_interval, _RECHECK_SECONDS) if pending else self._settings.poll_interval

    # Reading rows.

    def _read_pieces(self) -> Batch:
        first, began = self._progress.pieces[0].table, time.monotonic()
        try:
            read = self._reader.read(self._progress)
        except StatementGivenUp as error:
            self._locked.leave_alone(first, error, time.monotonic() - began)
            self._progress = self._progress.with_piece_put_off()
            return self._move()
        parts: list[tuple[Piece, Rows]] = []
        for one in read:
            if one.rows is not None:
                # As it stood: places of rows are counted from what was done before.
                parts.append((self._progress.pieces[0], one.rows))
                self._progress = self._progress.with_rows_done(len(one.rows), one.rows.last)
                self._rows += len(one.rows)
                self._last_row_at = time.monotonic()
            if one.ends:
                self._end_piece()
        return self._make_batch(parts, sum(one.held for one in read)) if parts else self._move()

    def _end_piece(self) -> None:
        self._tables[self._progress.pieces[0].table].skipped = ()
        self._progress = self._progress.with_piece_done()

    def _make_batch(self, parts: Sequence[tuple[Piece, Rows]], held: int) -> Batch:
        commits, times, changes, shapes, count = [], [], [], [], 0
        for piece, rows in parts:
            relation, change = self._learn_shape(rows.relation)
            commit, seq = _number_rows(rows.key, piece)
            tx = np.arange(count, count + len(rows), dtype=np.int32)
            made = Changes.from_new_rows(relation, rows.arrays, tx)
            changes.append(replace(made, seq=seq, batch_order=made.batch_order + count))
            if change is not None:
                shapes.append(replace(change, batch_order=count, seq=int(seq[0]), tx=count))
            commits.append(commit)
            times.append(self._compute_times(rows))
            count += len(rows)
        batch = Batch(
            self._info,
            self._progress.position,
            Transactions(np.concatenate(commits), np.concatenate(times)),
            tuple(changes),
            schema_changes=tuple(shapes),
            received_at=time.monotonic(),
        )
        return replace(batch, nbytes=held + measure_batch_overhead(batch.rows))

    def _learn_shape(self, relation: Relation) -> tuple[Relation, SchemaChange | None]:
        """The relation with its version, and what is new about it."""
        before = self._shapes.get(relation.id)
        if before is not None and replace(relation, version=before.version) == before:
            return before, None
        relation = replace(relation, version=before.version + 1 if before else 1)
        self._shapes[relation.id] = relation
        return relation, SchemaChange(relation, before, 0, 0, 0)

    def _compute_times(self, rows: Rows) -> NDArray[np.int64]:
        """The moment of the plan, so that a repeat has the same; or what a column says."""
        moments = np.full(len(rows), self._progress.moment)
        column = rows.relation.columns
        if rows.times is None:
            return moments
        kind = next(one.type for one in column if one.name == self._tables[rows.relation.id].table.options.timestamp)
        form = find_text_form(kind)
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

    def _describe(self) -> Status:
        """What it does, and what it waits for: first of all what waits for too long."""
        tables = sorted(self._tables.values(), key=lambda table: not table.is_held_up)
        held_up = bool(tables) and tables[0].is_held_up
        waits = next((found for table in tables if (found := table.waits_for)), "")
        by_time = next((found for table in self._tables.values() if (found := table.by_time)), "")
        polls = f"polls every {self._settings.poll_interval:g} s, tables: {len(self._tables)}"
        if locked := self._locked.describe():
            return Status(not (held_up or self._locked.is_problem), f"{locked}; {waits}" if waits else locked)
        return Status(not held_up, waits or (f"{polls}; {by_time}" if by_time else polls))


def _find_start(connection: Connection, table: WatchedTable) -> tuple[Key | None, tuple[Key, ...]]:
    return table.find_start(connection)


def _number_rows(key: Sequence[Sequence[int | str]], piece: Piece) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
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
