"""Records: what an encoder makes of a batch and a sink delivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.model import Index, SourceInfo

WHOLE = np.iinfo(np.int64).min
"""In place of a record's part, where its change is one row."""


@dataclass(frozen=True, slots=True)
class Records:
    """Encoded events of one batch, in commit order; all arrays have one element a record.

    topics: index into topic_names, each of which some record has.
    keys: binary; null is a record without a key. values: binary; null is a tombstone.
    commit, seq, op: the identity of the change that a record came from, and what it did. source: where from.
    tables: index into table_names ("schema.table"; of a logical message its prefix, as it is shown), for errors, dead
    letters and metrics.
    headers: name -> binary array (null: this record lacks the header).
    skipped: table -> rows that no rule gives a topic. excluded: rows of tables that are left out on purpose.
    skipped_messages: prefix, as it is shown -> logical messages without a topic.
    snapshot: the id of the snapshot that each record's row is of, null for others; None: none of them is of one.
    nulled: schema.table.column -> values that are null, or have nulls inside of them, because the format's type for
        the column cannot hold them. An array counts once, however many of its elements are null.
    left_behind: schema.table.column -> rows under a new key that lack the value of the column, because the update that
        changed their key left it alone.
    part: which part of its change each record's row is, WHOLE for others; None: none of them is one.
    timestamps: milliseconds since 1970-01-01 UTC, NO_RECORD_TIME for the time of writing; None: all have that one.
    """

    source: SourceInfo
    topic_names: tuple[str, ...]
    topics: NDArray[np.int32]
    keys: pa.BinaryArray
    values: pa.BinaryArray
    commit: NDArray[np.uint64]
    seq: NDArray[np.int64]
    op: NDArray[np.uint8]
    table_names: tuple[str, ...]
    tables: NDArray[np.int32]
    headers: Mapping[str, pa.BinaryArray] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    skipped_messages: Mapping[str, int] = field(default_factory=dict)
    excluded: int = 0
    nulled: Mapping[str, int] = field(default_factory=dict)
    left_behind: Mapping[str, int] = field(default_factory=dict)
    snapshot: pa.BinaryArray | None = None
    part: Index | None = None
    timestamps: Index | None = None

    def __len__(self) -> int:
        return len(self.topics)

    def look_up_topic(self, index: int) -> str:
        """The topic that a record goes to."""
        return self.topic_names[int(self.topics[index])]

    def drop_topic(self, topic: str) -> Records:
        """The records of all other topics."""
        left_out = self.topic_names.index(topic)
        stay = np.flatnonzero(self.topics != left_out)
        topics = self.topics[stay]
        return replace(
            self,
            topic_names=tuple(name for name in self.topic_names if name != topic),
            topics=np.where(topics > left_out, topics - 1, topics).astype(np.int32),
            keys=self.keys.take(stay),
            values=self.values.take(stay),
            commit=self.commit[stay],
            seq=self.seq[stay],
            op=self.op[stay],
            tables=self.tables[stay],
            headers={name: column.take(stay) for name, column in self.headers.items()},
            snapshot=None if self.snapshot is None else self.snapshot.take(stay),
            part=None if self.part is None else self.part[stay],
            timestamps=None if self.timestamps is None else self.timestamps[stay],
        )

    def look_up_table(self, index: int) -> str:
        """The table, as schema.table, that a record came from."""
        return self.table_names[int(self.tables[index])]

    def find_snapshot(self, index: int) -> str | None:
        """The id of the snapshot that a record's row is of."""
        found = None if self.snapshot is None else self.snapshot[index].as_py()
        return None if found is None else found.decode()

    def find_part(self, index: int) -> int | None:
        """Which part of its change a record's row is; None for a change that is one row."""
        found = WHOLE if self.part is None else int(self.part[index])
        return None if found == WHOLE else found
