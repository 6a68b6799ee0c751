"""Keys that are posted to a snapshot: those that wait to be looked up, and what has become of the others.

Only figures are part of positions. Keys are not kept: behind a restart whoever posts them goes on at `next`, which is
then the first one that no durable position has settled. A key that is looked up twice does no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from psql_streamer.snapshots import KeyForm, KeysProgress, PostedKeys

MOST_KEYS, MOST_BYTES = 100_000, 8 << 20
"""Of keys that wait; one is taken however long it is."""


@dataclass(slots=True)
class KeyCheck:
    """form: how keys are written. settled: how many keys were looked up and given, if they are gone. gone, superseded:
    as KeysProgress has them. complete: whether the keys that are there are the last ones.
    """

    form: KeyForm
    settled: int = 0
    gone: int = 0
    superseded: int = 0
    complete: bool = False
    _waiting: deque[bytes] = field(default_factory=deque)
    _bytes: int = 0

    @property
    def next(self) -> int:
        """The number of the key that is to come next."""
        return self.settled + len(self._waiting)

    @property
    def is_done(self) -> bool:
        """Whether nothing of it is left."""
        return self.complete and not self._waiting

    @property
    def is_idle(self) -> bool:
        """Whether it needs more keys to go on."""
        return not self.complete and not self._waiting

    def has_taken(self, posted: PostedKeys) -> bool:
        """Whether all of these keys were taken before, and are the last ones."""
        return self.complete and posted.first + len(posted.documents) <= self.next

    def take(self, posted: PostedKeys) -> None:
        """As many of these keys as there is room for, from `next` on. They may have been taken before."""
        skip = self.next - posted.first
        if skip < 0:
            return
        for document in islice(posted.documents, skip, None):
            if self._waiting and (len(self._waiting) >= MOST_KEYS or self._bytes + len(document) > MOST_BYTES):
                return
            self._waiting.append(document)
            self._bytes += len(document)
        self.complete = self.complete or (posted.complete and self.next == posted.first + len(posted.documents))

    def list_waiting_from(self, first: int, most: int) -> tuple[bytes, ...]:
        """Keys that wait, by the number of the first of them."""
        at = first - self.settled
        return tuple(islice(self._waiting, at, at + most))

    def settle(self, count: int, gone: int, superseded: int) -> None:
        """The next of the keys need nothing more."""
        for _ in range(count):
            self._bytes -= len(self._waiting.popleft())
        self.settled += count
        self.gone += gone
        self.superseded += superseded

    def forget_waiting(self) -> None:
        """Nothing more is looked up."""
        self._waiting.clear()
        self._bytes = 0

    def begin_anew(self) -> KeyCheck:
        """The same before anything of it was done."""
        return KeyCheck(self.form)

    def encode(self) -> dict[str, Any]:
        """For the position."""
        return {
            "form": self.form.value,
            "settled": self.settled,
            "gone": self.gone,
            "superseded": self.superseded,
        }

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> KeyCheck:
        """What `encode` gave."""
        return cls(KeyForm(data["form"]), data["settled"], data["gone"], data["superseded"])

    def show(self) -> KeysProgress:
        """For people, and for whoever posts keys."""
        return KeysProgress(self.settled, self.gone, self.superseded, self.next, self.complete)
