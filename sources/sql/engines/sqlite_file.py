"""Which file a name leads to: what tells it from another file that was made under the same name."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import weakref
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

_AT_EMPTY_PATH = 0x1000

_STATX_BTIME = 0x800

_STATX_BYTES, _MASK, _BIRTH = 256, struct.Struct("=I"), struct.Struct("=qI")

_BIRTH_AT = 80
"""Offset of stx_btime (Linux source, include/uapi/linux/stat.h)."""


class HeldFile:
    """A file under a name. While it is held, no other file gets its inode, also when it is removed.

    The descriptor is the file's place alone, where the system has such. To close one that could read would end the
    locks that SQLite has on the file in this process (SQLite documentation, "How To Corrupt An SQLite Database File").
    """

    def __init__(self, path: Path) -> None:
        self.identity: Mapping[str, str]
        if sys.platform == "linux":
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            self._close = weakref.finalize(self, os.close, place)
            self.identity = _make_identity(os.fstat(place), _read_birth(place))
        else:
            found = path.stat()
            self.identity = _make_identity(
                found, _render_time(*divmod(int(getattr(found, "st_birthtime", 0) * 10**9), 10**9))
            )

    def close(self) -> None:
        """Hold it no longer."""
        if sys.platform == "linux":
            self._close()


def read_file_identity(path: Path) -> Mapping[str, str]:
    """What the file under a name is told by. OSError when there is none."""
    file = HeldFile(path)
    file.close()
    return file.identity


def _make_identity(found: os.stat_result, birth: str) -> Mapping[str, str]:
    """An inode that is free is given to the next file. The time of birth is that of one file, whatever is done to it;
    not every file system keeps it.
    """
    inode = {"inode": str(found.st_ino)}
    return {**inode, "created": birth} if birth else inode


def _read_birth(place: int) -> str:
    """When a file was made; empty where the system does not say. `os` has no word for it on Linux."""
    found = ctypes.create_string_buffer(_STATX_BYTES)
    try:
        failed = ctypes.CDLL(None).statx(place, b"", _AT_EMPTY_PATH, _STATX_BTIME, found)
    except AttributeError:
        return ""  # a C library without statx
    known = not failed and _MASK.unpack_from(found)[0] & _STATX_BTIME
    return _render_time(*_BIRTH.unpack_from(found, _BIRTH_AT)) if known else ""


def _render_time(seconds: int, nanoseconds: int) -> str:
    if not seconds:
        return ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"
