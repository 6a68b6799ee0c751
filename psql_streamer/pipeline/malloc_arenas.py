"""How much freed memory threads keep for themselves."""

from __future__ import annotations

import ctypes
import os

_M_ARENA_MAX = -8
"""mallopt's parameter (glibc, malloc.h)."""

_ARENAS = 1


def share_arenas() -> None:
    """Let all threads share one arena of glibc's malloc, unless MALLOC_ARENA_MAX says otherwise.

    glibc makes up to eight for each core, and each keeps what was freed in it. Clients of librdkafka have several
    threads each, which allocate a buffer for every request. Of small pieces each thread has a cache of its own, so that
    threads seldom wait for each other here. To be called before threads are started.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc's
    if set_option is not None and "MALLOC_ARENA_MAX" not in os.environ:
        set_option(_M_ARENA_MAX, _ARENAS)
