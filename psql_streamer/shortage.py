"""What the machine, or a limit that somebody set, does not give: as whoever operates the service can understand it."""

from __future__ import annotations

import errno
import resource
import traceback

from psql_streamer.errors import StreamerError

_FILES = "no more files can be opened", "raise the limit: ulimit -n, or LimitNOFILE of systemd"
_TASKS = "no more threads and processes can be started"
_TASK_LIMITS = "raise the limit: ulimit -u, TasksMax of systemd, or pids of cgroups"
_STACKS = "ulimit -v, because each takes address space for its stack; or "
_MEMORY = "no more memory is given", "raise the limit: ulimit -v, or the memory of the container or machine"
_FILE_SIZE = "a file may not grow any more", "raise the limit: ulimit -f, or LimitFSIZE of systemd"
_DISK = "no space is left on a disk", "make room, also in the folder for temporary files (TMPDIR)"

_BY_NUMBER = {
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOMEM: _MEMORY,
    errno.EFBIG: _FILE_SIZE,
    errno.ENOSPC: _DISK,
    errno.EDQUOT: _DISK,
}

_BY_TEXT = {"too many open files": _FILES, "cannot allocate memory": _MEMORY, "file too large": _FILE_SIZE}
"""By what the system says of a number, in lower case."""

_STARTERS = ("subprocess", "multiprocessing")

_NO_THREAD = ("can't start new thread", "unable to start watchdog thread")
"""What Python says, which has no class for it."""

_OF_LIBRDKAFKA = "Failed to create thread: "

_NOT_MAPPED = ("failed to map segment from shared object", "Cannot allocate memory")
"""What the loader says of a library for which there is no address space. Others (noexec) stand behind the first."""


def explain_shortage(error: BaseException) -> StreamerError | None:
    """None for any other error."""
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and str(error).endswith(_NOT_MAPPED)):
        return StreamerError(*_MEMORY)
    if isinstance(error, RuntimeError) and str(error) in _NO_THREAD:
        return StreamerError(_TASKS, _find_task_limits())
    if (isinstance(error, BlockingIOError) and _was_starting(error)) or _OF_LIBRDKAFKA in str(error):
        return StreamerError(_TASKS, _find_task_limits())
    known = _BY_NUMBER.get(error.errno or 0) if isinstance(error, OSError) else None
    return StreamerError(*known) if known else None


def find_limit(said: str) -> str:
    """What to do about a limit of which a library says what the system says; empty where that tells of none."""
    heard = said.lower()
    return next((remedy for text, (_, remedy) in _BY_TEXT.items() if text in heard), "")


def _find_task_limits() -> str:
    """Which limits there may be. The system says the same of all."""
    has_limit = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    return _TASK_LIMITS.replace("ulimit -u", f"{_STACKS}ulimit -u") if has_limit else _TASK_LIMITS


def _was_starting(error: BaseException) -> bool:
    """Whether it comes from the start of a process. EAGAIN is also said of descriptors, locks and locked memory."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(module.partition(".")[0] in _STARTERS for module in modules)
