"""Changes as lines of JSON: a line for each change, and before them lines for what they have in common.

    {"events": 1, "source": {...}}    where the changes that follow come from; `events` is the version of the format
    {"relation": {...}}               the shape of the table that the changes that follow are of
    {"op": "update", "commit": 23970904, "seq": 0, ..., "before": {...}, "after": {...}}

docs/capture.md describes the fields. A column that an image lacks is not in it; a null is SQL NULL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from psql_streamer.errors import StreamerError
from psql_streamer.model import (
    NO_PLACE,
    NO_RECORD_TIME,
    NO_UUID,
    UNCOUNTED,
    Batch,
    Changes,
    Image,
    Relation,
    RowOp,
    SourceInfo,
    Transactions,
)
from psql_streamer.trial.type_json import render_type
from psql_streamer.trial.value_json import render_values

VERSION = 1

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Line = dict[str, Any]


class EventsUnreadable(StreamerError):
    """A file of events cannot be read."""


class EventWriter:
    """Writes the changes of tables as lines.

    put: takes a line, without its end. fits: whether the changes of a table (schema, table) are wanted. change: makes
    another line of that of a change; it is given the change's relation. written: how many changes there were.
    """

    def __init__(
        self,
        put: Callable[[str], None],
        fits: Callable[[str, str], bool],
        change: Callable[[Line, Relation], Line] = lambda line, _: line,
    ) -> None:
        self._put = put
        self._fits = fits
        self._change = change
        self.written = 0
        self._source: SourceInfo | None = None
        self._relation: Relation | None = None

    def write(self, batch: Batch, most: int) -> None:
        """The changes of a batch, until so many are written in all."""
        wanted = [one for one in batch.changes if self._fits(one.relation.schema, one.relation.table)]
        lines = sorted(
            ((order, one.relation, line) for one in wanted for order, line in render_changes(one, batch)),
            key=lambda found: found[0],
        )
        for _, relation, line in lines[: max(0, most - self.written)]:
            self._introduce(batch.source, relation)
            self.written += 1  # first: whoever has read the line may interrupt at once
            self._put_json(self._change(line, relation))

    def _introduce(self, source: SourceInfo, relation: Relation) -> None:
        if source != self._source:
            self._source, self._relation = source, None
            self._put_json({"events": VERSION, "source": _render_source(source)})
        if relation != self._relation:
            self._relation = relation
            self._put_json({"relation": render_relation(relation)})

    def _put_json(self, line: Line) -> None:
        self._put(json.dumps(line, ensure_ascii=False))


def render_relation(relation: Relation) -> dict[str, Any]:
    """The shape of a table."""
    identity = relation.replica_identity
    return {
        "schema": relation.schema,
        "table": relation.table,
        "id": relation.id,
        "version": relation.version,
        "replica_identity": None if identity is None else identity.name.lower(),
        "columns": [
            {"name": column.name, "type": render_type(column.type), **({"key": True} if column.key else {})}
            for column in relation.columns
        ],
    }


def _render_source(source: SourceInfo) -> dict[str, Any]:
    said = {name: getattr(source, name) for name in SourceInfo.__dataclass_fields__}
    return said if source.encoded else {name: value for name, value in said.items() if name != "encoded"}


def render_changes(changes: Changes, batch: Batch) -> Iterator[tuple[int, Line]]:
    """(batch_order, line) of every change."""
    before, after = _render_images(changes, changes.before), _render_images(changes, changes.after)
    transactions = [render_transaction(batch.transactions, tx) for tx in range(len(batch.transactions))]
    for row in range(len(changes)):
        line: Line = {
            "op": RowOp(int(changes.op[row])).action,
            **transactions[int(changes.tx[row])],
            "seq": int(changes.seq[row]),
            **_render_particulars(changes, row),
        }
        for side, images in (("before", before), ("after", after)):
            if row in images:
                line[side] = images[row]
        yield int(changes.batch_order[row]), line


def render_transaction(transactions: Transactions, tx: int) -> Line:
    """What a change's line says of its transaction."""
    xid = None if transactions.ids is None else transactions.ids[tx].as_py()
    line: Line = {
        "commit": int(transactions.commit[tx]),
        "commit_time": (EPOCH + timedelta(microseconds=int(transactions.commit_ts[tx]))).isoformat(),
        "xid": xid.decode() if isinstance(xid, bytes) else xid,
    }
    if (origin := transactions.origins.get(tx)) is not None:
        line["origin"] = {"name": origin.name, "commit_lsn": origin.commit_lsn}
    if (snapshot := transactions.snapshots.get(tx)) is not None:
        line["snapshot"] = {"id": snapshot.id, "on_demand": snapshot.on_demand}
    if transactions.threads is not None and transactions.threads[tx]:
        line["thread"] = int(transactions.threads[tx])
    return line


def _render_particulars(changes: Changes, row: int) -> Line:
    """What some changes have beside their transaction and seq."""
    found: Line = {}
    if changes.place is not None and changes.place[row] != NO_PLACE:
        found["place"] = int(changes.place[row])
    if changes.table_seq is not None and changes.table_seq[row] != UNCOUNTED:
        found["table_seq"] = int(changes.table_seq[row])
    if changes.uuid is not None and changes.uuid[row] != NO_UUID:
        found["uuid"] = bytes(changes.uuid[row]).decode()
    if changes.record_time is not None and changes.record_time[row] != NO_RECORD_TIME:
        found["record_time"] = int(changes.record_time[row])
    return found


def _render_images(changes: Changes, image: Image) -> Mapping[int, dict[str, Any]]:
    """Row -> its image, without the columns that it lacks."""
    columns = [
        (column.name, render_values(array, column.type), image.absent.get(at))
        for at, (column, array) in enumerate(zip(changes.columns, image.columns, strict=True))
    ]
    return {
        row: {name: values[at] for name, values, absent in columns if absent is None or not absent[at]}
        for at, row in enumerate(image.rows.tolist())
    }
