"""What a transaction of a sink notes of a source, and when that counts more than what is stored. Pure.

A sink that writes in transactions writes, with the events, the position behind them. The store learns that position a
moment later. A crash in between leaves the store behind what readers have seen, and the note tells how far that is.

The store decides which notes count: those of its lineage, a random text that lies beside the position. Whoever forgets
a position, sends the source elsewhere or writes without transactions for a while begins a new lineage, and notes of
the one before mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psql_streamer.checkpoint.store_format import (
    StoredPosition,
    decode_position,
    decode_relation,
    encode_position,
    encode_relation,
)
from psql_streamer.model import Relation


@dataclass(frozen=True, slots=True)
class Note:
    """lineage: of the store. stored: what the store learns next. shapes: tables' shapes that it does not know yet."""

    lineage: str
    stored: StoredPosition
    shapes: Sequence[Relation] = ()

    def counts_for(self, lineage: str, stored: StoredPosition | None) -> bool:
        """Whether the source goes on behind the note, and not behind what is stored."""
        return self.lineage == lineage != "" and (stored is None or self.stored.serial > stored.serial)


def encode_note(note: Note) -> bytes:
    """As a JSON object."""
    return json.dumps(
        {
            "lineage": note.lineage,
            "stored": json.loads(encode_position(note.stored, None)),
            "shapes": _as_objects(note.shapes),
        }
    ).encode()


def decode_note(written: bytes) -> Note:
    """Raises ValueError, KeyError or TypeError for what is no note."""
    fields = json.loads(written)
    return Note(
        str(fields["lineage"]),
        decode_position(json.dumps(fields["stored"]).encode()),
        [decode_relation(json.dumps(shape).encode()) for shape in fields["shapes"]],
    )


def _as_objects(shapes: Iterable[Relation]) -> list[object]:
    return [json.loads(encode_relation(shape, None)) for shape in shapes]
