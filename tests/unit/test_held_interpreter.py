"""A process whose interpreter is held by a library ends, and says where."""

from __future__ import annotations

import subprocess
import sys

_HELD = "ctypes.PyDLL(None).sleep(60)"
_BUSY = "time.sleep(2)"
"""Four times as long as nothing may run, but others could."""


def _run(what: str) -> subprocess.CompletedProcess[str]:
    program = f"""
import ctypes, time
from psql_streamer.held_interpreter import end_if_held
def the_call_that_holds():
    {what}
with end_if_held(0.5):
    the_call_that_holds()
time.sleep(1)  # twice as long as nothing may run: a watchdog that is still there would end it
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)


def test_a_process_that_no_thread_runs_in_ends_and_says_where_it_was() -> None:
    ended = _run(_HELD)
    assert ended.returncode == 1
    assert "the_call_that_holds" in ended.stderr


def test_a_call_that_lets_others_run_may_take_its_time_and_nothing_ends_behind_it() -> None:
    ended = _run(_BUSY)
    assert (ended.returncode, ended.stderr) == (0, "")
