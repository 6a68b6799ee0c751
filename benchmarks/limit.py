"""The machine's limit: pg_recvlogical over the Unix socket, which is faster for it than TCP.

It has the options that the service streams with.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.backlog import Backlog
from benchmarks.failures import BenchmarkFailed
from benchmarks.service import Slot


def drain(binaries: Path, backlogs: Sequence[Backlog], slots: Sequence[Slot], options: Mapping[str, str]) -> float:
    """Seconds that it takes to write the backlogs, all at once, to /dev/null."""
    began = time.monotonic()
    running = [
        subprocess.Popen([*_command(binaries, slot, options), "--file", "/dev/null", "--endpos", backlog.end_lsn])
        for backlog, slot in zip(backlogs, slots, strict=True)
    ]
    if any(codes := [process.wait() for process in running]):
        raise BenchmarkFailed(f"pg_recvlogical ended with {codes}")
    return time.monotonic() - began


@contextmanager
def streaming(binaries: Path, slot: Slot, options: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A running one that writes each message to its stdout as soon as it has it."""
    command = [*_command(binaries, slot, options), "--file", "-", "--fsync-interval", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def _command(binaries: Path, slot: Slot, options: Mapping[str, str]) -> list[str]:
    given = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    command = [str(binaries / "pg_recvlogical"), "--start", "--no-loop", "--slot", slot.name, "--dbname", slot.dsn]
    return [*command, *given]
