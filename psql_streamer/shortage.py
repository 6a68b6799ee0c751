"""What the machine, or a limit that somebody set, does not give: as whoever operates the service can understand it."""

from __future__ import annotations

import errno
import traceback

from psql_streamer.errors import StreamerError

_FILES = "no more files can be opened", "raise the limit: ulimit -n, or LimitNOFILE of systemd"
_TASKS = (
    "no more threads and processes can be started",
    "raise the limit: ulimit -u, TasksMax of systemd, or pids of cgroups",
)
_MEMORY = "no more memory is given", "raise the limit: ulimit -v, or the memory of the container or machine"
_DISK = "no space is left on a disk", "make room, also in the folder for temporary files (TMPDIR)"

_BY_NUMBER = {
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOMEM: _MEMORY,
    errno.ENOSPC: _DISK,
    errno.EDQUOT: _DISK,
}

_STARTERS = ("subprocess", "multiprocessing")

_NO_THREAD = ("can't start new thread", "unable to start watchdog thread")
"""What Python says, which has no class for it."""


def explain_shortage(error: BaseException) -> StreamerError | None:
    """None for any other error."""
    if isinstance(error, MemoryError):
        return StreamerError(*_MEMORY)
    if isinstance(error, RuntimeError) and str(error) in _NO_THREAD:
        return StreamerError(*_TASKS)
    if isinstance(error, BlockingIOError) and _was_starting(error):
        return StreamerError(*_TASKS)
    known = _BY_NUMBER.get(error.errno or 0) if isinstance(error, OSError) else None
    return StreamerError(*known) if known else None


def _was_starting(error: BaseException) -> bool:
    """Whether it comes from the start of a process. EAGAIN is also said of descriptors, locks and locked memory."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(module.partition(".")[0] in _STARTERS for module in modules)
