"""A program that is measured: its process, what it writes, and the rate at which it fills topics."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from benchmarks.failures import BenchmarkFailed
from benchmarks.figures import Figures, cpu_figures, memory_figures
from benchmarks.processes import Used, used_by
from benchmarks.topics import Topics

_STOP_SECONDS = 60.0


class Program:
    """Runs from its making until the end of the block. name: for messages. log: the file for what it writes. folder: in
    which it runs; None for that of this process.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, folder: Path | None = None) -> None:
        self._name = name
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=file, cwd=folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def used(self) -> Used:
        """By all its processes so far."""
        return used_by(self._process.pid)

    def require_running(self) -> None:
        """BenchmarkFailed with the end of its log when it has ended."""
        if self._process.poll() is not None:
            raise BenchmarkFailed(f"{self._name} ended with {self._process.returncode}: {self._said()}")

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-2000:].strip() or "it said nothing"


def measure_delivery(program: Program, topics: Topics, there: int, rows: int) -> Figures:
    """Rate, CPU time and memory of a program that fills topics until they have so many records.

    The clock begins when there are more records than were `there`: what the program does to start does not count.
    """
    count = topics.wait_for_more(there, program.require_running)
    began, before = time.time(), program.used()
    if count == rows:
        raise BenchmarkFailed(f"all of {rows:,} rows came between two looks: take more")
    ended = topics.wait_for(rows, program.require_running)
    used = program.used()
    cpu = cpu_figures(used.cpu_since(before), rows - count)
    return {"rate": (rows - count) / (ended - began), **cpu, **memory_figures(used)}
