"""A process that does nothing any more, and has not ended."""

from __future__ import annotations

import os
import signal

import psutil

from tests.source_at_work import wait_for


def freeze(pid: int) -> None:
    """Stop all threads of a process. The signal alone may leave one of them the time for another step."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(
        lambda: all(psutil.Process(one.id).status() == psutil.STATUS_STOPPED for one in psutil.Process(pid).threads()),
        f"the threads of process {pid} to stop",
    )
