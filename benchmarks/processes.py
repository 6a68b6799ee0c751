"""What the processes of a service take: CPU time and memory, from /proc."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

KINDS = SERVICE, READER, JVM = "service", "reader", "jvm"


@dataclass(frozen=True)
class Used:
    """By kind of process. cpu: seconds since the process began. peak_rss: bytes, summed where there are several."""

    cpu: dict[str, float] = field(default_factory=dict)
    peak_rss: dict[str, int] = field(default_factory=dict)

    def cpu_since(self, earlier: Used) -> dict[str, float]:
        """Seconds between two looks."""
        return {kind: seconds - earlier.cpu.get(kind, 0.0) for kind, seconds in self.cpu.items()}


def used_by(pid: int) -> Used:
    """By a service and its descendants: the service itself, its readers, and Spark's JVM with what that has started."""
    used = Used()
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            kind = SERVICE if process == root else _kind(process.cmdline())
            times = process.cpu_times()
            used.cpu[kind] = used.cpu.get(kind, 0.0) + times.user + times.system
            used.peak_rss[kind] = used.peak_rss.get(kind, 0) + _peak_resident(process.pid)
    return used


def _kind(command: list[str]) -> str:
    program = Path(command[0]).name if command else ""
    return JVM if program in ("java", "bash") or any("pyspark" in word for word in command) else READER


def _peak_resident(pid: int) -> int:
    """VmHWM of proc(5), which psutil does not have on Linux."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
