"""What a source reads of the rows that its tables have already: the option `snapshot`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from psql_streamer.options import PartOptions, PositiveByteSize, PositiveDuration, refuse_shorter_than
from psql_streamer.table_patterns import TablePatterns


class SnapshotMode(StrEnum):
    """When existing rows are read: at the first start of a source, never, or at every start."""

    INITIAL = "initial"
    NEVER = "never"
    ALWAYS = "always"


def _check_patterns(tables: tuple[str, ...]) -> tuple[str, ...]:
    TablePatterns(dict.fromkeys(tables))
    return tables


class SnapshotOptions(PartOptions):
    """[source.NAME.snapshot].

    tables: names and patterns of those that are read; none: all that are published. where: name or pattern -> SQL
    condition on the rows. chunk_rows, chunk_bytes, chunk_time (seconds): upper bounds of what is read at once.
    parallel: how many chunks are read at a time, each over a connection of its own.
    """

    mode: SnapshotMode = SnapshotMode.INITIAL
    tables: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], AfterValidator(_check_patterns)] = ()
    where: Mapping[str, str] = Field(default_factory=dict)
    chunk_rows: int = Field(default=50_000, gt=0, le=10_000_000)
    chunk_bytes: Annotated[PositiveByteSize, Field(le=1 << 30)] = 16 << 20
    chunk_time: Annotated[
        PositiveDuration, refuse_shorter_than("10ms", "a query takes a few milliseconds by itself")
    ] = 1.0
    parallel: int = Field(default=1, gt=0, le=64)

    def wants(self, schema: str, table: str) -> bool:
        """Whether the rows of a table are to be read."""
        return not self.tables or TablePatterns(dict.fromkeys(self.tables)).find(schema, table) is not None

    def choose_conditions(self, *, on_demand: bool) -> Mapping[str, str]:
        """`where` for the source's own snapshots. One that an operator asks for has conditions of its own alone."""
        return {} if on_demand else self.where

    def find_condition(self, schema: str, table: str) -> str:
        """The SQL condition on a table's rows; empty for none."""
        found = TablePatterns(self.where).find(schema, table)
        return found.value if found else ""


def expand_mode(value: Any) -> Any:
    """`snapshot = "never"` stands for a section with that mode."""
    return {"mode": value} if isinstance(value, str | bool) else value
