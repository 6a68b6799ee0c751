"""A record in place of another one, of which something is read otherwise."""

from __future__ import annotations

from psql_streamer.event_reader.parsed import Message


class Wrapped(Message):
    """original: the record as the brokers gave it."""

    def __init__(self, original: Message) -> None:
        self.original = original

    def __len__(self) -> int:
        return len(self.original)

    def topic(self) -> str:
        return self.original.topic()

    def partition(self) -> int:
        return self.original.partition()

    def offset(self) -> int:
        return self.original.offset()

    def timestamp(self) -> tuple[int, int]:
        return self.original.timestamp()

    def key(self) -> bytes | None:
        return self.original.key()

    def value(self) -> bytes | None:
        return self.original.value()

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.original.headers()
