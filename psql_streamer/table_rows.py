"""Rows of a table or query that somebody reads beside the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from psql_streamer.model import Column


@dataclass(frozen=True, slots=True)
class TableRows:
    """All rows of a table or query in one state. arrays: as Image.columns has them, one for each column.

    id: of a table, as Relation has it; empty where nobody knows it. unstreamed: what of a table's changes is not in its
    stream, as `deletes`.
    """

    columns: tuple[Column, ...]
    arrays: Sequence[pa.Array]
    rows: int
    id: str = ""
    unstreamed: Sequence[str] = ()


class TableReader(Protocol):
    """Reads tables and queries of a database. From any thread, one at a time."""

    def read_table(self, schema: str, table: str, most_bytes: int) -> TableRows:
        """The rows of a table that is streamed, with the columns that the stream has and its key. SourceError.

        SourceRefused when it has more bytes, or is not streamed.
        """

    def read_query(self, query: str, most_bytes: int) -> TableRows:
        """The rows of a query, whose columns are no keys. SourceError; SourceRefused when they are more bytes."""

    def interrupt(self) -> None:
        """Make whatever waits raise SourceUnavailable soon, for good."""
