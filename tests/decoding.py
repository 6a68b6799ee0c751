"""Runs the decoder over frames, cut into blocks as a test wants them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate

from psql_streamer.lsn import NO_LSN
from psql_streamer.model import POSTGRESQL, Batch, Position, SourceInfo
from psql_streamer.pgoutput.decoder import Decoder
from psql_streamer.pgoutput.frames import Block
from psql_streamer.pgoutput.full_identity import AskKeys, CatalogKey
from psql_streamer.pgoutput.wal_position import WalPosition

SOURCE = SourceInfo(POSTGRESQL, "test", "localhost", "postgres")
BEGINNING = WalPosition(NO_LSN)


def wal(position: WalPosition | Position) -> WalPosition:
    """What a position holds, also of one that a batch has."""
    return WalPosition.from_position(position) if isinstance(position, Position) else position


def decoder(resume: WalPosition | Position = BEGINNING) -> Decoder:
    return Decoder(SOURCE, wal(resume), transaction_metadata=True)


def block(frames: Sequence[bytes]) -> Block:
    """These frames as FrameBuffer would give them."""
    return Block(b"".join(frames), array("I", list(accumulate(map(len, frames), initial=0))[:-1]))


def blocks(frames: Sequence[bytes], size: int) -> Iterator[Block]:
    """The frames in blocks of `size`, the last one perhaps smaller."""
    for start in range(0, len(frames), size):
        yield block(frames[start : start + size])


def decode(frames: Sequence[bytes], size: int, resume: WalPosition | Position = BEGINNING) -> list[Batch]:
    """A batch for each block of `size` frames, from one decoder."""
    machine = decoder(resume)
    return [machine.decode(piece.data, piece.offsets) for piece in blocks(frames, size)]


def keyed_by(*names: str) -> AskKeys:
    """A catalog in which every table has this primary key."""
    return lambda asked: [CatalogKey(names) for _ in asked]
