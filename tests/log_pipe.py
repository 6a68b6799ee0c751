"""A pipe that a process logs to: read, and from some moment on full and read by nobody."""

from __future__ import annotations

import os
import select
import threading
from types import TracebackType
from typing import Self


class LogPipe:
    """writer: the descriptor for the process's stderr."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        self._read = b""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self.read()

    def text(self) -> str:
        """What was read so far."""
        return self._read.decode(errors="replace")

    def read(self) -> None:
        """Read what comes."""
        self._ending.clear()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def fill(self) -> None:
        """Read no more, and leave no room."""
        self._end()
        # Opened anew: the process's own end has to stay one that blocks.
        writer = os.open(f"/proc/self/fd/{self.writer}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            for size in (4096, 1):
                self._fill_by(writer, size)
        finally:
            os.close(writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()
        os.close(self._reader)
        os.close(self.writer)

    def _follow(self) -> None:
        while not self._ending.is_set():
            if select.select([self._reader], [], [], 0.05)[0]:
                self._read += os.read(self._reader, 65536)

    def _end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _fill_by(self, writer: int, size: int) -> None:
        try:
            while True:
                os.write(writer, b"\n" * size)
        except BlockingIOError:
            return
