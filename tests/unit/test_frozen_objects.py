"""Garbage collections do not go through what stays for as long as the process runs."""

from __future__ import annotations

import subprocess
import sys

COUNT = """
import gc
from psql_streamer.pipeline.frozen_objects import freeze_objects
from psql_streamer.pipeline import pipeline

cycle = []
cycle.append(cycle)
del cycle
was = len(gc.get_objects())
freeze_objects()
print(was, gc.get_freeze_count(), len(gc.get_objects()), gc.collect())
"""


def test_what_was_there_is_not_looked_at_and_was_cleared_of_garbage_before() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    was, frozen, left, garbage = map(int, done.stdout.split())
    assert frozen > 0.9 * was > 10_000
    assert left < 0.01 * was
    assert garbage == 0
