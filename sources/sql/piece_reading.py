"""Rows of the pieces of a plan, of as many tables in a batch as there is room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from psql_streamer.binary_columns import measure_bytes
from psql_streamer.errors import SourceError, SourceUnavailable
from sources.sql.database import Database, StatementTooSlow, TookTooLong
from sources.sql.groups import GROUP_TABLES
from sources.sql.polled_table import Rows, ShapeChanged
from sources.sql.progress import Piece, Progress
from sources.sql.row_limits import RowLimits
from sources.sql.row_sizes import READ_BYTES, RowsTooWide
from sources.sql.settling import Key
from sources.sql.watched_table import WatchedTable


@dataclass(frozen=True, slots=True)
class PieceRows:
    """What was read of a piece. rows: None for none. held: their bytes. ends: whether the piece has no more."""

    piece: Piece
    rows: Rows | None
    held: int
    ends: bool


class PieceReader:
    """limits: what is known of the tables' rows; it outlives the connection."""

    def __init__(self, database: Database, tables: Mapping[str, WatchedTable], limits: RowLimits) -> None:
        self._database = database
        self._tables = tables
        self._limits = limits

    def read(self, progress: Progress) -> list[PieceRows]:
        """Rows of the next piece, and of those behind it while they are read whole and there is room.

        StatementGivenUp when the server gives that up for the table of the next piece, and does others.
        """
        first = progress.pieces[0]
        found = [self._read_alone(first, progress.cursors[first.table])]
        while found[-1].ends and (pieces := progress.pieces[len(found) : len(found) + GROUP_TABLES]):
            room = (
                self._limits.most - sum(len(one.rows or ()) for one in found),
                READ_BYTES - sum(one.held for one in found),
            )
            more: list[PieceRows] = []
            try:
                whole = self._database.look(
                    partial(self._read_together, more, pieces, progress.cursors, *room),
                    f"reading rows of {pieces[0].table} and {len(pieces) - 1} other tables",
                )
            except SourceError:
                whole = False  # the next batch begins where it failed, and its failure names the table
            found += tuple(more)
            if not whole:
                break
        for one in found:
            if one.rows is not None:
                self._limits.note_rows(one.piece.table, len(one.rows), one.held)
        return found

    def _read_alone(self, piece: Piece, cursor: Key | None) -> PieceRows:
        most = self._count_most(piece, cursor, self._limits.most)
        try:
            return _make_piece_rows(piece, self._tables[piece.table].read(cursor, piece.to, most), most)
        except (TookTooLong, StatementTooSlow) as error:
            # Locks, a missing index and large values are what may be the reason.
            fewer = self._limits.note_failure(piece.table)
            kind = StatementTooSlow if isinstance(error, StatementTooSlow) else SourceUnavailable
            raise kind(
                f"{error.what} (at most {most} rows; {fewer} are asked for next)",
                "look for locks, a missing index and very large values in the database, or raise timeout",
            ) from None

    def _read_together(
        self,
        found: list[PieceRows],
        pieces: Sequence[Piece],
        cursors: Mapping[str, Key | None],
        rows: int,
        held: int,
        connection: Connection,
    ) -> bool:
        """found: gets what was read, which stays so if a later table makes the look fail. rows, held: for how many, and
        for how many bytes, there is room. Whether all was read; it ends where a table must be read alone.
        """
        for piece in pieces:
            if rows <= 0 or held <= 0:
                return False
            table, cursor = self._tables[piece.table], cursors[piece.table]
            most = self._count_most(piece, cursor, rows)
            try:
                some = table.read_rows(connection, cursor, piece.to, most)
            except (ShapeChanged, RowsTooWide, SourceError, sa.exc.SQLAlchemyError):
                return False
            read = _make_piece_rows(piece, some, most)
            connection.rollback()  # a lock on one table is not held while another one is waited for
            found.append(read)
            rows, held = rows - len(read.rows or ()), held - read.held
            if not read.ends:
                return False
        return True

    def _count_most(self, piece: Piece, cursor: Key | None, room: int) -> int:
        """Rows that are asked for: no more than there can be."""
        most = min(room, self._limits.find_limit(piece.table))
        if piece.ranked or cursor is None:
            return most
        return max(1, min(most, int(piece.to[0]) - int(cursor[0])))


def _make_piece_rows(piece: Piece, rows: Rows | None, most: int) -> PieceRows:
    if rows is None:
        return PieceRows(piece, None, 0, ends=True)
    ends = (len(rows) < most and not rows.cut) or rows.last == piece.to
    return PieceRows(piece, rows, sum(map(measure_bytes, rows.arrays)), ends)
