"""What keeps rows that were read from being given."""

from __future__ import annotations

import time

from psql_streamer.snapshot.progress import SnapshotRun
from sources.snapshot.news import News

_NUDGE_SECONDS = 2.0
"""The time that a chunk waits before it is said, and before the server is made to write out its log."""


class Waits:
    """Of the snapshots for which something is done. Not for several threads: the caller has a lock."""

    def __init__(self, news: News) -> None:
        self._news = news
        self._behind: tuple[str, float] | None = None  # why nothing may be given, and since when
        self._mark_since: float | None = None
        self._run: SnapshotRun | None = None

    def note(self, run: SnapshotRun | None, reason: str) -> None:
        """reason: what is waited for; empty for nothing."""
        before, self._run = self._run, run if reason else None
        for one in (before, None if reason else run):
            if one is not None and one is not self._run:
                self._news.note_wait_over(one, "")
        if not reason:
            self._behind = None
            return
        self._behind = reason, time.monotonic() if self._behind is None else self._behind[1]
        if run is not None:
            self._news.note_wait(run, "", reason)

    def note_mark(self, run: SnapshotRun | None, reason: str) -> bool:
        """The same, of the place that the stream must reach; whether the server has to be nudged now."""
        self.note(run, reason)
        if not reason:
            self._mark_since = None
            return False
        now = time.monotonic()
        self._mark_since = self._mark_since or now
        if now - self._mark_since <= _NUDGE_SECONDS:
            return False
        self._mark_since = now
        return True

    def describe(self, now: float) -> str:
        """What has been waited for, if for long enough to be said."""
        return self._behind[0] if self._behind is not None and now - self._behind[1] > _NUDGE_SECONDS else ""
