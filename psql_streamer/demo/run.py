"""The demo from start to summary."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from types import FrameType

from psql_streamer.demo.brokers import start_brokers
from psql_streamer.demo.service import ServiceProcess
from psql_streamer.demo.shop_rules import ADDED, JOINED, ShopRules
from psql_streamer.demo.stages import STAGES, Writer
from psql_streamer.demo.steady_shop import EVENTS
from psql_streamer.demo.watcher import Watcher
from psql_streamer.embedded.java import find_java

_STALL_SECONDS = 60.0
_LOOKUP_SECONDS = 10.0
"""The rule of the last row may leave it out: then no event says that the lookup has it."""


def main(duration: float, source: str) -> int:
    """Run for `duration` seconds or until Ctrl-C.

    0 when what the rules make of every committed row arrived exactly once, else 1.
    source: the type of the source, one of STAGES.
    """
    kind = STAGES[source]
    with ExitStack() as cleanup, _interrupt_on_sigterm():
        find_java()
        folder = Path(tempfile.mkdtemp(prefix="psql-streamer-demo"))
        # Servers that do not run as root must reach what is theirs in it.
        folder.chmod(0o755)
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        _say(f"psql-streamer demo: {kind.title} -> Spark -> Kafka\n")
        brokers = start_brokers(cleanup, _say)
        prefix = f"demo-{uuid.uuid4().hex[:6]}"
        stage = kind.make(cleanup, folder, brokers, _say)
        topics = [f"{prefix}.{topic}" for topic in stage.topics]
        dead_letters = f"{prefix}.dead_letters"
        brokers.create([*topics, dead_letters])
        joined = JOINED if stage.rules.lookup else {}
        watcher = Watcher(brokers.bootstrap, topics, ADDED, _say, dead_letters, joined, timed=bool(stage.time_of))
        cleanup.callback(watcher.finish)
        rules = stage.rules.config(prefix)
        service = ServiceProcess(
            folder, stage.source, brokers.bootstrap, prefix, stage.is_streaming, rules, dead_letters
        )
        cleanup.callback(service.kill)
        _start(service, [*topics, dead_letters], stage.rules)
        writer = stage.writer(lambda text: _say(f"-- {text}"))
        cleanup.callback(writer.close)
        watcher.start()
        writer.start()
        _let_run(duration, service, writer, watcher)
        writer.close()
        _say(f"\nthe shop is closed after {writer.transactions} transactions; waiting for the last events ...")
        _drain(service, writer, watcher)
        lookup_rows = _await_lookup_rows(service, writer, stage.rules.lookup)
        service.stop()
        watcher.finish()
        return _say_summary(_Outcome(writer, watcher, stage.rules, lookup_rows, stage.time_of))


def _start(service: ServiceProcess, topics: list[str], rules: ShopRules) -> None:
    began = time.monotonic()
    service.start()
    _say(f"  psql-streamer Spark local[2], started in {time.monotonic() - began:.1f} s with {service.config_file}")
    if snapshot := service.describe_snapshot():
        _say(f"                {snapshot}")
    for number, line in enumerate(rules.tells):
        _say(f"  {'' if number else 'rules':<13} {line}")
    _say(f"  topics        {' '.join(topics)}")
    _say(f"  HTTP API      {service.url}/ in a browser; /status  /stats  /metrics\n")


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
        arrived = watcher.consumed.total() + watcher.dead.total()
        if arrived >= (_count_expected_events(writer) + _count_expected_dead(writer)).total():
            return
        if arrived != seen:
            seen, since = arrived, time.monotonic()
        time.sleep(0.05)


def _await_lookup_rows(service: ServiceProcess, writer: Writer, lookup: str) -> int | None:
    """As many as its table has, or what it has when that has taken too long. None without a lookup."""
    deadline = time.monotonic() + _LOOKUP_SECONDS
    while lookup:
        rows = service.count_lookup_rows(lookup)
        if rows == _count_rows(writer, lookup) or time.monotonic() > deadline:
            return rows
        time.sleep(0.1)
    return None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """lookup_rows: how many the lookup had at the end, if the rules have one. time_of: see Stage."""

    writer: Writer
    watcher: Watcher
    rules: ShopRules
    lookup_rows: int | None
    time_of: str


def _say_summary(outcome: _Outcome) -> int:
    writer, watcher = outcome.writer, outcome.watcher
    _say_table(writer, watcher)
    if read := _count_rows_read(watcher.consumed):
        later = _sum_counts(watcher.consumed) - read
        _say(f"the snapshot gave {read:,} rows that were there; {later:,} events came beside them")
    if watcher.dead:
        _say(f"dead letters: {watcher.dead.total()}, each with the original event and the reason")
    if outcome.rules.lookup:
        _say(_describe_lookup(outcome))
    _say(_describe_latency(watcher.latencies, outcome.time_of))
    if outcome.rules.cost:
        _say(f"that is with {outcome.rules.cost}")
    problems = [problem for problem in _find_problems(outcome) if problem]
    for problem in problems:
        _say(f"problem: {problem}")
    _say("\n" + ("NOT equal" if problems else "equal: what the rules make of every committed row is in Kafka, once"))
    return 1 if problems else 0


def _say_table(writer: Writer, watcher: Watcher) -> None:
    """What was committed, what the rules are to make of it, and what came."""
    rows, expected, arrived = writer.committed, _count_expected_events(writer), watcher.consumed
    _say(f"\n{'table':<12} {'action':<7} {'committed':>10} {'expected':>10} {'consumed':>10}")
    for of in sorted(rows.keys() | arrived.keys()):
        fates = "".join(
            f"   {times} {one.fate}" for one, times in writer.fates.items() if of == (one.table, one.action)
        )
        differs = "" if expected[of] == arrived[of] else "   differs"
        _say(f"{of[0]:<12} {of[1]:<7} {rows[of]:>10} {expected[of]:>10} {arrived[of]:>10}{fates}{differs}")
    _say(f"{'total':<20} {_sum_counts(rows):>10} {_sum_counts(expected):>10} {_sum_counts(arrived):>10}\n")


def _describe_lookup(outcome: _Outcome) -> str:
    """What differs is among the problems."""
    lookup, rows = outcome.rules.lookup, outcome.lookup_rows
    with_it, without = outcome.watcher.with_lookup.total(), outcome.watcher.without_lookup.total()
    same = "" if rows == _count_rows(outcome.writer, lookup) else "not "
    found = f"{with_it:,} of {with_it + without:,}" if without else f"all {with_it:,}"
    taken = f"{found} events of {', '.join(JOINED)} have what their rule takes from it"
    return f"lookup {lookup}: {rows} rows, {same}as its table; {taken}"


def _describe_latency(latencies: Sequence[float], time_of: str) -> str:
    """Of changes."""
    if not time_of:
        return "from commit to consumer: not measured, because the server logs the time of a commit in whole seconds"
    if len(latencies) < 2:
        return f"from {time_of} to consumer: not measured, because too few changes came"
    percentiles = quantiles(latencies, n=100)
    return f"from {time_of} to consumer: p50 {percentiles[49] * 1000:.0f} ms, p99 {percentiles[98] * 1000:.0f} ms"


def _find_problems(outcome: _Outcome) -> Iterator[str]:
    writer, watcher, lookup = outcome.writer, outcome.watcher, outcome.rules.lookup
    if _count_expected_events(writer) != watcher.consumed:
        yield "what was consumed is not what the rules make of what was committed"
    if _count_expected_dead(writer) != watcher.dead:
        yield f"{watcher.dead.total()} dead letters, not {_count_expected_dead(writer).total()}"
    if _count_rows_read(writer.committed) == writer.committed.total():
        yield "nothing was committed"
    if watcher.repeated:
        yield f"{watcher.repeated} events came more than once"
    if watcher.without_lookup:
        yield f"{watcher.without_lookup.total()} events lack what they take from the lookup"
    if lookup and outcome.lookup_rows != _count_rows(writer, lookup):
        yield f"lookup {lookup} has {outcome.lookup_rows} rows, and its table {_count_rows(writer, lookup)}"
    if writer.error is not None:
        yield f"the shop stopped early: {str(writer.error).strip()}"
    yield watcher.error


def _count_expected_events(writer: Writer) -> Counter[tuple[str, str]]:
    """(table, action) -> one event for each row, but for what the rules make of it."""
    events = writer.committed.copy()
    for (table, action, fate), times in writer.fates.items():
        events[table, action] += EVENTS[fate] * times
    return events


def _count_expected_dead(writer: Writer) -> Counter[tuple[str, str]]:
    return Counter({(one.table, one.action): n for one, n in writer.fates.items() if one.fate == "dead letter"})


def _count_rows(writer: Writer, table: str) -> int:
    rows = writer.committed
    return rows[table, "read"] + rows[table, "insert"] - rows[table, "delete"]


def _count_rows_read(counts: Counter[tuple[str, str]]) -> int:
    return sum(rows for (_, action), rows in counts.items() if action == "read")


def _sum_counts(counts: Counter[tuple[str, str]]) -> int:
    return sum(counts.values())


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """`kill` and `timeout` end the demo as Ctrl-C does: with a summary, and nothing left running."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
