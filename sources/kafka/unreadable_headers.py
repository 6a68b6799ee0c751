"""Records whose headers the client cannot give, because the name of one is not UTF-8.

confluent_kafka raises SystemError for them, and what it returns the second time must not be touched: it has NULL in
place of the name (Message_headers and c_headers_to_py in its confluent_kafka.c).
"""

from __future__ import annotations

from collections.abc import Iterable

from psql_streamer.event_reader.parsed import Message


class Headerless(Message):
    """A record as if it had no headers."""

    def __init__(self, message: Message) -> None:
        self._message = message

    def __len__(self) -> int:
        return len(self._message)

    def topic(self) -> str:
        return self._message.topic()

    def partition(self) -> int:
        return self._message.partition()

    def offset(self) -> int:
        return self._message.offset()

    def key(self) -> bytes | None:
        return self._message.key()

    def value(self) -> bytes | None:
        return self._message.value()

    def headers(self) -> None:
        return None


def replace_unreadable(messages: Iterable[Message]) -> tuple[list[Message], list[Headerless]]:
    """All records, of which those stand without headers whose headers cannot be read; and these."""
    found, replaced, at = list(messages), list[Headerless](), 0
    while at < len(found):
        try:
            for at in range(at, len(found)):  # noqa: B020 - goes on where it stopped
                found[at].headers()
        except (SystemError, UnicodeDecodeError):
            found[at] = bare = Headerless(found[at])
            replaced.append(bare)
        else:
            break
    return found, replaced
