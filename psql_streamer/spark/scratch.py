"""A folder for the files of Spark's JVM. Who was killed cannot remove its own: the next one does."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path

from psql_streamer.errors import HandlerUnavailable

_PREFIX = "psql-streamer-spark-"
_LOCK = "lock"


class Scratch:
    """Made with the object, gone with `remove`. While the process lives it holds a lock on a file in it.

    HandlerUnavailable when it cannot be made.
    """

    def __init__(self) -> None:
        _remove_leftovers()
        try:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            made = self.path / "made"
            self._lock = made.open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            # Under its name it is never seen without its lock.
            made.rename(self.path / _LOCK)
        except OSError as error:
            raise explain_unmade(error) from None

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def explain_unmade(error: OSError) -> HandlerUnavailable:
    """Of a file that Spark needs when it starts."""
    return HandlerUnavailable(
        f"Spark cannot be started: its files cannot be made in {tempfile.gettempdir()}: {error.strerror}",
        "make the folder, or room in it, or start the service again with another one for temporary files (TMPDIR)",
    )


def _remove_leftovers() -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            with lock.open("r+") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:
            continue  # somebody's who lives, or not ours to open
