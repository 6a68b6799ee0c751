"""A folder for the files of Spark's JVM. Who was killed cannot remove its own: the next one does."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from psql_streamer.errors import HandlerUnavailable

_PREFIX = "psql-streamer-spark-"
_UNLOCKED = "psql-streamer-new-"


class Scratch:
    """Made with the object, gone with `remove`. HandlerUnavailable when it cannot be made.

    While the process lives it holds a BSD lock on the folder: systemd-tmpfiles, which removes what nobody used for ten
    days, leaves a locked folder and all that is in it (tmpfiles.d(5), "Age").
    """

    def __init__(self) -> None:
        _remove_leftovers()
        try:
            new = Path(tempfile.mkdtemp(prefix=_UNLOCKED))
            self._lock: int | None = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            # Under its name it is never seen without its lock.
            self.path = new.rename(new.with_name(_PREFIX + new.name.removeprefix(_UNLOCKED)))
        except OSError as error:
            raise explain_unmade(error) from None

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def explain_unmade(error: OSError) -> HandlerUnavailable:
    """Of a file that Spark needs when it starts."""
    return HandlerUnavailable(
        f"Spark cannot be started: its files cannot be made in {tempfile.gettempdir()}: {error.strerror}",
        "make the folder, or room in it, or start the service again with another one for temporary files (TMPDIR)",
    )


def _remove_leftovers() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody's who lives, or not ours to open
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
