"""The rows of a rule's result: which images they are, whatever order they are in, and which parts of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from psql_streamer.errors import HandlerRefused
from psql_streamer.model import Index
from psql_streamer.spark.directions import PART, REASONS, describe_remedy, is_direction
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.facts import Field
from psql_streamer.spark.failures import RowsRefused
from psql_streamer.spark.lacking import Mask
from psql_streamer.spark.metadata import IMAGE_SHIFT, ROW
from psql_streamer.spark.parts import count_up, order_by_content
from psql_streamer.spark.row_tracking import find_row_column
from psql_streamer.spark.splitting import Splitting

_ROW_TYPE = pa.int64()


class Result:
    """What a job gave. place: where in the table each column of the result is, by its index; a column that has no place
    did not travel, because the rule passes it on. None: all are there, in their order.
    """

    def __init__(self, table: pa.Table, place: Mapping[int, int] | None = None) -> None:
        self._table = table
        self._place = place

    def has_stayed(self, at: int) -> bool:
        """Whether the rule passes the column on, and it did not travel."""
        return self._place is not None and at not in self._place

    def select_column(self, at: int) -> pa.ChunkedArray:
        """A column that travelled."""
        return self._table.column(at if self._place is None else self._place[at])


@dataclass(frozen=True, slots=True)
class Came:
    """What came back. order: how to sort the result by image and part; None: it is sorted. images: of the sorted
    result. numbers: of its parts; None where every image came once and has no number. by_rule: whether the rule gives
    them.
    """

    order: Index | None
    images: Index
    numbers: Index | None
    by_rule: bool = False

    def sort_column(self, result: Result, at: int) -> pa.Array:
        """A column, sorted."""
        return _order_values(result.select_column(at), self.order)


def order_rows(
    fields: Sequence[Field], sent: Sent, result: Result, splitting: Callable[[], Splitting], where: str
) -> Came:
    """Sort a result by image, and number the rows of an image that came several times.

    Raises HandlerRefused when `_row` is null or none that was sent, RowsRefused for numbers that come twice.
    """
    at = find_row_column(fields, sent.row_column)
    row = result.select_column(at)
    if row.null_count or not row.type.equals(_ROW_TYPE):
        raise HandlerRefused(
            f"{where} gives rows that belong to no change ({ROW} is null)",
            "do not add rows: use an inner or left join with changes on the left side",
        )
    ids = row.to_numpy()
    order = None
    if np.any(ids[1:] < ids[:-1]):
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
    images = ids >> IMAGE_SHIFT
    given = sent.row_ids
    if len(ids) and not (images[0] >= 0 and images[-1] < len(given) and np.array_equal(given[images], ids)):
        raise HandlerRefused(f"{where} gives values of {ROW} that are not in its input", f"pass {ROW} on as it is")
    several = bool(np.any(ids[1:] == ids[:-1]))
    part = next(
        (i for i, one in enumerate(fields) if one.name == PART and is_direction(one, sent.changes.columns)), None
    )
    if several and sent.changes.part is not None:
        raise HandlerRefused(f"{where} splits rows that a handler before it has split", "let one of them do it")
    came = Came(order, images, None)
    if part is not None:
        return _order_by_number(came, came.sort_column(result, part), sent, where)
    if not several:
        return came
    if not splitting().ordered:
        # What the rule passes on is the same in all rows of an image.
        columns_made = [i for i in range(len(fields)) if i != at and not result.has_stayed(i)]
        content = order_by_content([came.sort_column(result, i) for i in columns_made], images)
        came = replace(came, order=content if order is None else order[content])
    return replace(came, numbers=count_up(images))


def refuse_rows(sent: Sent, images: Index, found: Iterable[tuple[str, Mask]], where: str) -> None:
    """RowsRefused for the changes of which some element is found."""
    for column, elements in found:
        rows = np.zeros(len(sent.changes), np.bool_)
        every = np.concatenate((sent.changes.after.rows, sent.changes.before.rows))
        rows[every[images[elements]]] = True
        raise RowsRefused(f"{where}: {column} gives {REASONS[column]}", describe_remedy(column), rows, column)


def _order_by_number(came: Came, given: pa.Array, sent: Sent, where: str) -> Came:
    """Sorted by the numbers that the rule gives. One that is null is 0: an outer join or explode has found nothing."""
    numbers = given.cast(pa.int64()).fill_null(0).to_numpy()
    images = came.images
    order = np.lexsort((numbers, images))
    numbers = numbers[order]
    same = (images[1:] == images[:-1]) & (numbers[1:] == numbers[:-1])
    if same.any():
        refuse_rows(sent, images, [(PART, np.append(same, False))], where)
    return Came(order if came.order is None else came.order[order], images, numbers, by_rule=True)


def _order_values(values: pa.ChunkedArray, order: Index | None) -> pa.Array:
    array = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return array if order is None else array.take(pa.array(order))
