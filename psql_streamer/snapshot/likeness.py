"""Which texts of a key a server may take for the same value, though the stream has them as two.

1.0 and 1.00 are one number, and "a" and "A" one text where a collation says so. A row may be there under another text
than the key that is looked up, and come while the key waits to be given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from psql_streamer.snapshot.changed_keys import join_values, split_key


class Likeness(Enum):
    """EXACT: another text is another value. DECIMAL: zeros at the end say nothing. FLOAT: zero has two signs. PADDED:
    blanks at the end say nothing. ANY: nothing is known.
    """

    EXACT = "exact"
    DECIMAL = "decimal"
    FLOAT = "float"
    PADDED = "padded"
    ANY = "any"


def are_exact(likenesses: Sequence[Likeness]) -> bool:
    """Whether two keys that differ are never the same."""
    return all(one is Likeness.EXACT for one in likenesses)


def liken(key: bytes, likenesses: Sequence[Likeness]) -> bytes:
    """What keys that may be the same have in common. key: as row_keys has it. likenesses: of each of its columns."""
    parts = split_key(key, len(likenesses))
    return join_values([_STEPS[one](part) for part, one in zip(parts, likenesses, strict=True)])


def _trim_decimal(text: bytes) -> bytes:
    if b"." not in text:
        return text
    return text.rstrip(b"0").rstrip(b".")


_STEPS: dict[Likeness, Callable[[bytes], bytes]] = {
    Likeness.EXACT: lambda text: text,
    Likeness.DECIMAL: _trim_decimal,
    Likeness.FLOAT: lambda text: b"0" if text == b"-0" else text,
    Likeness.PADDED: lambda text: text.rstrip(b" "),
    Likeness.ANY: lambda _: b"",
}
