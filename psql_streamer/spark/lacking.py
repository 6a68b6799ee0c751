"""What images of rows lack: old ones that hold the key alone, and values that an update left alone.

A TOASTed value that an update does not change is not in its new image (PostgreSQL documentation, "Logical Replication
Message Formats", TupleData, 'u'). Where the old image has it (REPLICA IDENTITY FULL, or a key), a rule sees it.

Masks have one element an image: all new images, then all old ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.model import Changes, Image

Mask = NDArray[np.bool_]

KEY_ONLY_BIT = 1
"""The bit of an old image that holds the key alone."""

_COLUMN_BITS = 30


@dataclass(frozen=True, slots=True)
class Lacking:
    """absent: column -> images that do not have it in the stream. unseen: column -> those of them for which no other
    image has it, so that a rule sees null.

    new: how many images are new ones. key_only: whether the old ones hold the key alone.
    """

    images: int
    new: int
    key_only: bool
    absent: Mapping[int, Mask]
    unseen: Mapping[int, Mask]

    @property
    def anything(self) -> bool:
        """Whether a rule could be misled by a null."""
        return self.key_only or bool(self.unseen)

    def find_unchanged(self) -> dict[int, Mask]:
        """Column -> new images whose update left it alone; a rule sees null."""
        found = {column: mask & self.is_new for column, mask in self.unseen.items()}
        return {column: mask for column, mask in found.items() if mask.any()}

    @property
    def is_new(self) -> Mask:
        """The new images."""
        return np.arange(self.images) < self.new

    @property
    def is_key_only(self) -> Mask:
        """The old images, where they hold the key alone."""
        return ~self.is_new if self.key_only else np.zeros(self.images, np.bool_)

    def compute_flags(self, columns: Sequence[int]) -> NDArray[np.int64]:
        """Bits that say what an image lacks: KEY_ONLY_BIT, and one for each of the columns that an update left alone.

        Columns that are too many for the bits share one.
        """
        flags = np.where(self.is_key_only, KEY_ONLY_BIT, 0).astype(np.int64)
        unchanged = self.find_unchanged()
        for column in columns:
            if column in unchanged:
                flags |= np.where(unchanged[column], compute_bit(column, columns), 0)
        return flags


def compute_bit(column: int, columns: Sequence[int]) -> int:
    """The bit of one of the columns that have bits."""
    return 2 << min(columns.index(column), _COLUMN_BITS - 1)


def find_lacking(changes: Changes) -> Lacking:
    """What the images lack."""
    new, old = changes.after, changes.before
    absent = _join_masks(changes, new.absent, old.absent)
    found = {column: _find_held_by_old(changes, column) for column in new.absent}
    unseen = _join_masks(changes, {column: new.absent[column] & ~held for column, held in found.items()}, old.absent)
    key_only = len(old) > 0 and not changes.relation.old_rows_are_whole
    return Lacking(len(new) + len(old), len(new), key_only, absent, unseen)


def fill_unchanged_values(changes: Changes, column: int) -> pa.Array:
    """The new images' values of a column; those that an update left alone from the old images that have them."""
    held = _find_held_by_old(changes, column) if column in changes.after.absent else None
    if held is None or not held.any():
        return changes.after.columns[column]
    place, _ = _match_old_images(changes)
    filled = changes.before.columns[column].take(pa.array(place))
    return pc.if_else(pa.array(held), filled, changes.after.columns[column])


def merge_masks(masks: Iterable[Mask], images: int) -> Mask:
    """Where any of them is true."""
    found = np.zeros(images, np.bool_)
    for mask in masks:
        found |= mask
    return found


def _join_masks(changes: Changes, new: Mapping[int, Mask], old: Mapping[int, Mask]) -> dict[int, Mask]:
    joined = {
        column: np.concatenate((_mask(new, column, changes.after), _mask(old, column, changes.before)))
        for column in sorted({*new, *old})
    }
    return {column: mask for column, mask in joined.items() if mask.any()}


def _mask(masks: Mapping[int, Mask], column: int, image: Image) -> Mask:
    found = masks.get(column)
    return np.zeros(len(image), np.bool_) if found is None else found


def _find_held_by_old(changes: Changes, column: int) -> Mask:
    """New images that lack the column while the old image of the same change has it."""
    place, has_old = _match_old_images(changes)
    lacks = changes.after.absent[column] & has_old
    missing = changes.before.absent.get(column)
    return lacks if missing is None or not lacks.any() else lacks & ~missing[place]


def _match_old_images(changes: Changes) -> tuple[NDArray[np.int64], Mask]:
    """For each new image: the place of its change's old one (0 where there is none), and whether there is one."""
    new, old = changes.after.rows, changes.before.rows
    if not len(old):
        return np.zeros(len(new), np.int64), np.zeros(len(new), np.bool_)
    place = np.minimum(np.searchsorted(old, new), len(old) - 1)
    has_old = old[place] == new
    return np.where(has_old, place, 0), has_old
