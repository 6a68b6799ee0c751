"""Makes a thread that waits in select look around, from any thread."""

from __future__ import annotations

import contextlib
import socket
import threading


class Waker:
    """Something to select on, between `open` and `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pair: tuple[socket.socket, socket.socket] | None = None
        self._is_awake = False

    def open(self) -> None:
        """Be ready. May be called twice."""
        with self._lock:
            if self._pair is None:
                self._pair = socket.socketpair()
                for end in self._pair:
                    end.setblocking(False)

    def close(self) -> None:
        """May be called twice, and before open."""
        with self._lock:
            pair, self._pair = self._pair, None
            for end in pair or ():
                end.close()

    def fileno(self) -> int:
        """Readable since `wake`, until `rest`."""
        assert self._pair is not None  # noqa: S101 - it is open
        return self._pair[0].fileno()

    def wake(self) -> None:
        """End a select. Nothing while it is closed."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full: it is awake
            self._is_awake = True
            if self._pair is not None:
                self._pair[1].send(b"\0")

    def rest(self) -> None:
        """Let the next select wait."""
        if not self._is_awake:  # as it is before most batches of a stream
            return
        with self._lock, contextlib.suppress(BlockingIOError):
            self._is_awake = False
            if self._pair is not None:
                self._pair[0].recv(4096)
