"""Which batches a sink writes together."""

from __future__ import annotations

from collections.abc import Sequence

from psql_streamer.batching import LOOK_SECONDS, TOGETHER_BYTES
from psql_streamer.pipeline.bounded_queue import BoundedQueue
from psql_streamer.pipeline.item import Item


def take_waiting(queue: BoundedQueue[Item], most: int) -> Sequence[Item]:
    """The first items that wait, `most` of them, and none behind TOGETHER_BYTES. Empty when none came for a while."""
    items: list[Item] = []
    size = 0
    while len(items) < most and size < TOGETHER_BYTES:
        item = queue.get(0.0 if items else LOOK_SECONDS)
        if item is None:
            break
        items.append(item)
        size += item.nbytes
    return items
