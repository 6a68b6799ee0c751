"""The `coerce` of a rule."""

from __future__ import annotations

from typing import Any

import pytest

from psql_streamer.errors import HandlerRefused
from psql_streamer.model import Column
from tests.spark_changes import INSERT, NUMERIC_12_2, batch, changes, column, only, values


def test_coerce_gives_a_column_another_type(spark: Any) -> None:
    columns = (column("id", 23, key=True), column("amount", 1700), column("meta", 3802))
    given = changes([INSERT], {0: [b"1", b"12.5", b'{"a": 7, "b": ["x"]}']}, {}, columns)
    rule = {"coerce": {"amount": "decimal(12,2)", "meta": "struct<a: int, b: array<string>>"}}
    result = only(spark(orders=rule).handle(batch(given)))
    assert result.columns[1] == Column("amount", 1700, NUMERIC_12_2)
    assert values(result, "amount") == [b"12.50"]
    assert values(result, "meta") == [{"a": 7, "b": ["x"]}]


@pytest.mark.parametrize(("kind", "name"), [("int", "customer"), ("struct<a: int>", "meta")])
def test_a_value_that_cannot_be_coerced_is_refused_by_its_identity_not_its_value(
    spark: Any, kind: str, name: str
) -> None:
    given = changes(
        [INSERT, INSERT], {0: [b"1", None, b"7", b"{}"], 1: [b"2", None, b"secret", b'{"a": "secret"}']}, {}
    )
    with pytest.raises(HandlerRefused) as refused:
        spark(orders={"coerce": {name: kind}}).handle(batch(given))
    assert f"column {name} in change (16/B374D848, 1) cannot be coerced" in str(refused.value)
    assert "secret" not in str(refused.value)
