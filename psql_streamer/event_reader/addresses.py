"""What rows say themselves of their records: a key that their columns do not make, and headers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from psql_streamer.event_reader.growing import Growing
from psql_streamer.event_reader.headers import HeaderReader
from psql_streamer.event_reader.parsed import Message
from psql_streamer.model import ADDRESS


class AddressesByRow:
    """Collects them for the rows of one batch."""

    def __init__(self) -> None:
        self._keys: dict[int, bytes] = {}
        self._headers: dict[int, list[tuple[bytes, bytes]]] = {}
        self._reader = HeaderReader()

    @property
    def headers_left_out(self) -> int:
        """See HeaderReader.left_out."""
        return self._reader.left_out

    def add_key(self, row: int, key: bytes) -> None:
        """The row's record has this key."""
        self._keys[row] = key

    def add_headers(self, first_row: int, messages: Sequence[Message]) -> None:
        """Rows follow each other as their records do."""
        if not any([message.headers() for message in messages]):  # noqa: C419 - a list is made faster
            return  # of most topics
        for row, message in enumerate(messages, first_row):
            if held := self._reader.read(message):
                self._headers[row] = [(name.encode(), value) for name, value in held]

    def pass_over(self, message: Message) -> None:
        """The record is not about a row."""
        self._reader.leave_out(message)

    def find(self, rows: Growing) -> pa.StructArray | None:
        """Of these rows, as Image.addresses has them; None if none of them says anything."""
        if not (self._keys or self._headers):
            return None
        numbers = rows.join().tolist()
        keys, headers = [self._keys.get(row) for row in numbers], [self._headers.get(row) for row in numbers]
        if keys.count(None) == headers.count(None) == len(numbers):
            return None
        given = {"key": keys, "headers": headers}
        fields = [pa.array(given.get(field.name, [None] * len(numbers)), field.type) for field in ADDRESS]
        return pa.StructArray.from_arrays(fields, fields=list(ADDRESS))
