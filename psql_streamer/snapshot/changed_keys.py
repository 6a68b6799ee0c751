"""The keys that a stream's batch changes, of one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.model import Changes, Image, Relation, RowOp, Transactions
from psql_streamer.pgtype import PostgresType

_BETWEEN = b"\0"
"""Between the columns of a key: no text of PostgreSQL's has this byte."""


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """Keys, old and new, in no order. lacks: whether the new row came without a value (unchanged TOAST)."""

    xids: NDArray[np.uint32]
    keys: pa.Array
    lacks: NDArray[np.bool_]


def row_keys(columns: Sequence[pa.Array]) -> pa.Array:
    """The key of each row, as one `binary`. columns: text forms of the key's columns, not null."""
    if len(columns) == 1:
        return columns[0]
    return pc.binary_join_element_wise(*columns, pa.scalar(_BETWEEN, pa.binary()))


def key_values(key: bytes) -> tuple[str, ...]:
    """The text forms of a key's columns."""
    return tuple(part.decode("utf-8", "surrogateescape") for part in key.split(_BETWEEN))


def describe_key(relation: Relation) -> list[tuple[str, int]]:
    """Name and type (its OID) of the columns whose values row_keys has."""
    columns = (relation.columns[column] for column in relation.key_columns)
    return [(column.name, column.type.oid) for column in columns if isinstance(column.type, PostgresType)]


def changed_keys(changes: Changes, transactions: Transactions) -> ChangedKeys:
    """Every key that some row had before or has after these changes. The relation has a key."""
    xids = xids_of(transactions)[changes.tx]
    parts = [_of_image(image, changes, xids) for image in (changes.after, changes.before)]
    return ChangedKeys(
        np.concatenate([part.xids for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        np.concatenate([part.lacks for part in parts]),
    )


def moved_without_values(changes: Changes) -> list[bytes]:
    """New keys of rows whose key was changed, and that came without a value: nobody else will give the value."""
    columns = changes.relation.key_columns
    old = changes.before.rows[changes.op[changes.before.rows] == RowOp.UPDATE]
    if not len(old):
        return []
    updated = changes.take(old)
    lacks = _lacks(updated.after)
    if not lacks.any():
        return []
    keys = _keys(updated.after, columns)
    same = pc.equal(keys, _keys(updated.before, columns))
    moved = lacks & ~pc.fill_null(same, True).to_numpy(zero_copy_only=False)
    return list(keys.filter(pa.array(moved)).to_pylist())


def xids_of(transactions: Transactions) -> NDArray[np.uint32]:
    """The xid of each transaction; 0 for what is none."""
    assert transactions.ids is not None  # noqa: S101 - PostgreSQL's have one
    found: NDArray[np.uint32] = pc.fill_null(transactions.ids, 0).to_numpy(zero_copy_only=False)
    return found.astype(np.uint32)


def _of_image(image: Image, changes: Changes, xids: NDArray[np.uint32]) -> ChangedKeys:
    keys = _keys(image, changes.relation.key_columns)
    lacks = _lacks(image) if image is changes.after else np.zeros(len(image), np.bool_)
    there = pc.is_valid(keys).to_numpy(zero_copy_only=False)
    return ChangedKeys(xids[image.rows][there], keys.filter(pa.array(there)), lacks[there])


def _keys(image: Image, columns: Sequence[int]) -> pa.Array:
    """Null where a column of the key is unchanged TOAST: then the old image has it."""
    return row_keys([image.columns[column] for column in columns])


def _lacks(image: Image) -> NDArray[np.bool_]:
    lacks = np.zeros(len(image), np.bool_)
    for absent in image.absent.values():
        lacks |= absent
    return lacks
