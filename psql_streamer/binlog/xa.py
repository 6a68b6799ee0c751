"""XA transactions between their XA PREPARE and their outcome: their rows are held.

The rows come when a transaction is prepared, and XA COMMIT or XA ROLLBACK much later, as a transaction of its own. What
is committed is what that one has: its number, its time, and the rows that were held.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from psql_streamer.binlog.events import Gtid, Header
from psql_streamer.errors import SourceRefused


@dataclass(slots=True)
class HeldTransaction:
    """gtid: of the transaction that was prepared. events: TABLE_MAP and rows events, each with its body."""

    gtid: Gtid | None
    events: list[tuple[Header, bytes]] = field(default_factory=list)
    size: int = 0


class PreparedTransactions:
    """Those whose outcome has not come. most: bytes of all of them together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._by_xid: dict[bytes, HeldTransaction] = {}

    def __len__(self) -> int:
        return len(self._by_xid)

    def hold(self, held: HeldTransaction, header: Header, body: bytes) -> None:
        """An event of a transaction that is being read. SourceRefused when all take more than is allowed."""
        self._size += len(body)
        held.size += len(body)
        if self._size > self._most:
            raise SourceRefused(
                f"XA transactions that are prepared, and not committed, take more than {self._most} bytes of memory",
                "XA RECOVER on the server lists them: commit them or roll them back, or make them smaller",
            )
        held.events.append((header, body))

    def take_back(self, held: HeldTransaction, place: int) -> None:
        """Its events from a place on were rolled back."""
        size = sum(len(body) for _, body in held.events[place:])
        del held.events[place:]
        held.size -= size
        self._size -= size

    def prepare(self, xid: bytes, held: HeldTransaction) -> None:
        """It waits for its outcome from now on."""
        self._by_xid[xid] = held

    def release(self, held: HeldTransaction) -> None:
        """It is held no longer, without having been prepared."""
        self._size -= held.size

    def take(self, xid: bytes) -> HeldTransaction | None:
        """Its outcome is known; None where it was prepared before the stream began."""
        held = self._by_xid.pop(xid, None)
        if held is not None:
            self._size -= held.size
        return held
