"""Which changes stay, by the images that a rule let pass.

A change is dropped when its new image is (a delete: its old one), and an old image goes with its change. An update
whose old image stays and whose new one does not is a delete: that of a key that it left in any case, and that of a row
that it took out of a filter if the rule does not keep it (onLeave).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.model import Changes, Image, Index, RowOp
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.facts import Facts
from psql_streamer.spark.lacking import merge_masks
from psql_streamer.spark.metadata import KEY_ONLY, UNCHANGED


@dataclass(frozen=True, slots=True)
class Kept:
    """Which rows stay, and which elements of the result are their images.

    rows: of the old changes; op: of each. after, before: elements of the result. after_rows, before_rows: rows of the
    new changes. part: of the new changes, as Changes has it.
    """

    rows: Index
    op: NDArray[np.uint8]
    after: Index
    before: Index
    after_rows: Index
    before_rows: Index
    part: NDArray[np.void] | None = None

    @classmethod
    def from_images(cls, changes: Changes, images: Index, deletes: Callable[[], bool]) -> Kept:
        """images: sorted, those of the result, each once. deletes: whether a row is gone of which an update leaves
        nothing; asked for where it matters.
        """
        new = int(np.searchsorted(images, len(changes.after)))
        after_rows = changes.after.rows[images[:new]]
        before_rows = changes.before.rows[images[new:] - len(changes.after)]
        op = changes.op.copy()
        stays = np.zeros(len(changes), np.bool_)
        stays[after_rows] = True
        left = before_rows[(op[before_rows] == RowOp.UPDATE) & ~stays[before_rows]]
        if len(left):
            op[left if deletes() else left[find_changed_keys(changes, left)]] = RowOp.DELETE
        stays[before_rows[op[before_rows] == RowOp.DELETE]] = True
        with_row = stays[before_rows]
        number = np.cumsum(stays) - 1
        return cls(
            rows=np.flatnonzero(stays),
            op=op[stays],
            after=np.arange(new),
            before=new + np.flatnonzero(with_row),
            after_rows=number[after_rows],
            before_rows=number[before_rows[with_row]],
        )


def find_unjudged_images(sent: Sent, facts: Facts | None, came: Index) -> Index:
    """Images that a rule dropped though it cannot judge them, where no filter could be made to let them pass.

    came: sorted, those of the result. A rule that looks itself whether values are missing is the author's business.
    """
    lacking = sent.lacking
    if facts is None or not lacking.anything:
        return np.empty(0, np.int64)
    read = find_judged_columns(facts)
    stays = np.zeros(lacking.images, np.bool_)
    if sent.place(KEY_ONLY) not in read:
        stays |= lacking.is_key_only
    if sent.place(UNCHANGED) not in read:
        unchanged = lacking.find_unchanged()
        stays |= merge_masks((unchanged[column] for column in facts.drops if column in unchanged), lacking.images)
    stays[came] = False
    return np.flatnonzero(stays)


def find_judged_columns(facts: Facts) -> frozenset[int]:
    """The sent columns that whatever may drop rows reads."""
    return facts.drops.union(*(condition.reads for condition in facts.conditions))


def find_changed_keys(changes: Changes, rows: Index) -> NDArray[np.bool_]:
    """Whether updates with an old image changed the key. A column that one of the images lacks has not changed."""
    changed = np.zeros(len(rows), np.bool_)
    if not len(rows) or not changes.relation.key_columns:
        return changed
    new, old = np.searchsorted(changes.after.rows, rows), np.searchsorted(changes.before.rows, rows)
    for column in (at for at, one in enumerate(changes.columns) if one.key):
        one, other = (
            image.columns[column].take(pa.array(at)) for image, at in ((changes.after, new), (changes.before, old))
        )
        differs = pc.or_(pc.fill_null(pc.not_equal(one, other), True), pc.xor(pc.is_null(one), pc.is_null(other)))
        both_null = pc.and_(pc.is_null(one), pc.is_null(other))
        known = _has(changes.after, column, new) & _has(changes.before, column, old)
        changed |= pc.and_not(differs, both_null).to_numpy(zero_copy_only=False) & known
    return changed


def _has(image: Image, column: int, at: Index) -> NDArray[np.bool_]:
    missing = image.absent.get(column)
    return np.ones(len(at), np.bool_) if missing is None else ~missing[at]
