"""Lines of JSON back to batches of changes. What a person writes may leave out most fields."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.model import (
    NO_PLACE,
    NO_RECORD_TIME,
    POSTGRESQL,
    UNCOUNTED,
    Batch,
    Changes,
    Column,
    Image,
    Position,
    Relation,
    ReplicaIdentity,
    ReplicationOrigin,
    RowOp,
    SnapshotRows,
    SourceInfo,
    Transactions,
    measure_batch_overhead,
)
from psql_streamer.trial.event_lines import EPOCH, VERSION, EventsUnreadable, Line
from psql_streamer.trial.type_json import parse_type
from psql_streamer.trial.value_json import parse_array

_OPS = {op.action: op for op in RowOp}
_IDENTITIES = {identity.name.lower(): identity for identity in ReplicaIdentity}
_SIDES = ("before", "after")
_OF_TRANSACTION = ("commit", "commit_time", "xid", "origin", "snapshot", "thread")
_NOWHERE = SourceInfo(POSTGRESQL, "db1", "localhost", "postgres")
_MICROSECOND = timedelta(microseconds=1)


@dataclass(slots=True)
class _Change:
    """A change's line. tx: index into the transactions of its batch."""

    relation: Relation
    line: Line
    tx: int
    seq: int


@dataclass(slots=True)
class _Part:
    """The changes that came from one source. transactions: that they belong to. places: of each among these.

    counts: changes of each that were read.
    """

    source: SourceInfo
    changes: list[_Change] = field(default_factory=list)
    transactions: list[Line] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)

    def add(self, relation: Relation, line: Line) -> None:
        given = {name: line.get(name) for name in _OF_TRANSACTION}
        if given["commit"] is None:  # as if each change was committed alone
            given["commit"] = 1 + max((one["commit"] for one in self.transactions[-1:]), default=0)
        tx = self.places.setdefault(json.dumps(given), len(self.transactions))
        if tx == len(self.transactions):
            self.transactions.append(given)
        self.changes.append(_Change(relation, line, tx, int(line.get("seq", self.counts[tx]))))
        self.counts[tx] += 1


_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


def read_events(path: Path) -> list[Batch]:
    """The batches of a file, one for each source in it. EventsUnreadable says which line cannot be read, and why."""
    try:
        with path.open(encoding="utf-8") as lines:
            return read_lines(lines, str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise EventsUnreadable(f"{path}: {reason}", "name a file that psql-streamer capture wrote") from None


def read_lines(lines: Iterable[str], name: str) -> list[Batch]:
    """The same of lines. name: what messages call them."""
    reader, number = _Reader(), 0
    try:
        for text in lines:
            number += 1
            if text.strip():
                reader.take(json.loads(text))
        number = 0
        return [_build_batch(part) for part in reader.parts if part.changes]
    except (*_UNREADABLE, pa.ArrowException) as error:
        where = f"{name}, line {number}" if number else name
        raise EventsUnreadable(f"{where}: {_describe_error(error)}", "docs/capture.md describes the format") from None


def parse_relation(given: Mapping[str, Any]) -> Relation:
    """The shape of a table. ValueError, KeyError, TypeError for what is none."""
    schema, table = given.get("schema", "public"), given["table"]
    identity = given.get("replica_identity", "default")
    return Relation(
        str(given.get("id", f"{schema}.{table}")),
        schema,
        table,
        tuple(Column(one["name"], parse_type(one["type"]), bool(one.get("key"))) for one in given["columns"]),
        None if identity is None else _IDENTITIES[identity],
        int(given.get("version", 1)),
    )


def _describe_error(error: Exception) -> str:
    """Without values of rows."""
    if isinstance(error, json.JSONDecodeError):
        return f"it is no JSON (column {error.colno}: {error.msg})"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]}, or it has a name that is not known"
    return str(error) if isinstance(error, _LineError) else f"it has a value of the wrong type ({type(error).__name__})"


class _LineError(ValueError):
    """A reason that holds no value of a row."""


class _Reader:
    def __init__(self) -> None:
        self.parts = [_Part(_NOWHERE)]
        self._relation: Relation | None = None

    def take(self, line: Any) -> None:
        if not isinstance(line, dict):
            raise _LineError("it is no JSON object")
        if "events" in line:
            self._begin(line)
        elif "relation" in line:
            self._relation = _read_relation(line["relation"])
        elif "op" in line:
            self._add(line)
        else:
            raise _LineError("it has none of events, relation and op")

    def _begin(self, line: Line) -> None:
        if line["events"] != VERSION:
            raise _LineError(f"it is of version {line['events']} of the format, and this release reads {VERSION}")
        source = SourceInfo(**line["source"]) if "source" in line else _NOWHERE
        if self.parts[-1].source != source:
            self.parts.append(_Part(source))

    def _add(self, line: Line) -> None:
        relation, part = self._relation, self.parts[-1]
        if relation is None:
            raise _LineError("no line with a relation is before it")
        if line["op"] not in _OPS:
            raise _LineError(f'op "{line["op"]}" is none of {", ".join(_OPS)}')
        _require_images(_OPS[line["op"]], line, relation)
        part.add(relation, line)


def _read_relation(given: Mapping[str, Any]) -> Relation:
    try:
        return parse_relation(given)
    except ValueError as error:
        raise _LineError(str(error)) from None


def _require_images(op: RowOp, line: Line, relation: Relation) -> None:
    known = {column.name for column in relation.columns}
    wanted = "before" if op is RowOp.DELETE else "after"
    if wanted not in line:
        raise _LineError(f"{op.action} has no {wanted}")
    for side in _SIDES:
        unknown = set(line.get(side, ())) - known
        if unknown:
            raise _LineError(f'{side} has the column "{min(unknown)}", which {relation} does not have')


def _build_batch(part: _Part) -> Batch:
    by_relation: dict[Relation, list[int]] = {}
    for order, change in enumerate(part.changes):
        by_relation.setdefault(change.relation, []).append(order)
    made = tuple(_make_changes(relation, part.changes, orders) for relation, orders in by_relation.items())
    batch = Batch(part.source, Position({}, "a file of events"), _make_transactions(part.transactions), made)
    nbytes = sum(array.nbytes for one in made for image in (one.before, one.after) for array in image.columns)
    return Batch(
        batch.source, batch.position, batch.transactions, made, nbytes=nbytes + measure_batch_overhead(batch.rows)
    )


def _make_transactions(given: Sequence[Line]) -> Transactions:
    return Transactions(
        np.array([one["commit"] for one in given], np.uint64),
        np.array([_parse_microseconds(one["commit_time"]) for one in given], np.int64),
        _make_ids([one["xid"] for one in given]),
        {
            tx: ReplicationOrigin(one["origin"]["name"], one["origin"]["commit_lsn"])
            for tx, one in enumerate(given)
            if one["origin"]
        },
        {
            tx: SnapshotRows(one["snapshot"]["id"], one["snapshot"]["on_demand"])
            for tx, one in enumerate(given)
            if one["snapshot"]
        },
        _make_threads([one["thread"] for one in given]),
    )


def _make_threads(given: Sequence[int | None]) -> NDArray[np.int64] | None:
    return np.array([thread or 0 for thread in given], np.int64) if any(given) else None


def _parse_microseconds(text: str | None) -> int:
    if text is None:
        return 0
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // _MICROSECOND


def _make_ids(xids: Sequence[int | str | None]) -> pa.Array | None:
    if any(isinstance(xid, str) for xid in xids):
        return pa.array([None if xid is None else str(xid).encode() for xid in xids], pa.binary())
    largest = max((int(xid) for xid in xids if xid is not None), default=0)
    return pa.array(xids, pa.uint32() if largest < 1 << 32 else pa.uint64())


def _make_changes(relation: Relation, every: Sequence[_Change], orders: Sequence[int]) -> Changes:
    chosen = [every[order] for order in orders]
    uuids = [change.line.get("uuid", "") for change in chosen]
    return Changes(
        relation,
        relation.columns,
        batch_order=np.array(orders, np.int64),
        op=np.array([_OPS[change.line["op"]] for change in chosen], np.uint8),
        seq=np.array([change.seq for change in chosen], np.int64),
        tx=np.array([change.tx for change in chosen], np.int32),
        after=_make_image(relation, chosen, "after"),
        before=_make_image(relation, chosen, "before"),
        place=_make_numbers([change.line.get("place") for change in chosen], NO_PLACE),
        table_seq=_make_numbers([change.line.get("table_seq") for change in chosen], np.int64(UNCOUNTED)),
        uuid=np.array(uuids, "S36") if any(uuids) else None,
        record_time=_make_numbers([change.line.get("record_time") for change in chosen], np.int64(NO_RECORD_TIME)),
    )


def _make_numbers(values: Sequence[int | None], unknown: np.generic) -> Any:
    """None when nothing is known of any change."""
    if all(value is None for value in values):
        return None
    return np.array([unknown if value is None else value for value in values], unknown.dtype)


def _make_image(relation: Relation, chosen: Sequence[_Change], side: str) -> Image:
    rows = [row for row, change in enumerate(chosen) if side in change.line]
    images = [chosen[row].line[side] for row in rows]
    absent = {at: np.array([column.name not in one for one in images]) for at, column in enumerate(relation.columns)}
    return Image(
        tuple(parse_array([one.get(column.name) for one in images], column) for column in relation.columns),
        np.array(rows, np.int64),
        {at: gone for at, gone in absent.items() if gone.any()},
    )
