"""Which part of what is read a record goes to. A part is of one origin, and parts come one behind the other."""

from __future__ import annotations

from bisect import bisect_left

from psql_streamer.event_reader.parsed import Message, Origin, Parsed
from psql_streamer.model import RowOp

_Partition = tuple[str, int]


class Order:
    """Puts records into as few parts as their order allows for.

    Within a partition the records of one origin stay in order, and those of one key, whatever their origins; and
    nothing passes a truncate or a message.
    """

    def __init__(self) -> None:
        self.origins: list[Origin] = []
        self._parts_of: dict[Origin, list[int]] = {}
        self._of_origin: dict[tuple[_Partition, Origin], int] = {}
        self._of_key: dict[tuple[_Partition, bytes], int] = {}
        self._last: dict[_Partition, int] = {}
        self._marker: dict[_Partition, int] = {}

    def place(self, parsed: Parsed, message: Message) -> int:
        """The number of the part: that of one that is there, or of a new one behind them."""
        if self.origins == [parsed.origin]:
            return 0  # which is what is not noted below stands for
        partition, key, origin = (message.topic(), message.partition()), message.key(), parsed.origin
        least = max(self._of_origin.get((partition, origin), 0), self._marker.get(partition, 0))
        if not isinstance(parsed.kind, RowOp):
            least = max(least, self._last.get(partition, 0))
        elif key is not None:
            least = max(least, self._of_key.get((partition, key), 0))
        part = self._find(origin, least)
        self._of_origin[partition, origin] = part
        self._last[partition] = max(part, self._last.get(partition, 0))
        if not isinstance(parsed.kind, RowOp):
            self._marker[partition] = part
        if key is not None:
            self._of_key[partition, key] = part
        return part

    def _find(self, origin: Origin, least: int) -> int:
        parts = self._parts_of.setdefault(origin, [])
        at = bisect_left(parts, least)
        if at == len(parts):
            parts.append(len(self.origins))
            self.origins.append(origin)
        return parts[at]
