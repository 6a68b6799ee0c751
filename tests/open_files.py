"""More open files than select(2) takes."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

_FD_SETSIZE = 1024


@contextmanager
def more_open_files_than_select_takes() -> Iterator[None]:
    """What is opened meanwhile has a descriptor that select(2) refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4 * _FD_SETSIZE:
        pytest.skip("the limit of open files cannot be raised")
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4 * _FD_SETSIZE, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(_FD_SETSIZE):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield
