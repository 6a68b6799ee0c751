"""What the server says of itself beside the stream: how far its WAL has got, and whether the walsender is at work."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from psql_streamer.errors import SourceError
from sources.other_server import LOOKS_IN_VAIN, STREAM_IS_NOT_THERE, WATCH_SESSION_SECONDS
from sources.postgres.catalog import Catalog, Session
from sources.postgres.standby_slots import describe_held_back
from sources.watch_thread import WatchThread

log = logging.getLogger(__name__)

_SERVER_LOOK_SECONDS = 5.0
"""Between two questions, and before the next attempt to connect to a server that refused a session."""

_RECONNECT_SECONDS = 0.5
"""Before the next connection, when one was lost."""

_SERVER_ANSWER_SECONDS = 10.0
"""The time that an answer may take."""

_FRESH_SECONDS = _SERVER_LOOK_SECONDS + _SERVER_ANSWER_SECONDS
"""The time for which an answer says something about the present."""

_SLOT = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s"

_WALSENDER = """
SELECT wait_event_type, wait_event FROM pg_stat_activity
WHERE pid = %s AND coalesce(extract(epoch FROM backend_start)::text, '') = %s
"""

# A checkpoint that gives a slot up ends its walsender, and waits for that without a limit (PostgreSQL source,
# InvalidatePossiblyObsoleteSlot in slot.c). A walsender that cannot send does not end. Of a slot in use it says
# `unreserved` also then.
_GIVES_SLOT_UP = "SELECT FROM pg_replication_slots WHERE active_pid = %s AND wal_status IN ('unreserved', 'lost')"

_SLOT_IN_DANGER = (
    "the slot keeps more WAL than max_slot_wal_keep_size, and a checkpoint may give it up at any time: "
    "look at what the sinks wait for, or raise that setting and reload it"
)

_IDLE_WAIT_TYPES = {"Activity", "Client"}
"""Types of wait events of a walsender that waits for WAL, or for its peer to read (PostgreSQL documentation, "Wait
Event Types")."""

_WAITS_FOR_WAL = "WalSenderWaitForWal"
"""Of a walsender that has sent all that there is."""

_WAITS_FOR_STANDBY = "WaitForStandbyConfirmation"
"""Among them, since version 17: it holds changes of a slot with failover back until standbys have them."""


class ServerWatch:
    """Asks every few seconds, in a thread of its own, over a connection of its own.

    wal_end: the end of the server's WAL when it was last asked for, 0 before. A server that does not answer is the
    stream's problem to report; here the last answer stays, and on_refused is called, since a server that shuts down
    ends and refuses sessions before it ends its walsenders. on_giving_up is called as long as the server is about to
    remove WAL that the slot needs. timeline: of the server of the stream, 0 before it was seen: a standby that is
    promoted goes on to stream, on another one. other_timeline: of a primary of the same cluster to which the address
    leads now, and which is not the server of the stream; 0 for none. sent_all: whether the walsender was seen to wait
    for WAL, behind all that there was. Of a server that does not have the walsender nothing else is taken.
    """

    def __init__(self, catalog: Catalog, on_refused: Callable[[], None], on_giving_up: Callable[[], None]) -> None:
        self.wal_end = 0
        self._catalog = catalog
        self._on_refused = on_refused
        self._on_giving_up = on_giving_up
        self.timeline = self.other_timeline = 0
        self.sent_all = self._has_looked = False
        self._walsender, self._cluster, self._slot = (0, ""), "", ""
        self._at_work = self._trouble = ""
        self._holds_back = self._slot_in_danger = False
        self._looks_in_vain = 0  # one after the other, without the walsender
        self._answered_at = 0.0
        self._thread = WatchThread(self._run)

    def start(self, walsender: tuple[int, str], cluster: str, slot: str) -> None:
        """Begin to ask. May be called again. walsender: the one that the stream comes from, see describe_session.
        cluster: its system identifier. slot: what it reads from.
        """
        self._walsender, self._cluster, self._slot, self._trouble = walsender, cluster, slot, ""
        self._at_work, self._holds_back, self.timeline, self.other_timeline = "", False, 0, 0
        self.sent_all = self._has_looked = False
        self._looks_in_vain = 0
        self._thread.start()

    def stop(self) -> None:
        """End. May be called twice, and before start."""
        self._thread.stop()

    def describe_walsender_work(self) -> str:
        """What the walsender does, if it was at work when the server last answered, not long ago; else empty."""
        return self._at_work if self._is_fresh else ""

    @property
    def holds_changes_back(self) -> bool:
        """Whether the walsender waited for standbys then. It may go on to answer meanwhile."""
        return self._holds_back and self._is_fresh

    def describe_trouble(self) -> str:
        """What the source itself does not see, because it does not read or because the stream goes on; else empty."""
        return self._trouble if self._is_fresh else ""

    @property
    def _is_fresh(self) -> bool:
        return time.monotonic() - self._answered_at < _FRESH_SECONDS

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            connected = False
            try:
                with self._catalog.open_session(_SERVER_ANSWER_SECONDS) as session:
                    connected = True
                    self._ask(session, stopping)
            except SourceError:
                if not connected:
                    self._on_refused()
                stopping.wait(_RECONNECT_SECONDS if connected else _SERVER_LOOK_SECONDS)

    def _ask(self, session: Session, stopping: threading.Event) -> None:
        until = time.monotonic() + WATCH_SESSION_SECONDS
        while time.monotonic() < until and not stopping.wait(_SERVER_LOOK_SECONDS if self._has_looked else 0.0):
            self._has_looked = True
            if found := session.read_rows(_WALSENDER, *self._walsender):
                self._look_at_server(session, *found[0])
            else:
                self._look_elsewhere(session)
            self._answered_at = time.monotonic()

    def _look_at_server(self, session: Session, wait_type: str | None, wait_event: str | None) -> None:
        """At the one of the stream. The rest is what its walsender waits for."""
        self.other_timeline = self._looks_in_vain = 0
        self.wal_end = int(session.read_wal_end())
        self._at_work = _describe_work(session, wait_type, wait_event)
        self._holds_back = wait_event == _WAITS_FOR_STANDBY
        self.timeline = session.read_timeline()
        self.sent_all = self.sent_all or wait_event == _WAITS_FOR_WAL
        self._trouble = ""
        gives_slot_up = bool(session.read_rows(_GIVES_SLOT_UP, self._walsender[0]))
        if gives_slot_up:
            self._trouble = _SLOT_IN_DANGER
            self._on_giving_up()
        self._log_slot(gives_slot_up)

    def _log_slot(self, in_danger: bool) -> None:
        """Once when it begins, and once when it is over."""
        if in_danger and not self._slot_in_danger:
            log.warning('slot "%s": %s', self._slot, _SLOT_IN_DANGER)
        elif self._slot_in_danger and not in_danger:
            log.info('slot "%s" keeps less WAL than max_slot_wal_keep_size again', self._slot)
        self._slot_in_danger = in_danger

    def _look_elsewhere(self, session: Session) -> None:
        """At a server that does not have the walsender: where its WAL ends says nothing of the stream."""
        self._at_work, self._holds_back = "", False
        self.other_timeline = self._find_other_timeline(session)
        self._looks_in_vain += 1
        if self._looks_in_vain >= LOOKS_IN_VAIN:
            self._trouble = self._describe_absence(session)

    def _describe_absence(self, session: Session) -> str:
        """Of the walsender. A source that waits for its sinks does not see that the stream has ended."""
        if session.read_value(_SLOT, self._slot) == "lost":
            return (
                f'slot "{self._slot}" was invalidated, and its stream has ended: what was received is written before '
                "the source says more"
            )
        return (
            f"{STREAM_IS_NOT_THERE} (a proxy, a pooler, a name with several addresses). The next session goes where "
            "the dsn leads"
        )

    def _find_other_timeline(self, session: Session) -> int:
        """Of a primary of the same cluster, 0 for any other server."""
        if session.is_standby() or session.system_identifier != self._cluster:
            return 0
        return session.read_timeline()


def _describe_work(session: Session, wait_type: str | None, wait_event: str | None) -> str:
    """Empty for a walsender that waits for WAL or for its peer."""
    if wait_event == _WAITS_FOR_STANDBY:
        return describe_held_back(session)
    if wait_type in _IDLE_WAIT_TYPES:
        return ""
    return f"waits for {wait_event}" if wait_event else "is decoding"
