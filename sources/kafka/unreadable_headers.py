"""Records whose headers the client cannot give, because the name of one is not UTF-8.

confluent_kafka fails for them, and what it returns must not be touched, nor what it returns the second time: it has
NULL in place of the name (Message_headers and c_headers_to_py in its confluent_kafka.c).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import cast

import confluent_kafka

from psql_streamer.event_reader.parsed import Message
from sources.kafka.wrapped import Wrapped


class Headerless(Wrapped):
    """A record as if it had no headers."""

    def headers(self) -> None:
        return None


_read_headers = cast("Callable[[Message], object]", confluent_kafka.Message.headers)
"""Not `message.headers()`: where Python has specialised that call, it does not look whether the function failed."""


def replace_unreadable(messages: Iterable[Message]) -> tuple[list[Message], list[Headerless]]:
    """All records, of which those stand without headers whose headers cannot be read; and these.

    It must be the first who asks the records for their headers.
    """
    found, replaced, count = list(messages), list[Headerless](), 0
    while count < len(found):
        try:
            for _ in map(_read_headers, islice(found, count, None)):
                count += 1
        except (SystemError, UnicodeDecodeError):
            found[count] = bare = Headerless(found[count])
            replaced.append(bare)
            count += 1
    return found, replaced
