"""Finds the messages in the byte stream of a COPY BOTH session.

Every backend message is a type byte and an int32 length that counts itself but not the type byte
(PostgreSQL documentation, "Message Formats"). During replication nearly all are CopyData ('d'), each with one
XLogData ('w') or one keepalive ('k') inside ("Streaming Replication Protocol"). This module needs neither numpy
nor Arrow, so that a process that only reads stays small.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from struct import Struct

from psql_streamer.errors import ProtocolError

HEADER = 30
"""Bytes before the pgoutput message in a frame: 'd', length, 'w', start LSN, end LSN, send time."""

_FRAME = Struct(">BI")
_XLOG_DATA = Struct(">BIBQQq")
_KEEPALIVE = Struct(">BIBQqB")
_COPY_DATA = ord("d")
_ENDS = b"CA"  # Commit, and Stream Abort, which lies between transactions
_KEEPALIVE_LENGTH = _KEEPALIVE.size - 1
_LONGEST_MESSAGE_BYTES = 0x3FFF_FFFE  # PQ_LARGE_MESSAGE_LIMIT: PostgreSQL source, src/include/libpq/libpq.h
_COPIED_BYTES = 64 << 10  # a block as small as this is copied out of the buffer
_MOST_SPARE_BYTES = 16 << 20  # the largest buffer that is used again: a single message may have 1 GB
_CONTROL = frozenset(b"ENSAcCZ")  # error, notice, parameter, notification, copy done, command complete, ready


@dataclass(frozen=True, slots=True)
class Block:
    """Whole frames, back to back in `data`; `offsets` says where each begins."""

    data: bytes | memoryview
    offsets: array[int]


@dataclass(frozen=True, slots=True)
class Control:
    """A backend message that is not CopyData: its type byte and what follows the length."""

    kind: str
    body: bytes


class FrameBuffer:
    """Bytes in, in pieces of any size; whole frames out.

    received: the furthest LSN seen. reply_requested: a keepalive asked for an answer (the caller resets it).
    controls: messages other than CopyData, in order, taken out of the stream (the caller empties it).
    """

    def __init__(self) -> None:
        self.received = 0
        self.reply_requested = False
        self.controls: list[Control] = []
        self._bytes = bytearray()  # has what was fed up to _end, and room behind it
        self._end = 0
        self._spare = bytearray()
        self._offsets = array("I")
        self._whole = 0  # up to here the buffer holds whole frames

    def __len__(self) -> int:
        """Bytes held in whole frames."""
        return self._whole

    @property
    def count(self) -> int:
        """Whole frames held."""
        return len(self._offsets)

    @property
    def ends_transaction(self) -> bool:
        """Whether the last whole frame ends a transaction or is a keepalive: nothing that belongs to it is to come."""
        if not self._offsets:
            return True
        last = self._offsets[-1]
        return self._whole - last <= HEADER or self._bytes[last + HEADER] in _ENDS

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes of the stream. ProtocolError if they cannot be a backend message."""
        with self.make_room(len(data)) as room:
            room[:] = data
        self.note_fed(len(data))

    def make_room(self, size: int) -> memoryview:
        """Where the next `size` bytes of the stream may be written. It has to be released before the next call."""
        lacking = self._end + size - len(self._bytes)
        if lacking > 0:
            self._bytes += bytes(max(lacking, len(self._bytes) >> 3))
        return memoryview(self._bytes)[self._end : self._end + size]

    def note_fed(self, size: int) -> None:
        """The first `size` bytes of the room are there now. ProtocolError if they cannot be a backend message."""
        self._end += size
        self._walk()

    def take(self, max_bytes: int, max_frames: int) -> Block | None:
        """The next frames: as many as fit, at least one; None when there is no whole frame."""
        offsets = self._offsets
        if not offsets:
            return None
        count = min(len(offsets), max_frames)
        if self._whole > max_bytes:
            count = min(count, max(1, bisect_right(offsets, max_bytes) - 1))
        cut = offsets[count] if count < len(offsets) else self._whole
        data = self._cut(cut)
        self._whole -= cut
        self._offsets = array("I", [offset - cut for offset in offsets[count:]])
        return Block(data, offsets[:count])

    def give_back(self, block: Block) -> None:
        """A block is not needed any more: its memory may be used again."""
        if isinstance(block.data, memoryview):
            memory = block.data.obj
            block.data.release()
            if isinstance(memory, bytearray) and len(memory) <= _MOST_SPARE_BYTES:
                self._spare = memory

    def _cut(self, cut: int) -> bytes | memoryview:
        """The bytes up to there leave the buffer. The smaller part is copied: mostly less than a frame stays."""
        held, rest = self._bytes, self._end - cut
        if cut <= max(_COPIED_BYTES, rest):
            copied = bytes(memoryview(held)[:cut])
            held[:rest] = held[cut : self._end]
            self._end = rest
            return copied
        self._bytes, self._spare, self._end = self._spare, bytearray(), 0
        with memoryview(held)[cut : cut + rest] as behind, self.make_room(rest) as room:
            room[:] = behind
        self._end = rest
        return memoryview(held)[:cut]

    def _walk(self) -> None:
        """The loop that every message passes; what is rare is dealt with elsewhere."""
        buffer, position, end = self._bytes, self._whole, self._end
        unpack, append = _FRAME.unpack_from, self._offsets.append
        last = position
        while position + 5 <= end:
            kind, length = unpack(buffer, position)
            if kind != _COPY_DATA or length < 5:
                end = self._take_control(position, kind, length)
                if end < 0:
                    break
                continue
            following = position + 1 + length
            if following > end:
                if length > _LONGEST_MESSAGE_BYTES:
                    raise ProtocolError(f"a CopyData message of impossible length {length}")
                break
            if length == _KEEPALIVE_LENGTH:
                self._see_keepalive(position)
            append(position)
            last, position = position, following
        self._whole = position
        if position - last > HEADER:
            self.received = max(self.received, _XLOG_DATA.unpack_from(buffer, last)[3])

    def _see_keepalive(self, position: int) -> None:
        _, _, kind, wal_end, _, reply = _KEEPALIVE.unpack_from(self._bytes, position)
        if kind == ord("k"):
            self.received = max(self.received, wal_end)
            self.reply_requested |= bool(reply)

    def _take_control(self, position: int, kind: int, length: int) -> int:
        """Cut one message out of the buffer; where the buffer ends then, or -1 when the message is not whole yet."""
        if kind not in _CONTROL or not 4 <= length <= _LONGEST_MESSAGE_BYTES:
            raise ProtocolError(f"unexpected message type {chr(kind)!r} (length {length}) in the replication stream")
        end = position + 1 + length
        if end > self._end:
            return -1
        self.controls.append(Control(chr(kind), bytes(self._bytes[position + 5 : end])))
        self._bytes[position : position + self._end - end] = self._bytes[end : self._end]
        self._end -= end - position
        return self._end
