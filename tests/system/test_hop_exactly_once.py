"""Topics -> topics of the same cluster, exactly once: whatever is killed or stands still, each event is there once."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Producer

from psql_streamer.embedded.kafka import EmbeddedKafka
from tests.event_topics import committed, event, write, write_in_transactions
from tests.fold import parse
from tests.kafka_reader import Record, consume
from tests.kafka_sinks import create_topic
from tests.sections import kafka_section, topics_section
from tests.service import Service

_PARTITIONS = 4
_PAUSE = 0.05
_AT_ONCE = 40
_QUICK = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
"""Six seconds are the least that brokers take (group.min.session.timeout.ms)."""


class _Writer:
    """Writes events to a topic until it is stopped."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.written = 0
        self._kafka, self._topic = kafka, topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE):
            numbers = range(self.written + 1, self.written + 1 + _AT_ONCE)
            write(self._kafka, self._topic, [event(number) for number in numbers])
            self.written += _AT_ONCE


def _config(kafka: str, topic: str, instance: str, member: str = "", target: str = "") -> str:
    """A service that copies the topic. member: its instanceId, if it has one. target: another cluster to copy it to."""
    static = {"instanceId": member} if member else {}
    source = topics_section(kafka, [topic], topic, startRetryInterval="100ms", sendRetryInterval="100ms", **static)
    source += "".join(f'kafka."{name}" = {value}\n' for name, value in _QUICK.items())
    once = {"exactlyOnce": True, "transactionalId": f"{topic}-{instance}"}
    sink = kafka_section(target or kafka, f"{topic}-copy", sources=["hop"], format="event", **once)
    # Brokers end after 10 s what an instance has left open that stands still between two requests of a commit.
    return f'{source}{sink}kafka."transaction.timeout.ms" = 10000\n'


@contextmanager
def _service(folder: Path, config: str) -> Iterator[Service]:
    folder.mkdir()
    with Service(folder, config) as service:
        yield service


def _numbers(records: list[Record]) -> Counter[int]:
    return Counter(parse(record)["CommitLSN"] for record in records)


def _assert_each_is_there_once(kafka: str, topic: str, count: int) -> None:
    """A reader of what is committed sees each event once, and those of a key in their order."""

    def is_complete(records: list[Record]) -> bool:
        return len(_numbers(records)) == count

    target = [f"{topic}-copy.public.orders"]
    consume(kafka, target, until=is_complete, timeout=60, isolation_level="read_committed")
    records = consume(kafka, target, isolation_level="read_committed")
    repeated = {number: times for number, times in _numbers(records).items() if times > 1}
    assert not repeated, f"{len(repeated)} of {count} events are there more than once"


def test_a_transaction_commits_the_offset_behind_what_is_seen_of_nobody(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=1)
    write_in_transactions(kafka, topic, [(event(1), True), (event(2), False)])
    with _service(tmp_path / "hop", _config(kafka, topic, "a")) as service:
        service.start()
        service.until(lambda: committed(kafka, topic, topic) == 4, "the offset behind the transaction that was aborted")
        service.until(lambda: service.stats()["source.hop"].get("lag_records") == 0, "word that nothing is left")
        write(kafka, topic, [event(3, action="delete")])
        producer = Producer({"bootstrap.servers": kafka})
        producer.produce(topic, None, b'{"id": 3}')
        assert producer.flush(30) == 0
        service.until(
            lambda: committed(kafka, topic, topic) == 6, "the offset behind a tombstone that says nothing new"
        )
        assert service.stop() == 0
    _assert_each_is_there_once(kafka, topic, 2)


@pytest.mark.behaviour("G6")
@pytest.mark.slow
@pytest.mark.parametrize(("kills", "member"), [(3, "one"), pytest.param(40, "one", marks=pytest.mark.soak)])
def test_a_service_that_is_killed_again_and_again_copies_each_event_once(
    kafka: str, topic_prefix: str, tmp_path: Path, kills: int, member: str
) -> None:
    create_topic(kafka, topic_prefix, partitions=_PARTITIONS)
    moments = random.Random(topic_prefix)
    with _service(tmp_path / "hop", _config(kafka, topic_prefix, "a", member)) as service:
        began = time.monotonic()
        service.start()
        longest = 1.5 * (time.monotonic() - began)
        with _Writer(kafka, topic_prefix) as writer:
            for kill in range(kills):
                time.sleep(moments.uniform(0.3, longest))
                service.kill()
                if kill % 2:  # the group's offsets suffice
                    service.lmdb.unlink(missing_ok=True)
                service.start(wait=False)
        _assert_each_is_there_once(kafka, topic_prefix, writer.written)
        assert "may be repeated" not in service.log.read_text()
        service.until(lambda: service.stats()["source.hop"]["batches_in_flight"] == 0, "the last batch")
        assert service.stop() == 0


@pytest.mark.behaviour("G6")
@pytest.mark.slow
@pytest.mark.soak
def test_a_service_that_is_killed_again_and_again_copies_each_event_once_to_another_cluster(
    kafka: str, broker: EmbeddedKafka, topic_prefix: str, tmp_path: Path
) -> None:
    create_topic(kafka, topic_prefix, partitions=_PARTITIONS)
    moments = random.Random(topic_prefix)
    config = _config(kafka, topic_prefix, "a", "one", target=broker.bootstrap)
    with _service(tmp_path / "hop", config) as service, _Writer(kafka, topic_prefix) as writer:
        service.start()
        for _ in range(20):
            time.sleep(moments.uniform(0.3, 4.0))
            service.kill()
            service.start(wait=False)
        writer.stop()
        _assert_each_is_there_once(broker.bootstrap, topic_prefix, writer.written)


@pytest.mark.behaviour("G6")
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("rounds", [8])
def test_instances_of_a_group_that_come_and_go_copy_each_event_once(
    kafka: str, topic_prefix: str, tmp_path: Path, rounds: int
) -> None:
    create_topic(kafka, topic_prefix, partitions=_PARTITIONS)
    with (
        _service(tmp_path / "first", _config(kafka, topic_prefix, "a")) as first,
        _service(tmp_path / "second", _config(kafka, topic_prefix, "b")) as second,
        _service(tmp_path / "third", _config(kafka, topic_prefix, "c")) as third,
        _Writer(kafka, topic_prefix) as writer,
    ):
        first.start()
        _until_it_has(first, _PARTITIONS)
        for _ in range(rounds):
            second.start(wait=False)
            third.start()
            _until_it_has(second, 1)
            _until_it_has(third, 1)
            first.signal(signal.SIGSTOP)
            second.kill()
            _until_it_has(third, _PARTITIONS)
            _let_go_on(first)
            _until_it_has(first, _PARTITIONS // 2)
            assert third.stop() == 0
        writer.stop()
        _assert_each_is_there_once(kafka, topic_prefix, writer.written)
        assert first.stop() == 0


def _until_it_has(service: Service, partitions: int) -> None:
    """Wait until a service reads so many partitions or more, and has copied something since."""

    def events() -> int:
        return int(service.stats().get("sink.k", {}).get("events", 0))

    service.until(lambda: _share(service) >= partitions, "its share")
    before = events()
    service.until(lambda: events() > before, "an event")


def _let_go_on(service: Service) -> None:
    """End the SIGSTOP, and start the service again if it ends, as it does when it lost partitions with records on their
    way. Else it gets its share.
    """
    logged, deadline = len(service.log.read_text()), time.monotonic() + 60.0
    service.signal(signal.SIGCONT)
    while not ("lost " in service.log.read_text()[logged:] and _share(service)):
        assert time.monotonic() < deadline
        try:
            code = service.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        assert code == 1
        assert "another instance may read that again" in service.tail()
        service.start()
        return


def _share(service: Service) -> int:
    """The partitions that it reads."""
    return len(service.stats().get("source.hop", {}).get("partitions", ()))
