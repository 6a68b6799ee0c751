"""Reading files that somebody named, and that may be a pipe without a writer, or a device without an end."""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path

_WAIT_SECONDS = 30.0
"""The time in which a pipe must begin to give something, as that of `-config <(...)` does."""


def read_small_file(path: Path, most: int, wait: float = _WAIT_SECONDS) -> bytes:
    """All of it. OSError, with a reason, also when it has more than `most` bytes, or nobody writes to it in time."""
    # Without O_NONBLOCK the opening of a pipe waits for a writer, and nothing ends that.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        content = bytearray()
        while piece := _read_piece(file.fileno(), most + 1 - len(content), wait):
            content += piece
            if len(content) > most:
                raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
        return bytes(content)


def _read_piece(descriptor: int, size: int, wait: float) -> bytes:
    # A pipe that no writer has opened yet reads as one that has ended. poll() tells them apart; epoll takes no files.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(wait * 1000):
        raise OSError(errno.ETIMEDOUT, f"nobody has written to it for {wait:g} s")
    return os.read(descriptor, size)
