"""A chunk of rows that waits for the stream: what changes meanwhile is taken out of it.

Why this is right
-----------------
The chunk was read in one snapshot of PostgreSQL's, its fence. A row change of the stream is of a transaction that is
visible behind the fence, or of one that is not.
- Visible: the row that was read has the change already. The chunk is given behind it, because it waits until the stream
  has reached the end of the WAL as it was after the fence was made, and a visible transaction's commit lies before.
- Not visible: the row that was read is older than the change. If the change is given before the chunk, the row is taken
  out. If it is given behind the chunk, it is in its place.
The stream's changes are noted from before the fence is made; what was given earlier must be visible (see Delivered).
A row that was taken out because of an update which came without a value (unchanged TOAST) is read once more: nobody has
given that value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.model import Relation
from psql_streamer.snapshot.changed_keys import ChangedKeys
from psql_streamer.snapshot.fence import Line


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Rows of one table that were read behind one fence.

    relation: the table's shape then. columns: an array a column of the relation, `binary` text forms. keys: of each
    row, as row_keys has them. size: bytes. order: what says in which order the table's rows are read. places: what the
    table is read on behind, of each row; None where that is its key.
    """

    fence: Line
    relation: Relation
    columns: Sequence[pa.Array]
    keys: pa.Array
    size: int
    order: str = ""
    places: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class Piece:
    """What of a chunk is given at once. columns: as in ReadRows, of the rows that are left. keys: theirs.

    behind: the place up to which the table is done with it; None where the order of the rows is none of keys. gone:
    whether these are keys that no row has; the columns have the key's values alone.
    """

    relation: Relation
    columns: Sequence[pa.Array]
    keys: pa.Array
    size: int
    behind: bytes | None
    ends_chunk: bool
    gone: bool = False


class HeldChunk:
    """One chunk: from before its fence is made until its last row is given. Not for several threads.

    turn, latest: of Given when noting began, without the transaction that was open then.
    """

    def __init__(self, turn: int, latest: Any) -> None:
        self.turn = turn
        self.latest = latest
        self.stale = 0
        self.rows: ReadRows | None = None
        self.outdated = False
        self._notes: list[ChangedKeys] = []
        self._truncated: list[int] = []
        self._shapes: list[Relation] = []
        self._names_of_others: set[tuple[str, str]] = set()
        self._keys = pa.array([], pa.binary())
        self._left: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._given = 0

    def note(self, keys: ChangedKeys, shape: Relation) -> None:
        """The stream gives changes of the table, in this shape. Before the rows are there, and behind."""
        self.note_keys(keys)
        self.note_shape(shape)

    def note_keys(self, keys: ChangedKeys) -> None:
        """The same of changes that were given before, and that the reading may not see."""
        self._notes.append(keys)

    def note_truncate(self, xid: int) -> None:
        """The stream gives a TRUNCATE of the table, of this transaction."""
        self._truncated.append(xid)

    def note_altered(self) -> None:
        """The stream gives a statement that may have made another table of it. The rows are read again."""
        self.outdated = True

    def note_shape(self, shape: Relation) -> None:
        """The stream shows the table in this shape. Rows that were read in another one are read again."""
        if not self._shapes or self._shapes[-1] != shape:
            self._shapes.append(shape)

    def note_name_of_another(self, other: Relation) -> None:
        """Another table is given under its name. Rows that were read when this one had it are read again."""
        self._names_of_others.add((other.schema, other.table))

    def fill(self, rows: ReadRows) -> None:
        """The rows that were read."""
        self.rows = rows
        self._keys = rows.keys
        self._left = np.ones(len(rows), np.bool_)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of its rows that are not given yet."""
        count = len(self._left)
        return self.rows.size * (count - self._given) // count if self.rows and count else 0

    @property
    def mark(self) -> Any:
        """Where the stream must have got before it can be given."""
        assert self.rows is not None  # noqa: S101 - asked behind `fill`
        return self.rows.fence.mark

    def take_out_changed(self) -> list[bytes]:
        """Take out what has changed so far; the keys that are to be read again."""
        rows = self.rows
        assert rows is not None  # noqa: S101 - asked behind `fill`
        seen, self._shapes = self._shapes, []
        self.outdated = (
            self.outdated
            or any(not _is_same(shape, rows.relation) for shape in seen)
            or (rows.relation.schema, rows.relation.table) in self._names_of_others
        )
        again = self._take_out_keys(rows.fence) if self._notes else []
        if self._truncated:
            self._take_out_truncated(rows.fence)
        return again

    def take(self, most_rows: int, most_bytes: int) -> Piece:
        """The next rows that are left. They count as given."""
        rows = self.rows
        assert rows is not None  # noqa: S101 - asked behind `fill`
        begin, count = self._given, len(rows)
        width = max(1, rows.size // max(1, count))
        end = min(count, begin + max(1, min(most_rows, most_bytes // width)))
        self._given = end
        places = rows.keys if rows.places is None else rows.places
        *columns, keys = _select([*rows.columns, self._keys], self._left, begin, end)
        behind = places[end - 1].as_py() if end > begin else None
        return Piece(rows.relation, columns, keys, width * len(keys), behind, end == count)

    def _take_out_keys(self, fence: Line) -> list[bytes]:
        notes, self._notes = self._notes, []
        newer = fence.select_newer(np.concatenate([note.xids for note in notes]))
        if not newer.any():
            return []
        keys = pa.concat_arrays([note.keys for note in notes]).filter(pa.array(newer))
        lacks = np.concatenate([note.lacks for note in notes])[newer]
        gone = self._take_out_newer(keys)
        if not lacks.any():
            return []
        without = keys.filter(pa.array(lacks))
        again = self._keys.filter(
            pa.array(gone & pc.is_in(self._keys, value_set=without).to_numpy(zero_copy_only=False))
        )
        return list(again.to_pylist())

    def _take_out_newer(self, keys: pa.Array) -> NDArray[np.bool_]:
        """keys: of changes that the reading does not see. Which rows were taken out."""
        return self._take_out(pc.is_in(self._keys, value_set=keys).to_numpy(zero_copy_only=False))

    def _take_out_truncated(self, fence: Line) -> None:
        xids, self._truncated = self._truncated, []
        if fence.select_newer(np.array(xids, np.uint32)).any():
            self._take_out(np.ones(len(self._left), np.bool_))

    def _take_out(self, changed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of the rows that were left are not any more."""
        gone = changed & self._left
        gone[: self._given] = False
        self._left &= ~gone
        self.stale += int(np.count_nonzero(gone))
        return gone


def _select(columns: Sequence[pa.Array], left: NDArray[np.bool_], begin: int, end: int) -> Sequence[pa.Array]:
    """The values of the rows between two that are left."""
    if left[begin:end].all():
        return [column.slice(begin, end - begin) for column in columns]
    chosen = pa.array(np.flatnonzero(left[begin:end]) + begin)
    return [column.take(chosen) for column in columns]


def _is_same(one: Relation, other: Relation) -> bool:
    """Whether two shapes differ in nothing but their number."""
    return one.columns == other.columns and (one.schema, one.table, one.replica_identity) == (
        other.schema,
        other.table,
        other.replica_identity,
    )
