"""What readers are asked for, and what of a table is being read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from psql_streamer.snapshot.fence import Line
from psql_streamer.snapshot.held import HeldChunk, Piece
from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshot.table_runs import TableRun
from psql_streamer.snapshots import KeyForm

KEYS_READ_AGAIN_AT_ONCE = 1000
"""Rows that are read again with one query."""


@dataclass(slots=True, eq=False)
class Chunk:
    """keys: of one that reads rows again, else None. dropped: what is read for it is not wanted any more. settles: of
    one that looks up posted keys, how many these are. gone: those of them that were given.
    """

    held: HeldChunk
    keys: tuple[bytes, ...] | None = None
    dropped: bool = False
    settles: int = 0
    gone: int = 0


@dataclass(slots=True)
class TableWork:
    """What of a table is not part of positions: reading is ahead of giving."""

    began: float = field(default_factory=time.monotonic)
    read_key: bytes | None = None
    read_all: bool = False
    chunks: deque[Chunk] = field(default_factory=deque)
    outdated: int = 0  # chunks in a row that the stream showed in another shape
    look: object | None = None  # the last one at the table that has been begun, behind its last rows
    keys_at_once: int = KEYS_READ_AGAIN_AT_ONCE

    @property
    def busy(self) -> bool:
        return any(chunk.held.rows is None for chunk in self.chunks)

    def note_read_again(self, chunk: Chunk, came: Container[bytes], *, all_came: bool) -> None:
        """Rows were read again, all that are there or as many as there was room for; the others stay asked for.

        came: their keys. One may be another text of the value that was asked for, where a type has several: if no text
        is the same, fewer are asked for, until it is the row of the only one.
        """
        asked = chunk.keys or ()
        if all_came:
            self.keys_at_once = KEYS_READ_AGAIN_AT_ONCE
        elif len(asked) > 1:
            chunk.keys = tuple(key for key in asked if key in came)
            self.keys_at_once = self.keys_at_once if chunk.keys else len(asked) // 2

    def drop_chunks(self, given: bytes | None) -> None:
        """Read again from what was given on."""
        for chunk in self.chunks:
            chunk.dropped = True
        self.chunks.clear()
        self.read_key, self.read_all = given, False
        self.look = None


class Plan(NamedTuple):
    """Look up the tables of a snapshot."""

    run: SnapshotRun


class Read(NamedTuple):
    """Read rows of a table: those behind a key, or those with some keys. order: that the keys are of."""

    run: SnapshotRun
    table: TableRun
    chunk: Chunk
    after: bytes | None
    keys: tuple[bytes, ...] | None
    order: str


class Check(NamedTuple):
    """Look up posted keys of a table. documents: JSON of each. first: the number of the first. order: as in Read."""

    run: SnapshotRun
    table: TableRun
    chunk: Chunk
    documents: tuple[bytes, ...]
    form: KeyForm
    first: int
    order: str


class Look(NamedTuple):
    """Look at a table whose rows were all given: whether it has been streamed in the same way all the time. look: of
    TableWork, while nothing has become of it. order: as in Read."""

    run: SnapshotRun
    table: TableRun
    look: object
    order: str


class Nudge(NamedTuple):
    """Make the server write out its WAL up to the end that it has now."""


Task: TypeAlias = Plan | Read | Check | Look | Nudge


class GivenPiece(NamedTuple):
    """A piece, and what it is of. begun_anew: of the table, when it was taken."""

    run: SnapshotRun
    table: TableRun
    piece: Piece
    fence: Line
    begun_anew: int
