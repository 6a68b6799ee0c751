"""Where handlers send events, and what they add to them: Image.addresses, as encoders need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.model import Index

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics that rows name themselves. names: each once. number: by row which of them it is, -1 for none."""

    names: tuple[str, ...]
    number: NDArray[np.int32]

    @property
    def named(self) -> Mask:
        """The rows that name one."""
        found: Mask = self.number >= 0
        return found


def collect_topics(addresses: pa.StructArray) -> Topics:
    """The topics that are named."""
    found = _select_field(addresses, "topic").dictionary_encode()
    numbers = found.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return Topics(tuple(name.decode() for name in found.dictionary.to_pylist()), numbers)


def merge_keys(addresses: pa.StructArray | None, keys: pa.Array) -> pa.Array:
    """The keys of records, with those in place that rows name themselves."""
    if addresses is None:
        return keys
    own = select_keys(addresses)
    return keys if own.null_count == len(own) else pc.coalesce(own, keys)


def names_key(addresses: pa.StructArray) -> Mask:
    """The rows that name their key."""
    found: Mask = select_keys(addresses).is_valid().to_numpy(zero_copy_only=False)
    return found


def select_keys(addresses: pa.StructArray) -> pa.Array:
    """The keys that rows name themselves, null for the others."""
    return _select_field(addresses, "key")


def collect_headers(addresses: pa.StructArray) -> Mapping[str, pa.Array]:
    """The headers that rows have of their own: name -> `binary`, null for a row without it."""
    lists = _select_field(addresses, "headers")
    offsets = lists.offsets.to_numpy()
    names = lists.keys[offsets[0] : offsets[-1]].dictionary_encode() if len(lists) else None
    if names is None or not len(names):
        return {}
    row = np.repeat(np.arange(len(lists)), np.diff(offsets))
    values, which = lists.items[offsets[0] : offsets[-1]], names.indices.to_numpy()
    return {
        name.decode(): _place_values(values, np.flatnonzero(which == number), row, len(lists))
        for number, name in enumerate(names.dictionary.to_pylist())
    }


def differ(new: pa.StructArray | None, old: pa.StructArray | None, by_columns: Mask) -> Mask:
    """Whether updates change where their rows are: the topic, or the key. by_columns: whether key columns change."""
    if new is None or old is None:
        return by_columns
    topics, keys = (_find_unequal(_select_field(new, name), _select_field(old, name)) for name in ("topic", "key"))
    named = names_key(new) & names_key(old)
    found: Mask = np.where(named, keys, by_columns | keys) | topics
    return found


def _find_unequal(one: pa.Array, other: pa.Array) -> Mask:
    same = pc.fill_null(pc.equal(one, other), False)
    found: Mask = pc.invert(pc.or_(same, pc.and_(one.is_null(), other.is_null()))).to_numpy(zero_copy_only=False)
    return found


def _place_values(values: pa.Array, at: Index, row: Index, rows: int) -> pa.Array:
    """Some of the values at the rows that they are of."""
    source = np.full(rows, -1, np.int64)
    source[row[at]] = at
    return values.take(pa.array(source, mask=source < 0))


def _select_field(addresses: pa.StructArray, name: str) -> pa.Array:
    """A field; null where the struct is."""
    return pc.struct_field(addresses, name)
