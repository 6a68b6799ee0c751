"""Binlog files as the servers wrote them, and the decoder over them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psql_streamer.binlog.decoded import Decoded
from psql_streamer.binlog.decoder import Decoder
from psql_streamer.model import RowOp, SourceInfo

HEADER = 19
"""Bytes of an event's header."""

FOLDER = Path(__file__).parent / "data" / "binlog"


def read_events(name: str) -> list[bytes]:
    """The events of a file; behind the file's magic they stand as on the wire."""
    data, at, found = (FOLDER / f"{name}.bin").read_bytes(), 4, []
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        found.append(data[at : at + size])
        at += size
    return found


def without_checksums(events: Sequence[bytes]) -> list[bytes]:
    """The same events as a server without checksums sends them."""
    description = bytearray(events[0][:-4])
    description[-1] = 0
    first = bytes(description)
    return [
        first + zlib.crc32(first).to_bytes(4, "little"),
        *(rebuilt(event, event[HEADER:-4]) for event in events[1:]),
    ]


def rebuilt(event: bytes, body: bytes) -> bytes:
    """The event with another body."""
    return event[:9] + (HEADER + len(body)).to_bytes(4, "little") + event[13:HEADER] + body


def source_of(identity: str) -> SourceInfo:
    """The source as its `identity` makes it."""
    return SourceInfo("mysql", "db1", "127.0.0.1", "", identity)


def decoder(flavor: str = "mariadb", **options: Any) -> Decoder:
    """A decoder that wants all tables."""
    made = {"wanted": lambda _schema, _table: True, "file": "bin.000001", **options}
    return Decoder(source_of, flavor, **made)  # type: ignore[arg-type]


def decode(binlog: Sequence[bytes], flavor: str = "mariadb", **options: Any) -> list[Decoded]:
    """The pieces that one call gives."""
    return list(decoder(flavor, **options).decode(binlog))


def changes_of(pieces: Sequence[Decoded]) -> list[tuple[str, str, int, int, Any, Any]]:
    """Table, what happened, commit number, seq, the old row and the new one of each change, in order."""
    found = []
    for number, piece in enumerate(pieces):
        for changes in piece.changes:
            names = [column.name for column in changes.columns]
            rows = [{int(row): {} for row in image.rows} for image in (changes.before, changes.after)]
            for image, into in zip((changes.before, changes.after), rows, strict=True):
                for column, name in enumerate(names):
                    gone = image.absent.get(column)
                    for place, value in enumerate(image.columns[column].to_pylist()):
                        if gone is None or not gone[place]:
                            into[int(image.rows[place])][name] = value
            for row in range(len(changes)):
                tx = int(changes.tx[row])
                found.append(
                    (
                        str(changes.relation),
                        RowOp(int(changes.op[row])).action,
                        int(piece.transactions.commit[tx]),
                        int(changes.seq[row]),
                        rows[0].get(row),
                        rows[1].get(row),
                        (number, int(changes.batch_order[row])),
                    )
                )
    return [one[:-1] for one in sorted(found, key=lambda one: one[-1])]
