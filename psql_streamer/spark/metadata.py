"""The columns that rules may use beside the table's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.cells import join_addresses
from psql_streamer.model import ADDRESS, NO_RECORD_TIME, Changes, Relation, RowOp, Transactions
from psql_streamer.spark.alike import Tables
from psql_streamer.spark.lacking import Lacking

ROW = "_row"
"""Which image a row is, and what it lacks; rides along whatever a rule does."""

UNCHANGED = "_unchanged"
KEY_ONLY = "_key_only"

RECORD_HEADERS = "_record_headers"
"""A map, which Spark does not compare: a DataFrame that has one cannot be made distinct, or sorted by all columns."""

IMAGE_SHIFT = 32
"""`_row` is the image's place times 2**32, plus Lacking.compute_flags: sorted by it, images are in their order."""


@dataclass(frozen=True, slots=True)
class Images:
    """rows: of the changes, by image. tables: which relation each of these is of; None: the changes'."""

    changes: Changes
    transactions: Transactions
    lacking: Lacking
    rows: NDArray[np.int64]
    tables: Tables | None = None

    def name_relations(self, name: Callable[[Relation], str]) -> pa.Array:
        """The name of each image's relation."""
        if self.tables is not None:
            return self.tables.name_relations(self.rows, name)
        return pa.repeat(name(self.changes.relation), len(self.rows))


_ACTIONS = pa.array([RowOp(byte).action if byte in set(RowOp) else None for byte in range(256)], pa.string())
_SIDES = pa.array(["before", "after"])


def _take_for_images(images: Images, values: NDArray[np.generic]) -> pa.Array:
    return pa.array(values[images.changes.tx[images.rows]].astype(np.int64))


def _convert_xids(transactions: Transactions) -> pa.Array:
    """The ids that are numbers, as PostgreSQL's are; null where the source has none."""
    ids = transactions.ids
    if ids is None or not pa.types.is_integer(ids.type):
        return pa.nulls(len(transactions), pa.int64())
    return ids.cast(pa.int64())


def _list_unchanged(images: Images) -> pa.Array:
    """A list of column names an image."""
    masks = images.lacking.find_unchanged()
    names = pa.array([images.changes.columns[column].name for column in masks], pa.string())
    lacks = np.array(list(masks.values()), np.bool_).reshape(len(masks), images.lacking.images).T
    offsets = np.concatenate(([0], np.cumsum(lacks.sum(axis=1)))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(np.nonzero(lacks)[1], pa.int64())))


def _own(images: Images, name: str) -> pa.Array:
    """What rows say of their records themselves, an element an image. name: of a field of ADDRESS."""
    both = images.changes.after, images.changes.before
    joined = join_addresses([(image.addresses, len(image)) for image in both])
    return pa.nulls(len(images.rows), ADDRESS.field(name).type) if joined is None else pc.struct_field(joined, name)


def _record_timestamps(images: Images) -> pa.Array:
    given = images.changes.record_time
    if given is None:
        return pa.nulls(len(images.rows), pa.timestamp("us", "UTC"))
    times = given[images.rows]
    given_none = (times == NO_RECORD_TIME) | (times < _FIRST_MILLISECOND) | (times > _LAST_MILLISECOND)
    return pa.array(np.where(given_none, 0, times) * 1000, pa.timestamp("us", "UTC"), mask=given_none)


_FIRST_MILLISECOND, _LAST_MILLISECOND = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, which Python's and Spark's calendars have. A record may have any number."""


def _record_headers(images: Images) -> pa.Array:
    return _own(images, "headers").cast(_HEADERS)


_HEADERS = pa.map_(pa.string(), pa.binary())


class Metadata(NamedTuple):
    """A column that rules may use. make: its values, an element an image."""

    type: pa.DataType
    make: Callable[[Images], pa.Array]


METADATA: Mapping[str, Metadata] = {
    "_op": Metadata(pa.string(), lambda images: _ACTIONS.take(pa.array(images.changes.op[images.rows]))),
    "_image": Metadata(pa.string(), lambda images: _SIDES.take(pa.array(images.lacking.is_new.astype(np.int8)))),
    "_commit_lsn": Metadata(pa.int64(), lambda images: _take_for_images(images, images.transactions.commit)),
    "_seq": Metadata(pa.int64(), lambda images: pa.array(images.changes.seq[images.rows])),
    "_xid": Metadata(
        pa.int64(), lambda images: _convert_xids(images.transactions).take(pa.array(images.changes.tx[images.rows]))
    ),
    "_commit_ts": Metadata(
        pa.timestamp("us", "UTC"),
        lambda images: _take_for_images(images, images.transactions.commit_ts).cast(pa.timestamp("us", "UTC")),
    ),
    "_schema": Metadata(pa.string(), lambda images: images.name_relations(lambda relation: relation.schema)),
    "_table": Metadata(pa.string(), lambda images: images.name_relations(lambda relation: relation.table)),
    "_record_timestamp": Metadata(pa.timestamp("us", "UTC"), _record_timestamps),
    "_record_key": Metadata(pa.binary(), lambda images: _own(images, "key")),
    RECORD_HEADERS: Metadata(_HEADERS, _record_headers),
    UNCHANGED: Metadata(pa.list_(pa.string()), _list_unchanged),
    KEY_ONLY: Metadata(pa.bool_(), lambda images: pa.array(images.lacking.is_key_only)),
}
"""By name. They do not become part of events under these names."""
