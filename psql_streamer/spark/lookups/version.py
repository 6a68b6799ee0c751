"""What is known of a lookup's rows at one time."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Version:
    """All rows of a lookup, as they were read. It never changes.

    table: the rows, with their schema in Spark; None where Spark holds them, in `frame`, because they are many.
    loaded_at: time.monotonic() when the reading began. stamp: of the files, see reading.stamp; empty for others.
    number: no other version has it.
    """

    rows: int
    nbytes: int
    schema: StructType
    loaded_at: float
    table: pa.Table | None = None
    frame: DataFrame | None = None
    stamp: str = ""
    number: int = field(default_factory=_numbers.__next__)

    @property
    def is_lost(self) -> bool:
        """Whether Spark was told to hold it no more. False where nobody knows, because the engine is gone."""
        with suppress(Exception):
            if self.frame is not None:
                level = self.frame.storageLevel
                return not (level.useMemory or level.useDisk)
        return False


def let_go(version: Version) -> None:
    if version.frame is not None:
        version.frame.unpersist()
