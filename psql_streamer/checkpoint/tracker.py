"""Which position is durable: batches in flight, times sinks, to the highest contiguous one. Pure.

A source gives batches in the order of its commits; each goes to every sink, and sinks finish at their own pace. What
may be stored is the position of the last batch for which two things are true: every sink has it, and every sink has
each batch before it. A batch that is durable behind one that is not counts for nothing yet: a position says
"everything up to here".

Batches are numbered as they come (`batch_number`), because positions are the source's own business: the core does not
compare them. A batch that no sink is given (only the position moved) is durable as soon as all before it are.

The caller then stores the position on disk, and confirms it to the server behind that. In the other order a crash
between the two would leave a server that has removed WAL which the stored position still needs.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from psql_streamer.model import Position


@dataclass(slots=True)
class _InFlight:
    batch_number: int
    position: Position
    since: float
    waiting_for: set[str]


class Tracker:
    """Batches of one source in the order in which it gave them, until every sink has each.

    Not thread-safe: the caller serialises.
    """

    def __init__(self) -> None:
        self._in_flight: deque[_InFlight] = deque()
        self._by_number: dict[int, _InFlight] = {}
        self._unacknowledged = Counter[str]()
        self._last_number = 0
        self._durable: Position | None = None
        self._durable_batch_number = 0

    def add(self, position: Position, sinks: Iterable[str], now: float) -> int:
        """A batch goes to these sinks (none: it is durable as soon as all before it are). Returns its number."""
        self._last_number += 1
        entry = _InFlight(self._last_number, position, now, set(sinks))
        if not entry.waiting_for:
            self._add_empty(entry)
        else:
            self._in_flight.append(entry)
            self._by_number[entry.batch_number] = entry
            self._unacknowledged.update(entry.waiting_for)
        self._settle()
        return entry.batch_number

    def acknowledge(self, batch_number: int, sink: str) -> None:
        """A sink has everything of the batch durably."""
        waiting_for = self._by_number[batch_number].waiting_for
        if sink in waiting_for:
            waiting_for.discard(sink)
            self._unacknowledged[sink] -= 1
        self._settle()

    def count_unacknowledged(self, sink: str) -> int:
        """How many batches a sink does not have yet."""
        return self._unacknowledged[sink]

    @property
    def durable(self) -> Position | None:
        """Everything up to here is durable in every sink; None before the first batch is."""
        return self._durable

    @property
    def durable_batch_number(self) -> int:
        """The number of the last batch that is durable with all before it; 0 before the first is."""
        return self._durable_batch_number

    def __len__(self) -> int:
        """Batches in flight."""
        return len(self._in_flight)

    def find_oldest(self) -> tuple[float, frozenset[str]] | None:
        """Since when the oldest batch has been in flight, and which sinks it waits for."""
        if not self._in_flight:
            return None
        first = self._in_flight[0]
        return first.since, frozenset(first.waiting_for)

    def _add_empty(self, entry: _InFlight) -> None:
        """Empty batches behind one another are one: WAL of other tables makes many of them while a sink is away."""
        if self._in_flight and self._in_flight[-1].batch_number not in self._by_number:
            entry.since = self._in_flight.pop().since
        self._in_flight.append(entry)

    def _settle(self) -> None:
        while self._in_flight and not self._in_flight[0].waiting_for:
            entry = self._in_flight.popleft()
            self._by_number.pop(entry.batch_number, None)
            self._durable, self._durable_batch_number = entry.position, entry.batch_number
