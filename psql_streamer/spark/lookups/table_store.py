"""The rows of a table on disk, and behind them the changes that may come again: LMDB, one file a lookup.

Every change goes to disk before the batch that has it goes on, so that what is on disk is never behind the stored
position. Changes are folded into the rows only when no batch can begin before them any more: a stream that goes on
after a crash finds the rows as they were where it goes on.
"""

from __future__ import annotations

import json
import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import lmdb
import pyarrow as pa

from psql_streamer.checkpoint.store_format import decode_relation, encode_relation
from psql_streamer.errors import HandlerRefused
from psql_streamer.model import Position, Relation
from psql_streamer.spark.lookups.table_state import Row, RowChange, TableState

_ROWS, _CHANGES, _META = b"rows", b"changes", b"meta"
_FORMAT, _RELATION, _FOLDED = b"format", b"relation", b"folded"
_THIS_FORMAT = b"1"
_PLACE = struct.Struct(">QqI")
_LENGTH = struct.Struct(">I")
_NULL_LENGTH = 0xFFFF_FFFF
_TRUNCATE, _DELETE, _UPSERT = b"t", b"d", b"u"


class Place(NamedTuple):
    """Where a change stands in its stream: its transaction's commit number, and which of that one's it is."""

    commit: int
    seq: int


class TableStore:
    """path: of the file; its folder is made. most_bytes: of the rows."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        with _convert_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._environment: Any = lmdb.open(
                str(path), map_size=16 * most_bytes + (64 << 20), subdir=False, max_dbs=3, mode=0o600
            )
            self._rows, self._changes, self._meta = map(self._environment.open_db, (_ROWS, _CHANGES, _META))
            self._require_format()

    def read_relation(self) -> Relation | None:
        """The table, as it was when its rows were read; None when there are none."""
        with self._environment.begin(db=self._meta) as transaction:
            written = transaction.get(_RELATION)
        return None if written is None else decode_relation(written)

    def read_folded_place(self) -> Place | None:
        """The last change that is among the rows and cannot be taken back; None where there is none."""
        with self._environment.begin(db=self._meta) as transaction:
            written = transaction.get(_FOLDED)
        return None if written is None else Place(*json.loads(written))

    def replace(self, relation: Relation, state: TableState) -> None:
        """All rows anew. On return they are on disk."""
        with self._begin_writing() as transaction:
            for database in (self._rows, self._changes):
                transaction.drop(database, delete=False)
            transaction.put(_FORMAT, _THIS_FORMAT, db=self._meta)
            transaction.put(_RELATION, encode_relation(relation, None), db=self._meta)
            transaction.delete(_FOLDED, db=self._meta)
            values = [array.to_pylist() for array in state.arrays]
            for key, row in zip(state.keys.to_pylist(), zip(*values, strict=True), strict=True):
                transaction.put(_hash_key(key), _encode_row(row), db=self._rows)

    def clear(self) -> None:
        """Forget everything."""
        with self._begin_writing() as transaction:
            for database in (self._rows, self._changes, self._meta):
                transaction.drop(database, delete=False)

    def append(self, changes: Iterable[tuple[Place, RowChange]]) -> None:
        """Changes of a batch, in order. On return they are on disk; the same ones may come again."""
        at: Counter[Place] = Counter()
        with self._begin_writing() as transaction:
            for place, change in changes:
                transaction.put(_PLACE.pack(*place, at[place]), _encode_change(change), db=self._changes)
                at[place] += 1

    def settle(self, begins: Place) -> None:
        """A stream goes on with the change at this place: what lies before it is for good, the rest comes again."""
        with self._begin_writing() as transaction:
            self._fold(transaction, begins)
            cursor = transaction.cursor(db=self._changes)
            more = cursor.first()
            while more:
                more = cursor.delete()

    def fold(self, before: Place) -> None:
        """Nothing before this place comes again."""
        with self._begin_writing() as transaction:
            self._fold(transaction, before)

    def load(self, relation: Relation) -> TableState:
        """The rows with all changes that are there. relation: with the columns that `relation` has."""
        with self._environment.begin() as transaction:
            rows = [_decode_row(value) for _, value in transaction.cursor(db=self._rows)]
            width = len(relation.columns)
            arrays = [pa.array([row[at] for row in rows], pa.binary()) for at in range(width)]
            state = TableState.from_arrays(relation.columns, arrays)
            return state.with_changes(_decode_change(value) for _, value in transaction.cursor(db=self._changes))

    def close(self) -> None:
        """Give the file back."""
        self._environment.close()

    # The position that the rows go with, in a file of its own: it is written often, and need not survive a power cut.

    def note_position(self, position: Position) -> None:
        """Everything up to a position is in the file."""
        new = self._position_path.with_suffix(".new")
        new.write_text(json.dumps({"data": position.data, "shown": position.shown}))
        os.replace(new, self._position_path)  # noqa: PTH105 - both are of one folder

    def read_position(self) -> Position | None:
        """The last position that was noted."""
        try:
            written = json.loads(self._position_path.read_text())
            return Position(written["data"], written["shown"])
        except (OSError, ValueError, KeyError):
            return None

    @property
    def _position_path(self) -> Path:
        return self._path.with_suffix(".position")

    def _require_format(self) -> None:
        with self._environment.begin(db=self._meta) as transaction:
            written = transaction.get(_FORMAT, _THIS_FORMAT)
        if written != _THIS_FORMAT:
            raise HandlerRefused(
                f"{self._path} was written by another version of psql-streamer",
                "remove the file: the table is read again",
            )

    def _fold(self, transaction: Any, before: Place) -> None:
        end = _PLACE.pack(*before, 0)
        cursor = transaction.cursor(db=self._changes)
        last = None
        cursor.first()
        # Behind the last one the key is empty; what `delete` gives does not tell.
        while (place := cursor.key()) and place < end:
            last = _PLACE.unpack(place)
            self._apply(transaction, _decode_change(cursor.value()))
            cursor.delete()
        if last is not None:
            transaction.put(_FOLDED, json.dumps(last[:2]).encode(), db=self._meta)

    def _apply(self, transaction: Any, change: RowChange) -> None:
        if change.key is None:
            transaction.drop(self._rows, delete=False)
        elif change.after is None:
            transaction.delete(_hash_key(change.key), db=self._rows)
        else:
            transaction.put(_hash_key(change.key), _encode_row(change.after), db=self._rows)

    @contextmanager
    def _begin_writing(self) -> Iterator[Any]:
        with _convert_errors(self._path), self._environment.begin(write=True) as transaction:
            yield transaction


@contextmanager
def _convert_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except lmdb.MapFullError:
        raise HandlerRefused(f"{path} is full", "raise maxBytes of the lookup") from None
    except (lmdb.Error, OSError) as error:
        raise HandlerRefused(
            f"{path} cannot be used ({type(error).__name__})", "look at the disk that it is on"
        ) from None


def _hash_key(key: bytes) -> bytes:
    """LMDB's keys have 511 bytes at most."""
    return b"=" + key if len(key) <= 480 else b"#" + blake2b(key, digest_size=32).digest()


def _encode_row(row: Row) -> bytes:
    return b"".join(_LENGTH.pack(_NULL_LENGTH) if value is None else _LENGTH.pack(len(value)) + value for value in row)


def _decode_row(written: bytes) -> Row:
    values: list[bytes | None] = []
    at = 0
    while at < len(written):
        (length,) = _LENGTH.unpack_from(written, at)
        at += _LENGTH.size
        values.append(None if length == _NULL_LENGTH else bytes(written[at : at + length]))
        at += 0 if length == _NULL_LENGTH else length
    return tuple(values)


def _encode_change(change: RowChange) -> bytes:
    if change.key is None:
        return _TRUNCATE
    if change.after is None:
        return _DELETE + change.key
    return _UPSERT + _LENGTH.pack(len(change.key)) + change.key + _encode_row(change.after)


def _decode_change(written: bytes) -> RowChange:
    kind, rest = bytes(written[:1]), bytes(written[1:])
    if kind == _TRUNCATE:
        return RowChange(0, None)
    if kind == _DELETE:
        return RowChange(0, rest)
    (length,) = _LENGTH.unpack_from(rest)
    begin = _LENGTH.size
    return RowChange(0, rest[begin : begin + length], None, _decode_row(rest[begin + length :]))
