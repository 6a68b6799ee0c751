"""The demo from start to summary."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles
from types import FrameType

from psql_streamer.demo.brokers import start_brokers
from psql_streamer.demo.service import ENRICHED, ServiceProcess
from psql_streamer.demo.stages import STAGES, Writer
from psql_streamer.demo.watcher import Watcher
from psql_streamer.embedded.java import find_java

_STALL_SECONDS = 30.0


def main(duration: float, source: str) -> int:
    """Run for `duration` seconds or until Ctrl-C; 0 when every committed row arrived exactly once, else 1.

    source: the type of the source, one of STAGES.
    """
    kind = STAGES[source]
    with ExitStack() as cleanup, _sigterm_as_interrupt():
        find_java()
        folder = Path(tempfile.mkdtemp(prefix="psql-streamer-demo"))
        # Servers that do not run as root must reach what is theirs in it.
        folder.chmod(0o755)
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        _say(f"psql-streamer demo: {kind.title} -> Spark -> Kafka\n")
        brokers = start_brokers(cleanup, _say)
        prefix = f"demo-{uuid.uuid4().hex[:6]}"
        stage = kind.make(cleanup, folder, brokers, _say)
        topics = [f"{prefix}.{stage.schema}.{table}" for table in stage.tables]
        brokers.create(topics)
        watcher = Watcher(brokers.bootstrap, topics, ENRICHED, _say)
        cleanup.callback(watcher.finish)
        service = ServiceProcess(folder, stage.source, brokers.bootstrap, prefix, stage.is_streaming, stage.schema)
        cleanup.callback(service.kill)
        _start(service, topics)
        writer = stage.writer(lambda text: _say(f"-- {text}"))
        cleanup.callback(writer.close)
        watcher.start()
        writer.start()
        _let_run(duration, service, writer, watcher)
        writer.close()
        _say(f"\nthe shop is closed after {writer.transactions} transactions; waiting for the last events ...")
        _drain(service, writer, watcher)
        service.stop()
        watcher.finish()
        return _summary(writer, watcher)


def _start(service: ServiceProcess, topics: list[str]) -> None:
    began = time.monotonic()
    service.start()
    _say(f"  psql-streamer Spark local[2], started in {time.monotonic() - began:.1f} s with {service.config_file}")
    if snapshot := service.describe_snapshot():
        _say(f"                {snapshot}")
    _say(f"  topics        {' '.join(topics)}")
    _say(f"  HTTP API      {service.url}/status  {service.url}/stats  {service.url}/metrics\n")


def _let_run(duration: float, service: ServiceProcess, writer: Writer, watcher: Watcher) -> None:
    """Until time is up, Ctrl-C, or one of the parts ends."""
    until = time.monotonic() + duration
    try:
        while time.monotonic() < until and writer.is_alive() and watcher.is_alive():
            service.require_running()
            time.sleep(min(0.2, max(0.0, until - time.monotonic())))
    except KeyboardInterrupt:
        _say("\ninterrupted: finishing (once more to leave at once)")


def _drain(service: ServiceProcess, writer: Writer, watcher: Watcher) -> None:
    """Wait until as much has arrived as was committed, or until nothing arrives any more."""
    seen, since = -1, time.monotonic()
    while watcher.is_alive() and time.monotonic() - since < _STALL_SECONDS:
        service.require_running()
        arrived = sum(watcher.consumed.values())
        if arrived >= sum(writer.committed.values()):
            return
        if arrived != seen:
            seen, since = arrived, time.monotonic()
        time.sleep(0.05)


def _summary(writer: Writer, watcher: Watcher) -> int:
    committed, consumed = writer.committed, watcher.consumed
    _say(f"\n{'table':<12} {'action':<7} {'committed':>10} {'consumed':>10}")
    for table, action in sorted(committed.keys() | consumed.keys()):
        rows, events = committed[table, action], consumed[table, action]
        _say(f"{table:<12} {action:<7} {rows:>10} {events:>10}{'' if rows == events else '   differs'}")
    _say(f"{'total':<20} {_total(committed):>10} {_total(consumed):>10}")
    if read := _rows_read(consumed):
        _say(f"\nthe snapshot gave {read:,} rows that were there; {_total(consumed) - read:,} changes came beside them")
    if len(watcher.latencies) > 1:
        percentiles = quantiles(watcher.latencies, n=100)
        _say(f"\nfrom commit to consumer: p50 {percentiles[49] * 1000:.0f} ms, p99 {percentiles[98] * 1000:.0f} ms")
    problems = [problem for problem in _problems(writer, watcher) if problem]
    for problem in problems:
        _say(f"problem: {problem}")
    _say("\n" + ("NOT equal" if problems else "equal: every committed row is one event, in Kafka, once"))
    return 1 if problems else 0


def _problems(writer: Writer, watcher: Watcher) -> Iterator[str]:
    if writer.committed != watcher.consumed:
        yield "what was committed is not what was consumed"
    if _rows_read(writer.committed) == writer.committed.total():
        yield "nothing was committed"
    if watcher.repeated:
        yield f"{watcher.repeated} events came more than once"
    if writer.error is not None:
        yield f"the shop stopped early: {str(writer.error).strip()}"
    yield watcher.error


def _rows_read(counts: Counter[tuple[str, str]]) -> int:
    return sum(rows for (_, action), rows in counts.items() if action == "read")


def _total(counts: Counter[tuple[str, str]]) -> int:
    return sum(counts.values())


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """`kill` and `timeout` end the demo as Ctrl-C does: with a summary, and nothing left running."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
