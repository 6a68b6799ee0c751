"""The events of a session one by one: checksums, compressed transactions, and where in which file each lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from psql_streamer.binlog import events
from psql_streamer.binlog.events import CHECKSUM_BYTES, HEADER_BYTES, EventType, Header
from psql_streamer.binlog.payload import read_payload


class EventStream:
    """file, at: where the event ends that was read last. begun: when the file was begun, in seconds since 1970; 0 until
    its FORMAT_DESCRIPTION event has come. They are right while what `read` gave is looked at.
    """

    def __init__(self, file: str, position: int) -> None:
        self.file = file
        self.at = position
        self.begun = 0
        self._file_number = _read_file_number(file)
        self._checksums: bool | None = None  # None: no FORMAT_DESCRIPTION event has said

    def __str__(self) -> str:
        return f"{self.file}:{self.at}"

    def read(self, binlog: Iterable[bytes]) -> Iterator[tuple[Header, bytes]]:
        """Header and body of each event, those of compressed transactions included. ProtocolError as Decoder.decode."""
        for event in binlog:
            header = events.read_header(event)
            body = self._read_body(event, header)
            kind = header.type
            if header.log_pos and kind not in _WITHOUT_PLACE and not header.flags & events.ARTIFICIAL:
                # It has 32 bits, and a transaction may go beyond: places in a file only grow.
                self.at += (header.log_pos - self.at) & _32_BITS
            if kind == _PAYLOAD:
                yield from self._read_payload(header, body)
                continue
            if kind == _ROTATE:
                self._rotate(header, body)
            yield header, body

    def place(self, header: Header) -> int:
        """Where an event begins: the file's number and the place in it."""
        return self._file_number << 32 | max(0, self.at - header.size) & _32_BITS

    def _read_body(self, event: bytes, header: Header) -> bytes:
        """What lies between header and checksum."""
        checksums = self._checksums
        if header.type == _FORMAT:
            self.begun = header.timestamp
            checksums = True  # it has one, whatever it says of the others
            self._checksums = events.read_format_description(event, header)
        elif checksums is None:
            checksums = events.has_checksum(event)
        elif checksums and not events.has_checksum(event):
            raise events.make_checksum_error(header)
        return event[HEADER_BYTES:-CHECKSUM_BYTES] if checksums else event[HEADER_BYTES:]

    def _read_payload(self, header: Header, body: bytes) -> Iterator[tuple[Header, bytes]]:
        """Each of its events lies where it lies itself, and has no checksum."""
        for inner in read_payload(body):
            yield events.read_header(inner)._replace(size=header.size), inner[HEADER_BYTES:]

    def _rotate(self, header: Header, body: bytes) -> None:
        file, position = events.read_rotate(body)
        # The one that a session begins with may name the file where it already is.
        if file != self.file or not header.flags & events.ARTIFICIAL:
            self.file, self.at, self.begun = file, position, 0
            self._file_number = _read_file_number(file)


# Looked at for every event: as integers, and looked up once.
_FORMAT, _PAYLOAD, _ROTATE = (
    int(kind) for kind in (EventType.FORMAT_DESCRIPTION, EventType.TRANSACTION_PAYLOAD, EventType.ROTATE)
)

_32_BITS = 0xFFFF_FFFF

_WITHOUT_PLACE = {_FORMAT}
"""It stands at the begin of a file, and comes first wherever a session begins."""


def _read_file_number(file: str) -> int:
    """4711 of `binlog.004711`."""
    digits = file.rpartition(".")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0
