"""A columnar Batch as the oracle's list of changes, a row at a time, in commit order."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from psql_streamer.model import Batch, Changes, Image, LogicalMessage, Relation, Truncate
from psql_streamer.pgtype import PostgresType
from tests.naive_pgoutput import ABSENT, NaiveChange, NaiveRelation, NaiveRow


def flatten(batch: Batch) -> list[NaiveChange]:
    """The changes sorted by batch_order; what the model promises of a Batch's arrays is asserted on the way."""
    found: list[tuple[int, NaiveChange]] = []
    for changes in batch.changes:
        found += _rows(batch, changes)
    found += [(truncate.batch_order, _truncate(batch, truncate)) for truncate in batch.truncates]
    found += [(message.batch_order, _message(batch, message)) for message in batch.messages]
    orders = [batch_order for batch_order, _ in found]
    assert len(set(orders)) == len(orders), "two changes with one batch_order"
    assert len(found) == len(batch)
    return [change for _, change in sorted(found, key=lambda pair: pair[0])]


def flatten_all(batches: Iterable[Batch]) -> list[NaiveChange]:
    return [change for batch in batches for change in flatten(batch)]


def _rows(batch: Batch, changes: Changes) -> list[tuple[int, NaiveChange]]:
    rows = len(changes)
    assert rows > 0, "a group of changes without changes"
    assert changes.place is not None
    for array in (changes.batch_order, changes.seq, changes.place, changes.tx):
        assert len(array) == rows
    assert changes.columns == changes.relation.columns
    relation = _relation(changes.relation)
    after, before = _image(changes, changes.after), _image(changes, changes.before)
    return [
        (
            int(changes.batch_order[i]),
            NaiveChange(
                chr(changes.op[i]),
                *_place(batch, int(changes.tx[i]), int(changes.seq[i]), int(changes.place[i])),
                origin=_origin(batch, int(changes.tx[i])),
                relation=relation,
                after=after.get(i),
                before=before.get(i),
            ),
        )
        for i in range(rows)
    ]


def _image(changes: Changes, image: Image) -> dict[int, NaiveRow]:
    assert len(image.columns) == len(changes.relation.columns)
    assert np.all(np.diff(image.rows) > 0), "rows of an image are strictly increasing"
    assert not len(image) or (image.rows[0] >= 0 and image.rows[-1] < len(changes))
    columns = []
    for index, array in enumerate(image.columns):
        assert array.type == pa.binary()
        array.validate(full=True)
        cells = array.to_pylist()
        assert len(cells) == len(image)
        for row in np.flatnonzero(image.absent.get(index, np.zeros(len(image), dtype=bool))):
            assert cells[row] is None, "an absent cell is null in its array"
            cells[row] = ABSENT
        columns.append(cells)
    return {row: tuple(cells[at] for cells in columns) for at, row in enumerate(image.rows.tolist())}


def _truncate(batch: Batch, truncate: Truncate) -> NaiveChange:
    return NaiveChange(
        "T",
        *_place(batch, truncate.tx, truncate.seq, truncate.place),
        origin=_origin(batch, truncate.tx),
        relation=_relation(truncate.relation),
        detail=(truncate.cascade, truncate.restart_identity),
    )


def _message(batch: Batch, message: LogicalMessage) -> NaiveChange:
    return NaiveChange(
        "M",
        *_place(batch, message.tx, message.seq, message.place),
        origin=_origin(batch, message.tx),
        detail=(message.prefix, message.content),
    )


def _place(batch: Batch, tx: int, seq: int, lsn: int) -> tuple[int, int, int, int | None, int | None]:
    if tx < 0:
        return lsn, seq, lsn, None, None
    transactions = batch.transactions
    assert tx < len(transactions)
    return int(transactions.commit[tx]), seq, lsn, int(transactions.find_id(tx) or 0), int(transactions.commit_ts[tx])


def _origin(batch: Batch, tx: int) -> tuple[str, int] | None:
    origins = batch.transactions.origins
    assert set(origins) <= set(range(len(batch.transactions)))
    return (origins[tx].name, origins[tx].commit_lsn) if tx in origins else None


def _relation(relation: Relation) -> NaiveRelation:
    assert relation.replica_identity is not None
    columns = tuple(
        (column.name, column.type.oid, column.type.typmod, column.key)
        for column in relation.columns
        if isinstance(column.type, PostgresType)
    )
    identity = chr(relation.replica_identity)
    return NaiveRelation(int(relation.id), relation.schema, relation.table, identity, columns)
