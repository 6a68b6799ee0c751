"""PostgreSQL's log sequence number."""

from __future__ import annotations


class Lsn(int):
    """A position in the write-ahead log: bytes since its beginning, shown as PostgreSQL does (`16/B374D848`)."""

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn({self})"

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Read `16/B374D848` or a plain number; ValueError for anything else."""
        high, slash, low = text.partition("/")
        value = (int(high, 16) << 32) | int(low, 16) if slash else int(text)
        if not 0 <= value < 1 << 64 or (slash and int(low, 16) >> 32):
            raise ValueError(f"{text!r} is not an LSN such as 16/B374D848")
        return cls(value)


NO_LSN = Lsn(0)
"""PostgreSQL's InvalidXLogRecPtr: no position."""
