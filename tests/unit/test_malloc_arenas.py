"""Threads share an arena of malloc, whatever their number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ALLOCATE = """
import ctypes, sys, threading
from psql_streamer.pipeline.malloc_arenas import share_arenas

share_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
meet = threading.Barrier(12)

def allocate():
    meet.wait()
    libc.malloc(1000)
    meet.wait()

threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
@pytest.mark.parametrize(("setting", "arenas"), [({}, range(1, 2)), ({"MALLOC_ARENA_MAX": "6"}, range(3, 7))])
def test_threads_share_one_arena_unless_the_environment_says_otherwise(
    tmp_path: Path, setting: dict[str, str], arenas: range
) -> None:
    subprocess.run([sys.executable, "-c", ALLOCATE, str(tmp_path / "info.xml")], env=setting, check=True)
    assert (tmp_path / "info.xml").read_text().count("<heap nr=") in arenas
