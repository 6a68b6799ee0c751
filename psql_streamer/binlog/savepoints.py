"""Where a transaction can go back to: its begin, and its savepoints.

A server leaves out of the binlog what was rolled back, but for a transaction that has changed tables of engines without
transactions, too: of that it writes everything, and behind it ROLLBACK or ROLLBACK TO (MariaDB source,
binlog_savepoint_rollback).
"""

from __future__ import annotations

BEGIN = ""
"""The name of a transaction's begin."""


class Savepoints:
    """Of the open transaction: how many items were gathered before each; None where some behind it were given."""

    def __init__(self) -> None:
        self._places: dict[str, int | None] = {}

    def begin(self, place: int) -> None:
        """A transaction begins; it has no others."""
        self._places = {BEGIN: place}

    def set(self, name: str, place: int) -> None:
        """One of this name replaces that of before. Servers compare names without regard to case."""
        self._places[name.casefold()] = place

    def find(self, name: str) -> int | None:
        """None where it cannot be gone back to."""
        return self._places.get(name.casefold())

    def move_on(self, place: int) -> None:
        """All items were given, of which there were so many: others are counted from 0."""
        self._places = {name: None if at is None or at < place else 0 for name, at in self._places.items()}
