"""A Kafka sink that makes the next batch's records while brokers acknowledge those of the batch before."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from psql_streamer.errors import SinkUnavailable
from psql_streamer.events.records import Records
from psql_streamer.model import Batch
from sinks.kafka import batch_writer, clients
from sinks.kafka.producer import Producer, Report
from sinks.kafka.sink import KafkaSink
from tests.integration.test_kafka_together import BATCHES, OneEach
from tests.kafka_reader import consume
from tests.kafka_sinks import Canned, call_until_it_works, started
from tests.mock_brokers import MockBrokers

ROWS, VALUE_BYTES = 100, 2000


class Recording(OneEach):
    """Notes whose records were made, by index in BATCHES; the first attempts at some fail."""

    def __init__(self, value_bytes: int = VALUE_BYTES) -> None:
        value = b"%d %03d".ljust(value_bytes, b".")
        super().__init__([Canned([("events", b"k", value % (at, row)) for row in range(ROWS)]) for at in range(3)])
        self.made: list[int] = []
        self.fails: list[int] = []

    def encode(self, batch: Batch) -> Records:
        at = next(at for at, one in enumerate(BATCHES) if one is batch)
        if at in self.fails:
            self.fails.remove(at)
            raise SinkUnavailable(f"no schema for {at}")
        self.made.append(at)
        return super().encode(batch)


class Waiting:
    """Batches that wait, and the write that is begun while there is another one, as the pipeline has it."""

    def __init__(self, sink: KafkaSink) -> None:
        self.batches = [*BATCHES]
        self.next: Callable[[], None] | None = None
        self.asked = 0
        self._sink = sink
        sink.attach_next(self.begin_next)

    def begin(self) -> Callable[[], None]:
        if (begun := self.next) is not None:
            self.next = None
            return begun
        return self._sink.begin_write(iter([self.batches.pop(0)]))

    def begin_next(self) -> bool:
        self.asked += 1
        if self.next is None and self.batches:
            self.next = self.begin()
        return self.next is not None


@pytest.fixture
def brokers() -> Iterator[MockBrokers]:
    with MockBrokers() as cluster:
        cluster.create("events", 1)
        yield cluster


def list_written(brokers: MockBrokers) -> list[tuple[int, int]]:
    """Batch and row of every record, in the order of the partition."""
    values = [record.value.rstrip(b".").split() for record in consume(brokers.bootstrap, ["events"]) if record.value]
    return [(int(batch), int(row)) for batch, row in values]


EVERY_RECORD = [(at, row) for at in range(3) for row in range(ROWS)]


def test_records_of_the_next_batch_are_made_before_brokers_have_acknowledged(brokers: MockBrokers) -> None:
    encoder = Recording()
    with started(brokers.bootstrap, encoder) as sink:
        waiting = Waiting(sink)
        brokers.delay(1, 100)
        for made in ([0, 1], [0, 1, 2], [0, 1, 2]):
            waiting.begin()()
            assert encoder.made == made
        assert (sink.stats()["events"], sink.stats()["batches"]) == (3 * ROWS, 3)
    assert list_written(brokers) == EVERY_RECORD


def test_a_batch_that_comes_while_brokers_are_waited_for_is_not_too_late(brokers: MockBrokers) -> None:
    encoder = Recording()
    with started(brokers.bootstrap, encoder) as sink:
        waiting = Waiting(sink)
        hidden, waiting.batches = waiting.batches[1:], waiting.batches[:1]
        brokers.delay(1, 300)

        def begin_later() -> bool:
            if waiting.asked == 5:
                waiting.batches = hidden
            return waiting.begin_next()

        sink.attach_next(begin_later)
        waiting.begin()()
        assert encoder.made == [0, 1]
        assert waiting.asked == 6, "it was asked again behind True, or not until then"


@pytest.mark.parametrize("topics", [1, 8])
def test_clients_are_not_asked_all_the_time_while_brokers_are_silent_and_no_batch_comes(
    brokers: MockBrokers, monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    monkeypatch.setattr(clients, "TOPICS_A_CLIENT", 1)
    polls, poll = 0, Producer.poll

    def count(producer: Producer) -> list[Report]:
        nonlocal polls
        polls += 1
        return poll(producer)

    with started(brokers.bootstrap, Recording()) as sink:
        sink.attach_next(lambda: False)
        assert sink._delivery is not None
        sink._delivery.read_metadata_together([*(f"other{at}" for at in range(1, topics)), "events"], 10.0)
        sink.write(BATCHES[0])
        brokers.delay(1, 1000)
        monkeypatch.setattr(Producer, "poll", count)
        sink.write(BATCHES[1])
    assert polls < 100 * topics, "it looks at every client each time"


def test_what_fails_while_the_next_records_are_made_is_raised_in_its_turn(brokers: MockBrokers) -> None:
    encoder = Recording()
    encoder.fails = [1, 1]
    with started(brokers.bootstrap, encoder) as sink:
        waiting = Waiting(sink)
        brokers.delay(1, 100)
        waiting.begin()()
        assert sink.status().ok, "the write that is done says what another one lacks"
        write = waiting.begin()
        for _ in range(2):
            with pytest.raises(SinkUnavailable, match="no schema for 1"):
                write()
        assert not sink.status().ok
        write()
        waiting.begin()()
    assert list_written(brokers) == EVERY_RECORD


def test_what_fails_meanwhile_keeps_the_records_of_no_write_that_is_done(brokers: MockBrokers) -> None:
    def count_unfinished() -> int:
        return sum(isinstance(one, batch_writer.Unfinished) for one in gc.get_objects())

    encoder = Recording()
    encoder.fails = [1]
    gc.collect()
    gc.disable()
    try:
        before = count_unfinished()
        with started(brokers.bootstrap, encoder) as sink:
            waiting = Waiting(sink)
            brokers.delay(1, 100)
            waiting.begin()()
            assert count_unfinished() == before + 1, "that whose records could not be made"
            write = waiting.begin()
            with suppress(SinkUnavailable):
                write()
            write()
            del write
            assert encoder.made == [0, 1, 2]
            waiting.begin()()
            assert count_unfinished() == before
    finally:
        gc.enable()


def test_a_write_that_fails_comes_again_before_the_next_one_whose_records_are_made(brokers: MockBrokers) -> None:
    encoder = Recording()
    with started(brokers.bootstrap, encoder, timeout="150ms", maxAttempts=2) as sink:
        waiting = Waiting(sink)
        waiting.begin()()
        write = waiting.begin()
        brokers.take_down(1)
        with pytest.raises(SinkUnavailable, match="not acknowledged"):
            write()
        assert encoder.made == [0, 1, 2]
        brokers.bring_up(1)
        call_until_it_works(write)
        waiting.begin()()
        assert encoder.made == [0, 1, 2]
        assert sink.stats()["events"] == 3 * ROWS
    assert [*dict.fromkeys(list_written(brokers))] == EVERY_RECORD


@pytest.mark.parametrize(
    ("value_bytes", "most", "at_once"),
    [(10, 16 << 20, 1), (VALUE_BYTES, ROWS * VALUE_BYTES // 2, 1), (VALUE_BYTES, 16 << 20, ROWS + 1)],
    ids=["of a slow stream", "of many bytes", "of fewer rows than go together"],
)
def test_nothing_is_begun_behind_a_batch(
    brokers: MockBrokers, monkeypatch: pytest.MonkeyPatch, value_bytes: int, most: int, at_once: int
) -> None:
    monkeypatch.setattr(batch_writer, "TOGETHER_BYTES", most)
    monkeypatch.setattr(batch_writer, "REQUEST_RECORDS", at_once)
    encoder = Recording(value_bytes)
    with started(brokers.bootstrap, encoder) as sink:
        waiting = Waiting(sink)
        brokers.delay(1, 50)
        waiting.begin()()
        assert encoder.made == [0]
        assert waiting.asked == 0


def test_nothing_is_begun_behind_batches_that_were_written_together(brokers: MockBrokers) -> None:
    encoder = Recording()
    with started(brokers.bootstrap, encoder) as sink:
        waiting = Waiting(sink)
        brokers.delay(1, 50)
        sink.begin_write(iter(waiting.batches[:2]))()
        assert waiting.asked == 0
