"""Records of the format `event` that differ in nothing but values: new rows of one table, as one instance writes them.

Long stretches of most topics are such. They are read by columns, and none of them is parsed: of the first one is noted
what stands in front of each value and behind it. All must have the same there, and between it a whole JSON value. So
each of them is JSON, with these members and no others.

Values are found by the quotation marks that a colon follows. These end the names of members; where a string holds such
a place, too, its record has more of them than the first one, and all are read in another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.binary_columns import read_offsets, read_value_bytes
from psql_streamer.event_reader.documents import render_lead
from psql_streamer.event_reader.forms import (
    LARGEST_SEQ,
    NOT_OF_THE_FORMAT,
    UUID_LENGTH,
    Event,
    are_uuids,
    decode_event,
    decode_members,
)
from psql_streamer.event_reader.kinds import is_utf8, map_bytes
from psql_streamer.event_reader.parsed import NoEventError, Origin, RowNotes, Transaction, to_micros
from psql_streamer.event_reader.tables import Names
from psql_streamer.model import POSTGRESQL, Index, RowOp

_SAME = frozenset({"Host", "Database", "Schema", "Table"})
"""Members that have one value in all records."""

_NUMBERS = ("XID", "CommitLSN", "WALPosition", "Seq")
_NEEDED = frozenset({"Table", "Action", "Timestamp", "Columns", *_NUMBERS})
_OTHERS = frozenset(Event.__struct_fields__) - _NEEDED - _SAME - {"UUID"}
"""Members that say more of a row than is read here. What an event does not have at all may stand there."""

_NEW_ROWS = {b'"%s"' % op.action.encode(): int(op) for op in (RowOp.INSERT, RowOp.UPDATE)}

_MOST_ALIKE_BYTES = 1 << 30
_NO_UUID = b'""'
_QUOTE, _COLON, _MINUS, _POINT, _ZERO = b'":-.0'
_TRUE, _NULL, _FALS = (int.from_bytes(letters, "little") for letters in (b"true", b"null", b"fals"))
_UUIDS = np.dtype(f"S{UUID_LENGTH}")

_STRING, _NUMBER, _LITERAL, _DOCUMENT = range(1, 5)


_KINDS = map_bytes({b'"': _STRING, b"-0123456789": _NUMBER, b"tfn": _LITERAL, b"{[": _DOCUMENT})
"""By the first byte of a value."""

_ENDS_DOCUMENT = map_bytes({b"}]": 1}).astype(np.bool_)


class Alike(NamedTuple):
    """New rows of one table. cells: JSON of the columns' values, row after row."""

    origin: Origin
    schema: str
    table: str
    columns: Names
    notes: RowNotes
    cells: pa.Array


class _Value(NamedTuple):
    """A value in a record's text. name: of the member, or None for a column's. gap: what stands in front of it."""

    name: str | None
    gap: bytes


@dataclass(frozen=True)
class _Pattern:
    """The text of records but for their values. tail: what stands behind the last one."""

    origin: Origin
    schema: str
    table: str
    columns: Names
    values: Sequence[_Value]
    tail: bytes

    @property
    def lead(self) -> bytes:
        """What all of its records begin with."""
        return self.values[0].gap

    @cached_property
    def text(self) -> bytes:
        """All but the values."""
        return b"".join([*(value.gap for value in self.values), self.tail])

    @cached_property
    def gaps(self) -> Index:
        """How many bytes are in front of each value."""
        return np.array([len(value.gap) for value in self.values])

    @cached_property
    def names(self) -> Index:
        """How many names have ended in front of each value."""
        return np.cumsum([value.gap.count(b'":') for value in self.values])

    @cached_property
    def free_members(self) -> Sequence[int]:
        """Which values are of members that may hold any text."""
        bound = {None, "Action", "UUID", *_NUMBERS}  # parsed, where nothing but their own texts is understood
        return [at for at, value in enumerate(self.values) if value.name not in bound]

    @cached_property
    def to_names(self) -> Index:
        """From the end of each value to the end of the next name, for all but the last."""
        return np.array([value.gap.index(b'":') for value in self.values[1:]], np.int64)


_MOST_EVENT_PATTERNS = 16


class AlikeReader:
    """Remembers what records looked like. For one thread."""

    def __init__(self) -> None:
        self._patterns: list[_Pattern] = []

    def read(self, values: Sequence[bytes]) -> Alike | None:
        """What the records say; None if they have to be read in another way."""
        for pattern in self._patterns:
            if values[0].startswith(pattern.lead) and (found := _read(pattern, values)) is not None:
                return found
        new = self._learn(values[0])
        return None if new is None else _read(new, values)

    def _learn(self, record: bytes) -> _Pattern | None:
        """The pattern of a record, which is remembered from now on; None for one that is known, or cannot be read."""
        if any(record.startswith(pattern.lead) and _find(pattern, [record]) for pattern in self._patterns):
            return None
        new = _look(record)
        if new is not None:
            self._patterns = [new, *self._patterns[: _MOST_EVENT_PATTERNS - 1]]
        return new


def _look(record: bytes) -> _Pattern | None:
    """The pattern of a record; None for one that is no new row, or says more than is read here."""
    try:
        event, members = decode_event(record), decode_members(record)
        columns = decode_members(members.get("Columns", b"null"))
    except (*NOT_OF_THE_FORMAT, RecursionError):
        return None
    if not columns or not members.keys() >= _NEEDED or members.keys() & _OTHERS:
        return None
    values, texts, gap = list[_Value](), list[bytes](), b"{"
    for number, (name, value) in enumerate(members.items()):
        gap += render_lead(number, name)
        if name in _SAME:
            gap += bytes(value)
        elif name == "Columns":
            gap += b"{"
            for at, (column, cell) in enumerate(columns.items()):
                values.append(_Value(None, gap + render_lead(at, column)))
                texts.append(bytes(cell))
                gap = b""
            gap += b"}"
        else:
            values.append(_Value(name, gap))
            texts.append(bytes(value))
            gap = b""
    pattern = _Pattern(
        Origin(POSTGRESQL, event.Host, event.Database),
        event.Schema,
        event.Table,
        tuple(columns),
        values,
        gap + b"}",
    )
    # Spaces, escapes in names, and names that come twice make another text.
    rebuilt = b"".join([*(value.gap + text for value, text in zip(values, texts, strict=True)), pattern.tail])
    return pattern if rebuilt == record else None


class _Places(NamedTuple):
    """Where values lie: an element a record, with one for each value. quotes: how many quotation marks there are.

    pieces: of each record, what is in front of a value, the value, and so on to what is behind the last one. numbers:
    of the pieces, a row for each record.
    """

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    pieces: pa.Array
    numbers: Index
    quotes: int

    def select_values(self, numbers: Sequence[int]) -> pa.Array:
        """Some of the values, record by record. numbers: which of a record's."""
        return self._select_pieces(self.numbers[:, 1::2][:, numbers])

    def filter_values(self, chosen: NDArray[np.bool_]) -> pa.Array:
        """The chosen values, record by record. chosen: for each whether it is."""
        return self._select_pieces(self.numbers[:, 1::2][chosen])

    def select_gaps(self) -> pa.Array:
        """All but the values."""
        return self._select_pieces(self.numbers[:, ::2])

    def _select_pieces(self, numbers: Index) -> pa.Array:
        return self.pieces.take(pa.array(numbers.ravel()))


def _read(pattern: _Pattern, values: Sequence[bytes]) -> Alike | None:
    places = _find(pattern, values)
    if places is None or not _are_whole(pattern, places):
        return None
    of_members = {value.name: at for at, value in enumerate(pattern.values) if value.name is not None}
    try:
        xids, commits, place, seq = _parse_integers(
            places.select_values([of_members[name] for name in _NUMBERS]), len(_NUMBERS)
        )
        ops = _parse_ops(places.select_values([of_members["Action"]]))
        uuids = (
            _parse_uuids(places.select_values([of_members["UUID"]]))
            if "UUID" in of_members
            else np.zeros(len(values), _UUIDS)
        )
        transactions, tx = _number_transactions(commits, places.select_values([of_members["Timestamp"]]), xids)
    except (pa.ArrowInvalid, NoEventError, UnicodeDecodeError, ValueError):
        return None
    if min(xids.min(), commits.min(), place.min()) < 0 or seq.min() < -1 or seq.max() > LARGEST_SEQ:
        return None
    return Alike(
        pattern.origin,
        pattern.schema,
        pattern.table,
        pattern.columns,
        RowNotes(ops, seq, place.astype(np.uint64), uuids, transactions, tx),
        places.select_values([at for at, value in enumerate(pattern.values) if value.name is None]),
    )


def _find(pattern: _Pattern, values: Sequence[bytes]) -> _Places | None:
    """Where the values lie; None for records that have another text around them."""
    text = b"".join(values)
    if not text or len(text) > _MOST_ALIKE_BYTES or (b"\\" in text and b'\\"' in text):
        return None
    count, width = len(values), len(pattern.values)
    data = np.frombuffer(text, np.uint8)
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, count), out=bounds[1:])
    quotes = data == _QUOTE
    names_end = np.flatnonzero(quotes[:-1] & (data[1:] == _COLON))
    names = pattern.names
    if len(names_end) != count * names[-1]:
        return None
    by_record = names_end.reshape(count, names[-1])
    begins = by_record[:, names - 1] + len('":')
    ends = np.empty((count, width), np.int64)
    ends[:, :-1] = by_record[:, names[:-1]] - pattern.to_names
    ends[:, -1] = bounds[1:] - len(pattern.tail)
    in_front = np.column_stack((bounds[:-1], ends[:, :-1]))
    if (begins - in_front != pattern.gaps).any() or (ends <= begins).any():
        return None
    edges = np.empty((count, 2 * width + 1), np.int32)
    edges[:, 0], edges[:, 1::2], edges[:, 2::2] = bounds[:-1], begins, ends
    edge = np.append(edges.ravel(), np.int32(len(text)))
    pieces = pa.Array.from_buffers(pa.binary(), len(edge) - 1, [None, pa.py_buffer(edge), pa.py_buffer(text)])
    numbers = np.arange(len(pieces)).reshape(count, -1)
    places = _Places(data, begins, ends, pieces, numbers, int(np.count_nonzero(quotes)))
    around = np.frombuffer(pattern.text, np.uint8)
    same = (read_value_bytes(places.select_gaps()).reshape(count, len(around)) == around).all()
    return places if same else None


def _are_whole(pattern: _Pattern, places: _Places) -> bool:
    """Whether all values are whole JSON values, as far as those do not say who reads the cells: documents, and strings
    with escapes.
    """
    kinds = _KINDS[places.data[places.begins]]
    strings = kinds == _STRING
    closed = (places.data[places.ends - 1] == _QUOTE) & (places.ends - places.begins > 1)
    documents = kinds == _DOCUMENT
    ended = _ENDS_DOCUMENT[places.data[places.ends - 1]]
    quotes = len(kinds) * pattern.text.count(b'"') + 2 * int(np.count_nonzero(strings))
    of_members = np.array([value.name is not None for value in pattern.values])
    simple = (
        kinds.all()
        and closed[strings].all()
        and places.quotes == quotes
        and places.data.min() >= ord(" ")
        and not documents[:, of_members].any()
        and ended[documents].all()
    )
    if not simple:
        return False
    members = places.select_values(pattern.free_members)
    if (read_value_bytes(members) == ord("\\")).any() or not is_utf8(members):
        return False
    return _are_literals(places, kinds == _LITERAL) and _are_numbers(places.filter_values(kinds == _NUMBER))


def _are_literals(places: _Places, chosen: NDArray[np.bool_]) -> bool:
    """Whether the chosen values are true, false and null. Each begins like one of them."""
    begins, lengths = places.begins[chosen], (places.ends - places.begins)[chosen]
    if not ((lengths == len(b"true")) | (lengths == len(b"false"))).all():
        return False
    letters = np.ndarray((len(places.data) - 3,), "<u4", places.data, strides=(1,))[begins]
    whole = (letters == _TRUE) | (letters == _NULL)
    longer = (letters == _FALS) & (places.data[begins + len(b"fals")] == ord("e"))
    return bool(np.where(lengths == len(b"true"), whole, longer).all())


def _are_numbers(texts: pa.Array) -> bool:
    """Whether these are numbers as JSON has them, without exponents. Each begins with a minus or a digit."""
    if not len(texts):
        return True
    bounds, data = read_offsets(texts).astype(np.int64), np.frombuffer(texts.buffers()[2], np.uint8)
    bounds, data = bounds - bounds[0], data[bounds[0] : bounds[-1]]
    digits = (data >= _ZERO) & (data <= ord("9"))
    begins, ends = bounds[:-1] + (data[bounds[:-1]] == _MINUS), bounds[1:]
    if not (begins < ends).all() or not digits[begins].all() or not digits[ends - 1].all():
        return False
    longer = begins[(data[begins] == _ZERO) & (ends - begins > 1)]
    if digits[longer + 1].any():
        return False  # 01
    others = np.flatnonzero(~digits)
    points = others[data[others] == _POINT]
    minuses = int(np.count_nonzero(begins > bounds[:-1]))
    of_numbers = np.searchsorted(bounds, points, side="right")
    return len(points) + minuses == len(others) and bool((np.diff(of_numbers) > 0).all())


def _parse_integers(texts: pa.Array, each: int) -> Index:
    """A row for each of so many members of a record. Raises pa.ArrowInvalid."""
    found: Index = texts.cast(pa.string()).cast(pa.int64()).to_numpy().reshape(-1, each).T
    return found


def _parse_ops(texts: pa.Array) -> NDArray[np.uint8]:
    """Raises ValueError for others than those of new rows."""
    distinct = texts.dictionary_encode()
    ops = [_NEW_ROWS.get(text) for text in distinct.dictionary.to_pylist()]
    if None in ops:
        raise ValueError
    found: NDArray[np.uint8] = np.array(ops, np.uint8)[distinct.indices.to_numpy()]
    return found


def _parse_uuids(texts: pa.Array) -> NDArray[np.bytes_]:
    """Raises ValueError where they are none."""
    count, data = len(texts), read_value_bytes(texts)
    if len(data) == count * len(_NO_UUID) and data.tobytes() == _NO_UUID * count:
        return np.zeros(count, _UUIDS)
    if (np.diff(read_offsets(texts)) != UUID_LENGTH + 2).any():
        raise ValueError
    bare = np.ascontiguousarray(data.reshape(count, UUID_LENGTH + 2)[:, 1:-1])
    if not are_uuids(bare.tobytes(), count):
        raise ValueError
    found: NDArray[np.bytes_] = bare.view(_UUIDS).ravel()
    return found


def _number_transactions(commits: Index, times: pa.Array, xids: Index) -> tuple[list[Transaction], NDArray[np.int32]]:
    """The transactions, and which of them each record is of. Raises NoEventError, or ValueError for a time that is no
    string.
    """
    distinct = times.dictionary_encode()
    texts = distinct.dictionary.to_pylist()
    moments = np.array([_parse_moment(text) for text in texts], np.int64)[distinct.indices.to_numpy()]
    changed = (np.diff(commits) != 0) | (np.diff(moments) != 0) | (np.diff(xids) != 0)
    firsts = np.concatenate(([0], np.flatnonzero(changed) + 1))
    transactions = [
        Transaction(commit, moment, str(xid))
        for commit, moment, xid in zip(
            commits[firsts].tolist(), moments[firsts].tolist(), xids[firsts].tolist(), strict=True
        )
    ]
    return transactions, np.concatenate((np.zeros(1, np.int32), np.cumsum(changed, dtype=np.int32)))


def _parse_moment(text: bytes) -> int:
    if not text.startswith(b'"'):
        raise ValueError
    return to_micros(text[1:-1].decode())
