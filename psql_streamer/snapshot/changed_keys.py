"""The keys that a stream's batch changes, of one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.binary_columns import read_value_bytes
from psql_streamer.model import Changes, ColumnType, Image, Relation, RowOp, TextType, Transactions
from psql_streamer.pgtype import PostgresType

_BETWEEN, _ESCAPE = b"\0", b"\1"
"""Between the columns of a key, and in front of what stands for these two bytes in a value. No text of PostgreSQL's has
the first; texts of MySQL's may."""


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """Keys, old and new, in no order. lacks: whether the new row came without a value (unchanged TOAST)."""

    xids: NDArray[np.uint32]
    keys: pa.Array
    lacks: NDArray[np.bool_]


def join_row_keys(columns: Sequence[pa.Array]) -> pa.Array:
    """The key of each row, as one `binary`. columns: text forms of the key's columns, not null."""
    if len(columns) == 1:
        return columns[0]
    return pc.binary_join_element_wise(*map(_escape_values, columns), pa.scalar(_BETWEEN, pa.binary()))


def decode_key(key: bytes, columns: int) -> tuple[str, ...]:
    """The text forms of a key's columns. columns: how many it has."""
    return tuple(part.decode("utf-8", "surrogateescape") for part in split_key(key, columns))


def split_key(key: bytes, columns: int) -> list[bytes]:
    """The same as bytes."""
    return [key] if columns == 1 else [_unescape(part) for part in key.split(_BETWEEN)]


def join_values(parts: Sequence[bytes]) -> bytes:
    """The key of one row, as row_keys has it. parts: text forms of its columns."""
    return parts[0] if len(parts) == 1 else _BETWEEN.join(map(_escape_one, parts))


def _escape_values(values: pa.Array) -> pa.Array:
    if not (read_value_bytes(values) <= _ESCAPE[0]).any():
        return values
    return pa.array([None if one is None else _escape_one(one) for one in values.to_pylist()], pa.binary())


def _escape_one(value: bytes) -> bytes:
    return value.replace(_ESCAPE, _ESCAPE + b"\2").replace(_BETWEEN, _ESCAPE + b"\1")


def _unescape(part: bytes) -> bytes:
    return part.replace(_ESCAPE + b"\1", _BETWEEN).replace(_ESCAPE + b"\2", _ESCAPE)


def describe_key(relation: Relation) -> list[tuple[str, int | str]]:
    """Name and type (its OID, or its name) of the columns whose values row_keys has."""
    columns = (relation.columns[column] for column in relation.key_columns)
    return [(column.name, _identify_type(column.type)) for column in columns]


def _identify_type(column_type: ColumnType) -> int | str:
    if isinstance(column_type, PostgresType):
        return column_type.oid
    return column_type.native if isinstance(column_type, TextType) else str(column_type)


def collect_changed_keys(changes: Changes, transactions: Transactions) -> ChangedKeys:
    """Every key that some row had before or has after these changes. The relation has a key."""
    xids = list_xids(transactions)[changes.tx]
    columns, nothing = changes.relation.key_columns, np.zeros(len(changes.before), np.bool_)
    parts = [
        _collect_image_keys(changes.after, _join_new_keys(changes), xids, _find_lacking(changes.after)),
        _collect_image_keys(changes.before, _join_keys(changes.before, columns), xids, nothing),
    ]
    return ChangedKeys(
        np.concatenate([part.xids for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        np.concatenate([part.lacks for part in parts]),
    )


def find_moved_without_values(changes: Changes) -> list[bytes]:
    """New keys of rows whose key was changed, and that came without a value: nobody else will give the value."""
    columns = changes.relation.key_columns
    old = changes.before.rows[changes.op[changes.before.rows] == RowOp.UPDATE]
    if not len(old):
        return []
    updated = changes.take(old)
    lacks = _find_lacking(updated.after)
    if not lacks.any():
        return []
    keys = _join_new_keys(updated)
    same = pc.equal(keys, _join_keys(updated.before, columns))
    moved = lacks & ~pc.fill_null(same, True).to_numpy(zero_copy_only=False)
    return list(keys.filter(pa.array(moved)).to_pylist())


def list_xids(transactions: Transactions) -> NDArray[np.uint32]:
    """The xid of each transaction; 0 for what is none, and where a source has no such numbers."""
    if transactions.ids is None or not pa.types.is_integer(transactions.ids.type):
        return np.zeros(len(transactions), np.uint32)
    ids = pc.fill_null(transactions.ids, 0) if transactions.ids.null_count else transactions.ids
    found: NDArray[np.uint32] = ids.to_numpy(zero_copy_only=False)
    return found.astype(np.uint32, copy=False)


def _collect_image_keys(
    image: Image, keys: pa.Array, xids: NDArray[np.uint32], lacks: NDArray[np.bool_]
) -> ChangedKeys:
    there = pc.is_valid(keys).to_numpy(zero_copy_only=False)
    return ChangedKeys(xids[image.rows][there], keys.filter(pa.array(there)), lacks[there])


def _join_keys(image: Image, columns: Sequence[int]) -> pa.Array:
    """Null where the image lacks a column of the key."""
    return join_row_keys([image.columns[column] for column in columns])


def _join_new_keys(changes: Changes) -> pa.Array:
    """Of the new rows. What these lack of the key, because the update left it alone, the old ones have."""
    return join_row_keys([_fill_new_values(changes, column) for column in changes.relation.key_columns])


def _fill_new_values(changes: Changes, column: int) -> pa.Array:
    after, before = changes.after, changes.before
    values, absent = after.columns[column], after.absent.get(column)
    if absent is None or not absent.any() or not len(before):
        return values
    at = np.minimum(np.searchsorted(before.rows, after.rows), len(before) - 1)
    from_before = absent & (before.rows[at] == after.rows)
    return pc.if_else(pa.array(from_before), before.columns[column].take(pa.array(at)), values)


def _find_lacking(image: Image) -> NDArray[np.bool_]:
    lacks = np.zeros(len(image), np.bool_)
    for absent in image.absent.values():
        lacks |= absent
    return lacks
