"""Rules of the service: executors get this file from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@f.udf("string")
def first_word(text: str | None) -> str | None:
    """The text up to its first space."""
    return None if text is None else text.partition(" ")[0]


def with_gross(changes: DataFrame) -> DataFrame:
    """Two columns more: the amount with tax, and the first word of the note."""
    return changes.withColumn("gross", f.expr("CAST(amount * 1.19 AS DECIMAL(12,2))")).withColumn(
        "subject", first_word("note")
    )
