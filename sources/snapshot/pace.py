"""How many rows of a table are read at once: as many as take about as long as a chunk may."""

from __future__ import annotations

from psql_streamer.errors import SourceRefused
from sources.snapshot.options import SnapshotOptions

_ROWS_OF_FIRST_CHUNK, _FEWEST_ROWS = 2000, 100
"""Of the first chunk of a table, and of the smallest."""

_FASTEST_GROWTH = 4


class Pace:
    """By table: of each one reader at a time asks."""

    def __init__(self, options: SnapshotOptions) -> None:
        self._options = options
        self._rows: dict[str, int] = {}

    def choose_chunk_rows(self, relation: str) -> int:
        """Of the next chunk."""
        return min(self._rows.get(relation, _ROWS_OF_FIRST_CHUNK), self._options.chunk_rows)

    def note(self, relation: str, seconds: float, size: int = 0) -> None:
        """The last chunk took so long, and was so many bytes; 0 where these set no limit to the rows."""
        chosen, before = self._options, self._rows.get(relation, _ROWS_OF_FIRST_CHUNK)
        by_time, by_size = chosen.chunk_time / max(seconds, 1e-3), chosen.chunk_bytes / max(size, 1)
        wanted = int(before * min(by_time, by_size, _FASTEST_GROWTH))
        self._rows[relation] = min(max(wanted, min(_FEWEST_ROWS, before) if by_size > 1 else 1), chosen.chunk_rows)

    def lower(self, relation: str, limit: float) -> int:
        """The last chunk took longer than it may, `limit` seconds; how many rows it was to have. SourceRefused where it
        was one.
        """
        rows = self.choose_chunk_rows(relation)
        if rows == 1:
            raise SourceRefused(
                f"its next row was not found within {limit:g} s",
                "raise chunkTime, or create an index for the condition",
            )
        self._rows[relation] = max(1, rows // 10)
        return rows
