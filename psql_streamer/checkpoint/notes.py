"""What a transaction of a sink notes of a source, and when that counts more than what is stored. Pure.

A sink that writes in transactions writes, with the events, the position behind them. The store learns that position a
moment later. A crash in between leaves the store behind what readers have seen, and the note tells how far that is.

The store decides which notes count: those of its lineage, a random text that lies beside the position. Whoever forgets
a position, sends the source elsewhere or writes without transactions for a while begins a new lineage, and notes of
the one before mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Raw, Struct

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
    stored, shapes = encode_position(note.stored, None), [encode_relation(shape, None) for shape in note.shapes]
    return msgspec.json.encode(_Written(note.lineage, Raw(stored), [Raw(shape) for shape in shapes]))


def decode_note(written: bytes) -> Note:
    """Raises ValueError, KeyError or TypeError for what is no note."""
    fields = _decode(written)
    shapes = [decode_relation(bytes(shape)) for shape in fields.shapes]
    return Note(fields.lineage, decode_position(bytes(fields.stored)), shapes)


class _Written(Struct):
    """What the store writes of the position and of each shape."""

    lineage: str
    stored: Raw
    shapes: list[Raw]


_decode = msgspec.json.Decoder(_Written).decode
