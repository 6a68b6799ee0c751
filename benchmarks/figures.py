"""What is measured, by name: how it is shown, what it is held against, and the medians of several runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.processes import JVM, KINDS, Used

Figures = dict[str, float]
"""Name -> value, in the order in which a line shows them; the names are SHOWN's."""

MEGABYTE = 1e6

SHOWN = {
    "rows": "{:,.0f} rows",
    "tables": "{:,.0f} tables",
    "rate": "{:,.0f} rows/s",
    "megabytes": "{:.0f} MB/s of WAL",
    "limit": "pg_recvlogical {:,.0f}",
    "plain_consumer": "a plain consumer {:,.0f}",
    "plain_binlog": "mysql-replication {:,.0f}",
    "plain_cursor": "a plain cursor {:,.0f}",
    "part": "part {:.2f}",
    "copy": "COPY {:,.0f}",
    "of_copy": "{:.2f} of COPY",
    "stale": "{:,.0f} stale",
    "oldest": "oldest transaction {:.2f} s",
    "still": "confirmed LSN still for {:.1f} s",
    "transactions": "{:,.0f} transactions/s",
    "commits": "{:,.0f} commits/s",
    "seconds": "{:.2f} s",
    "limit_seconds": "pg_recvlogical {:.2f} s",
    "p50": "p50 {:.1f} ms",
    "p99": "p99 {:.1f} ms",
    "max": "max {:.1f} ms",
    "limit_p50": "pg_recvlogical p50 {:.1f} ms",
    "limit_p99": "p99 {:.1f} ms",
    "batches": "{:,.0f} batches/s",
    "decode": "decode {:.1f} ms",
    "handle": "handle {:.1f} ms",
    "write": "write {:.1f} ms",
    "core": "{:.3f} of a core",
    "cpu": "CPU {:.1f} us/event",
    "cpu_service": "(service {:.1f}",
    "cpu_reader": "reader {:.1f}",
    "cpu_jvm": "JVM {:.1f}",
    "rss": "peak RSS {:.0f} MB",
    "rss_service": "(service {:.0f}",
    "rss_reader": "reader {:.0f}",
    "rss_jvm": "JVM {:.0f}",
    "go": "the Go psql-streamer {:,.0f}",
    "go_cpu": "CPU {:.1f} us/event",
    "go_rss": "peak RSS {:.0f} MB",
    "go_large": "with larger batches {:,.0f}",
    "go_large_cpu": "CPU {:.1f} us/event",
    "go_large_rss": "peak RSS {:.0f} MB",
}
"""Name -> its text. An opened parenthesis is closed behind the last figure of its group."""

NAMES = {
    "rate": "rows/s",
    "part": "of pg_recvlogical",
    "of_copy": "of COPY to /dev/null",
    "oldest": "s old, the oldest transaction",
    "still": "s without a move of the confirmed LSN",
    "seconds": "s",
    "p50": "ms p50",
    "p99": "ms p99",
    "core": "of a core",
    "cpu": "us CPU an event",
    "rss": "MB peak RSS without the JVM",
}
"""Figure that goals are for -> its unit."""


@dataclass(frozen=True)
class Goal:
    """A bound of a figure, or, with `of`, of its ratio to the same figure of another benchmark."""

    figure: str
    bound: float
    at_most: bool = False
    of: str = ""

    def value(self, name: str, results: Mapping[str, Figures]) -> float | None:
        """None where a benchmark that it needs gave no figures."""
        if name not in results or (self.of and self.of not in results):
            return None
        return results[name][self.figure] / (results[self.of][self.figure] if self.of else 1.0)

    def is_reached(self, value: float) -> bool:
        """As exact as the value is: what is shown is rounded."""
        return value <= self.bound if self.at_most else value >= self.bound

    def text(self) -> str:
        """`goal >= 0.8 of tables-1's rows/s`."""
        what = f"of {self.of}'s {NAMES[self.figure]}" if self.of else NAMES[self.figure]
        return f"goal {'<=' if self.at_most else '>='} {self.bound:g} {what}"


def at_least(bound: float, figure: str, of: str = "") -> Goal:
    """A goal."""
    return Goal(figure, bound, of=of)


def at_most(bound: float, figure: str) -> Goal:
    """A goal."""
    return Goal(figure, bound, at_most=True)


def cpu_figures(seconds: Mapping[str, float], events: int) -> Figures:
    """Microseconds an event: of all processes, then of each kind."""
    each = {kind: seconds[kind] / events * 1e6 for kind in KINDS if kind in seconds}
    return {"cpu": sum(each.values()), **{f"cpu_{kind}": used for kind, used in each.items()}}


def memory_figures(used: Used) -> Figures:
    """Peaks in megabytes: the sum of those of all processes but the JVM, then of each kind."""
    each = {kind: used.peak_rss[kind] / MEGABYTE for kind in KINDS if kind in used.peak_rss}
    ours = sum(peak for kind, peak in each.items() if kind != JVM)
    return {"rss": ours, **{f"rss_{kind}": peak for kind, peak in each.items()}}


def percentiles(latencies: Sequence[float], **parts: float) -> Figures:
    """Milliseconds below which each part of the latencies (in seconds) is."""
    ordered = sorted(latencies)
    return {name: ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1000 for name, part in parts.items()}


def medians(runs: Sequence[Figures]) -> Figures:
    """Of each figure; `part` is the ratio of the medians."""
    middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    if "part" in middle:
        middle["part"] = middle["rate"] / middle["limit"]
    return middle


def shown(figures: Figures) -> str:
    """On one line."""
    texts = [SHOWN[name].format(value) for name, value in figures.items()]
    line = "  ".join(f"{text})" if _ends_group(texts, at) else text for at, text in enumerate(texts))
    return line.replace("  reader", ", reader").replace("  JVM", ", JVM").replace("  (", " (")


def _ends_group(texts: Sequence[str], at: int) -> bool:
    inside = ("(", "reader", "JVM")
    return texts[at].startswith(inside) and (at + 1 == len(texts) or not texts[at + 1].startswith(inside[1:]))
