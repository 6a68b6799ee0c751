"""Several rows for one image: which number each has, and which old row each new one was.

A change may become several rows, its parts. Parts of an update's old image are paired with those of its new one: by
their key where it tells them apart, else by their numbers. What has no old part is an insert, what has no new one a
delete.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.events.json.json_text import join
from psql_streamer.events.json.values import choose_render
from psql_streamer.model import PART, ArrowType, Changes, Index, RowOp
from psql_streamer.spark.kept import Kept, find_changed_keys
from psql_streamer.spark.lacking import Mask

_NONE = -1


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a result, sorted by image and number. images: whose each is. numbers: within its image. keys: a
    number for each key.
    """

    images: Index
    numbers: Index
    keys: Index


def order_by_content(columns: list[pa.Array], images: Index) -> Index:
    """An order of elements by their images, and of those of one image by their values: the same every time.

    images: sorted.
    """
    several = np.flatnonzero(find_repeated(images))
    order = np.arange(len(images))
    ranks = [_rank_values(column.take(pa.array(several))) for column in columns]
    order[several] = several[np.lexsort((*reversed(ranks), images[several]))]
    return order


def find_repeated(images: Index) -> Mask:
    """The elements whose image has others. images: sorted."""
    same = images[1:] == images[:-1]
    found: Mask = np.append(False, same) | np.append(same, False)
    return found


def count_up(images: Index) -> Index:
    """0, 1, 2 for the elements of each image. images: sorted."""
    starts = np.searchsorted(images, images)
    numbers: Index = np.arange(len(images)) - starts
    return numbers


def number_keys(keys: pa.Array) -> Index:
    """The same number for the same key."""
    found: Index = keys.dictionary_encode().indices.fill_null(_NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def pair(changes: Changes, elements: Elements, splits: bool, deletes: bool) -> Kept:
    """The rows that the elements are. splits: whether the rule is there to make several rows of one. deletes:
    whether an old part without a new one has gone where there is one of it, also if the rule is not.

    The rows of a change stand together, in the order of their numbers.
    """
    new = int(np.searchsorted(elements.images, len(changes.after)))
    after_row = changes.after.rows[elements.images[:new]]
    before_row = changes.before.rows[elements.images[new:] - len(changes.after)]
    old_of = _pair_elements(changes, elements, new, after_row, before_row)
    gone = _find_gone(changes, old_of, after_row, before_row, splits or deletes)
    rows = np.concatenate((after_row, before_row[gone]))
    op = np.concatenate((changes.op[after_row], np.full(len(gone), RowOp.DELETE, np.uint8)))
    op[: len(after_row)][_find_added(changes, old_of, after_row, before_row, splits)] = RowOp.INSERT
    number = _number_parts(rows, elements.numbers[:new], elements.numbers[new:][gone])
    order = np.lexsort((number, rows))
    after = np.concatenate((np.arange(new), np.full(len(gone), _NONE)))[order]
    before = np.concatenate((np.where(old_of < 0, _NONE, new + old_of), new + gone))[order]
    return Kept(
        rows=rows[order],
        op=op[order],
        after=after[after >= 0],
        before=before[before >= 0],
        after_rows=np.flatnonzero(after >= 0),
        before_rows=np.flatnonzero(before >= 0),
        part=_make_parts(rows[order], number[order]),
    )


def _pair_elements(changes: Changes, elements: Elements, new: int, after_row: Index, before_row: Index) -> Index:
    """For each new element which of the old ones it was, -1 for none."""
    found = np.full(len(after_row), _NONE)
    if not len(before_row) or not len(after_row):
        return found
    by_key = _find_distinct_rows(after_row, elements.keys[:new], len(changes)) & _find_distinct_rows(
        before_row, elements.keys[new:], len(changes)
    )
    alone = (np.bincount(after_row, minlength=len(changes)) == 1) & (
        np.bincount(before_row, minlength=len(changes)) == 1
    )
    codes = []
    for row, part in ((after_row, slice(None, new)), (before_row, slice(new, None))):
        code = np.where(by_key[row], elements.keys[part], elements.numbers[part])
        codes.append(np.where(alone[row], 0, code))
    old_order = np.lexsort((codes[1], before_row))
    old, wanted = _merge_codes(before_row[old_order], codes[1][old_order], after_row, codes[0])
    at = np.minimum(np.searchsorted(old, wanted), len(old) - 1)
    met = old[at] == wanted
    found[met] = old_order[at[met]]
    return found


def _merge_codes(row: Index, code: Index, other_row: Index, other_code: Index) -> tuple[Index, Index]:
    """Both pairs of numbers as one number each, in their order."""
    codes = np.unique(np.concatenate((code, other_code)))
    one, other = (np.searchsorted(codes, some) for some in (code, other_code))
    return row * len(codes) + one, other_row * len(codes) + other


def _find_distinct_rows(row: Index, key: Index, rows: int) -> Mask:
    """The rows whose elements all have a key of their own."""
    found = np.ones(rows, np.bool_)
    order = np.lexsort((key, row))
    same = (row[order][1:] == row[order][:-1]) & (key[order][1:] == key[order][:-1])
    found[row[order][1:][same]] = False
    found[row[key == _NONE]] = False
    return found


def _find_gone(changes: Changes, old_of: Index, after_row: Index, before_row: Index, deletes: bool) -> Index:
    """The old elements that are rows of their own: of deletes, and parts that an update does not have any more."""
    lonely = np.ones(len(before_row), np.bool_)
    lonely[old_of[old_of >= 0]] = False
    if not deletes:
        single = np.bincount(before_row, minlength=len(changes)) == 1
        single &= np.bincount(after_row, minlength=len(changes)) == 0
        single &= changes.op == RowOp.UPDATE
        kept = np.zeros(len(changes), np.bool_)
        left = np.flatnonzero(single)
        kept[left[find_changed_keys(changes, left)]] = True
        lonely &= ~single[before_row] | kept[before_row]
    return np.flatnonzero(lonely)


def _find_added(changes: Changes, old_of: Index, after_row: Index, before_row: Index, splits: bool) -> Mask:
    """The new elements of updates that were not there before."""
    had_old = np.zeros(len(changes), np.bool_)
    had_old[changes.before.rows if splits else before_row] = True
    found: Mask = (changes.op[after_row] == RowOp.UPDATE) & (old_of < 0) & had_old[after_row]
    return found


def _number_parts(rows: Index, new: Index, gone: Index) -> Index:
    """The numbers of the parts; those that are gone have others than those that are there."""
    numbers = np.concatenate((new, gone))
    if not len(gone) or not len(new):
        return numbers
    of_new, of_gone = rows[: len(new)], rows[len(new) :]
    mine, others = _merge_codes(of_gone, gone, of_new, new)
    taken = np.flatnonzero(np.isin(mine, others))
    most = np.full(int(rows.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(most, rows, numbers)
    numbers[len(new) + taken] = most[of_gone[taken]] + 1 + count_up(of_gone[taken])
    return numbers


def _make_parts(rows: Index, numbers: Index) -> NDArray[np.void] | None:
    """None where every row is a change."""
    parts = np.zeros(len(rows), PART)
    parts["of"] = np.bincount(rows, minlength=1)[rows] if len(rows) else 0
    parts["number"] = numbers
    parts["of"][(parts["of"] == 1) & (numbers == 0)] = 0
    return parts if parts["of"].any() else None


def _rank_values(values: pa.Array) -> Index:
    """Numbers in the order of the values; null is the last."""
    if pa.types.is_nested(values.type):
        piece = choose_render(ArrowType(values.type))(values)
        values = join(piece.open, piece.values, piece.close, nulls=None)
    found: Index = pc.rank(values, sort_keys="ascending", tiebreaker="min").to_numpy()
    return found.astype(np.int64)
