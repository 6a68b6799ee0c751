"""What is said of rows stays with them on their way through Spark, whatever fields there are."""

from __future__ import annotations

from typing import Any

from psql_streamer.cells import convert_to_cells
from tests.per_row_fields import batch_with, filled_changes, values_by_order


def test_rows_that_come_back_from_spark_keep_their_fields(spark: Any) -> None:
    orders, visits = filled_changes(range(0, 10, 2), 0), filled_changes(range(1, 9, 2), 1, "visits")
    given = {**values_by_order(orders), **values_by_order(visits)}
    handler = spark(orders={"sql": "SELECT *, upper(note) AS loud FROM changes WHERE id <> 4"})
    handled = handler.handle(batch_with(orders, visits, transactions=2))
    assert values_by_order(convert_to_cells(handled.changes)) == {
        order: one for order, one in given.items() if order != 4
    }
