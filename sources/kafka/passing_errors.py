"""Errors that the client gives among the records, and behind which it goes on: of the group, and of fetches."""

from __future__ import annotations

import logging
import time

from sources.kafka.offsets import Partition

_LOGGED_AGAIN_SECONDS = 60.0
"""Between two lines of the log about the same: the client tries again, and fails again, several times a second."""

_RECENT_SECONDS = 30.0

log = logging.getLogger(__name__)


class PassingErrors:
    """name: of the source. For the member's thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._logged: dict[str, float] = {}
        self._last: dict[Partition | None, tuple[float, str]] = {}

    def note(self, partition: Partition | None, error: str) -> None:
        """The client gave it. partition: that it is about; None: it is about the group."""
        now = time.monotonic()
        self._last[partition] = now, error
        said = error if partition is None else f"{partition}: {error}"
        if now - self._logged.get(said, -_LOGGED_AGAIN_SECONDS) >= _LOGGED_AGAIN_SECONDS:
            self._logged[said] = now
            log.warning("source.%s: %s", self._name, said)

    def find_last(self, partition: Partition | None) -> str:
        """What was said last, as far as that is recent; empty: nothing."""
        at, error = self._last.get(partition, (-_RECENT_SECONDS, ""))
        return error if time.monotonic() - at < _RECENT_SECONDS else ""
