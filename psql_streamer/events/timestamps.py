"""Which timestamps records get."""

from __future__ import annotations

from typing import Literal

from psql_streamer.model import Index

Timestamps = Literal["write", "commit", "record"]
"""write: when they are written. commit: of the commit that they tell of. record: of the record that a row was read
from.
"""


def choose_timestamps(kind: Timestamps, moments: Index, record_time: Index | None = None) -> Index | None:
    """Milliseconds since 1970-01-01 UTC, as Records has them. moments: of the commits, in microseconds. record_time: as
    Changes has it.
    """
    match kind:
        case "write":
            return None
        case "commit":
            return moments // 1000
        case "record":
            return record_time
