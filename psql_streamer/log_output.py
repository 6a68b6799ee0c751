"""Lines for stderr, that a stop does not wait for: a pipe that nobody reads is full some day, and a write then blocks.

While the service works it waits, so that no message is lost behind a reader that is slow. While it stops, what cannot
be written is left out.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import threading
import time
from typing import TextIO

_READER_SECONDS = 0.25
"""The time that all lines together may wait for their reader once the service stops."""

_LOOK_MS = 50
"""Milliseconds between two looks whether the service stops."""

_leaving = threading.Event()


def wait_no_longer() -> None:
    """The service stops: whoever waits for the log goes on. For the whole process, and not to be taken back."""
    _leaving.set()


class LogOutput(logging.StreamHandler[TextIO]):
    """Writes to a stream as StreamHandler does, and waits for its reader before, not within, a write."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._descriptor = _find_descriptor(stream)
        self._give_up_at: float | None = None
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or leave it out. The handler's lock is held."""
        if self._descriptor is None:
            super().emit(record)
            return
        try:
            self._write_behind_those_left_out(self._descriptor, f"{self.format(record)}{self.terminator}")
        except Exception:  # as every handler does: a program does not fail of its log
            if not _leaving.is_set():
                self.handleError(record)

    def say(self, line: str) -> None:
        """Write a line as it is, or leave it out: its reader may have gone."""
        with self.lock or contextlib.nullcontext(), contextlib.suppress(OSError):
            if self._descriptor is None:
                self.stream.write(f"{line}\n")
            else:
                self._write_behind_those_left_out(self._descriptor, f"{line}\n")

    def _write_behind_those_left_out(self, descriptor: int, text: str) -> None:
        if self._left_out and self._write(
            descriptor, f"{self.format(_make_left_out_record(self._left_out))}{self.terminator}"
        ):
            self._left_out = 0
        if not self._write(descriptor, text):
            self._left_out += 1

    def _write(self, descriptor: int, text: str) -> bool:
        """Write in pieces: a pipe that is ready takes PIPE_BUF bytes (poll(2), pipe(7)), and more could block."""
        rest = memoryview(text.encode("utf-8", "backslashreplace"))
        while rest and self._wait_for_room(descriptor):
            rest = rest[os.write(descriptor, rest[: select.PIPE_BUF]) :]
        return not rest

    def _wait_for_room(self, descriptor: int) -> bool:
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        while not poll.poll(0 if self._has_given_up() else _LOOK_MS):
            if self._has_given_up():
                return False
        return True

    def _has_given_up(self) -> bool:
        if not _leaving.is_set():
            return False
        if self._give_up_at is None:
            self._give_up_at = time.monotonic() + _READER_SECONDS
        return time.monotonic() > self._give_up_at


def _make_left_out_record(left_out: int) -> logging.LogRecord:
    text = f"{left_out} messages were left out: nobody read them"
    entry = {"name": "psql_streamer.pipeline", "levelno": logging.WARNING, "levelname": "WARNING", "msg": text}
    return logging.makeLogRecord(entry)


def _find_descriptor(stream: TextIO) -> int | None:
    """The stream's descriptor; None for one that is in memory."""
    try:
        return stream.fileno()
    except (AttributeError, OSError, io.UnsupportedOperation):
        return None
