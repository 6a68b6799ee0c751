"""Follow a snapshot to its end: bars that move in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TextIO

from psql_streamer.commands.service_client import RequestRefused, ServiceAway
from psql_streamer.commands.snapshot_text import Snapshot, show_bars, summarize_snapshot

_LINE_SECONDS = 10.0
"""Between two lines that say the same but for figures."""

_PROGRESS_LOOK_SECONDS = 0.5

PATIENCE_SECONDS = 120.0
"""How long a service may be away: a restart does not end a snapshot."""


class _Bars:
    """Lines that are written over one another. Control sequences: ECMA-48, CUU, EL and ED."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._written = 0

    def show(self, snapshot: Snapshot) -> None:
        size = shutil.get_terminal_size()
        lines = show_bars(snapshot, size.columns, size.lines)
        up = f"\x1b[{self._written}A" if self._written else ""
        self._out.write(up + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        self._out.flush()
        self._written = len(lines)

    def say(self, line: str) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()
        self._written = 0


class _Lines:
    """A line when something has happened, and after a while."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last: tuple[object, ...] = ()
        self._next = 0.0

    def show(self, snapshot: Snapshot) -> None:
        progress = snapshot.progress
        happened = (progress.state, snapshot.wanted, progress.reason, *(table.state for table in progress.tables))
        if happened == self._last and time.monotonic() < self._next:
            return
        self._last, self._next = happened, time.monotonic() + _LINE_SECONDS
        self.say(summarize_snapshot(snapshot))

    def say(self, line: str) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()


def follow(read: Callable[[], Snapshot], out: TextIO) -> Snapshot:
    """Show it until it has ended; as it is then. read: asks the service."""
    view = _Bars(out) if out.isatty() else _Lines(out)
    while True:
        snapshot = _read_patiently(read, view)
        view.show(snapshot)
        if snapshot.progress.state.ended:
            return snapshot
        time.sleep(_PROGRESS_LOOK_SECONDS)


def _read_patiently(read: Callable[[], Snapshot], view: _Bars | _Lines) -> Snapshot:
    give_up_at, told = time.monotonic() + PATIENCE_SECONDS, False
    while True:
        try:
            return read()
        except (ServiceAway, RequestRefused) as error:
            passes = isinstance(error, ServiceAway) or error.code == HTTPStatus.SERVICE_UNAVAILABLE
            if not passes or time.monotonic() > give_up_at:
                raise
            if not told:
                view.say(f"{error.what}: waiting")
                told = True
        time.sleep(_PROGRESS_LOOK_SECONDS)
