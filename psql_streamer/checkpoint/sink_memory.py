"""What one sink remembers in the position store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psql_streamer.checkpoint.store import Store
from psql_streamer.interfaces import SinkMemory


@dataclass(frozen=True, slots=True)
class StoredSinkMemory(SinkMemory):
    """sink: its name in the configuration, which no other sink of the store has."""

    store: Store
    sink: str

    def read(self) -> Mapping[str, str]:
        """See SinkMemory.read."""
        return self.store.read_sink(self.sink)

    def put(self, texts: Mapping[str, str]) -> None:
        """See SinkMemory.put."""
        self.store.put_sink(self.sink, texts)
