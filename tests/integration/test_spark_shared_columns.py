"""A rule's result has the same columns, as objects, in every batch of a table: what is made of them is made once, and
nothing is held of each batch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark_changes import DELETE, INSERT, UPDATE, changes, only, shop
from tests.spark_changes import batch as one_batch

RULES: dict[str, Any] = {
    "all": {"sql": "SELECT * FROM changes"},
    "without-row": {"sql": "SELECT id, amount FROM changes"},
    "computed": {"sql": "SELECT id, amount * 2 AS twice, upper(customer) AS customer FROM changes WHERE id > 0"},
    "parts": {"sql": "SELECT id, part AS _part FROM changes LATERAL VIEW explode(array(1, 2)) AS part"},
    "steps": {"drop": ["meta"], "rename": {"customer": "buyer"}, "mask": {"amount": "null"}},
    "coerced": {"coerce": {"amount": "double"}, "where": "id > 0"},
    "function": {"function": "tests.integration.test_spark_shared_columns:passed_on"},
    "function-without-row": {"function": "tests.integration.test_spark_shared_columns:without_row"},
}


def passed_on(frame: Any) -> Any:
    return frame


def without_row(frame: Any) -> Any:
    return frame.select("id", "customer")


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_the_columns_of_a_result_are_the_same_objects_in_every_batch(spark: Any, rule: Any) -> None:
    handler = spark({}, **{"*": rule})
    few = changes([INSERT], {0: [b"7", b"1.00", b"eve", b"{}"]}, {})
    unchanged = changes(
        [UPDATE, DELETE],
        {0: [b"8", b"1.00", b"eve", None]},
        {0: [b"8", None, None, None], 1: [b"9", None, None, None]},
        absent={3: [True]},
    )
    held = [only(handler.handle(one_batch(part))).columns for part in (shop(), few, shop(), unchanged, few, shop())]
    assert len({id(columns) for columns in held[-3:]}) == 1
