"""Several clients that act as one, each with some of the topics.

librdkafka goes through all partitions of a broker for every request to it (rd_kafka_broker_produce_toppars; an
idempotent client makes one request a round), and through all of its topics for each one in an answer about topics. So
one client takes a time that grows with the square of its topics: docs/decisions/044-many-topics.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
from confluent_kafka import KafkaException
from numpy.typing import NDArray

from psql_streamer.errors import SinkUnavailable
from psql_streamer.model import Index
from sinks.kafka.outgoing import Outgoing
from sinks.kafka.producer import PartitionState, Producer, Report, TopicMetadata

TOPICS_A_CLIENT = 125
"""How many topics a client gets before another client is made (docs/decisions/044-many-topics.md)."""

MOST_CLIENTS = 16
"""A limit, because each client has a thread and a connection for every broker."""

_LEAST_FLUSH_SECONDS = 0.001
"""librdkafka waits for whole milliseconds: for less it does not wait at all, and whoever asks again is kept busy."""

_FIRST_METADATA_SECONDS = 2.0
"""The time that brokers get to tell new clients of their topics; without an answer these ask for each by itself."""


class Clients:
    """A Producer in all but its number: every method is Producer's, and raises as it does.

    make: a new client. log: for the clients that are added. most: how many there may be; None: MOST_CLIENTS.
    """

    def __init__(self, make: Callable[[], Producer], log: logging.Logger, most: int | None = None) -> None:
        self._make = make
        self._most = MOST_CLIENTS if most is None else most
        self._log = log
        self._all = [make()]
        self._topics: list[set[str]] = [set()]
        self._client_of: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._reports: list[Report] = []
        self._closed = False
        self._has_met_brokers = False
        self._last: tuple[tuple[str, ...], NDArray[np.intp]] = ((), np.zeros(0, np.intp))

    @property
    def outstanding(self) -> int:
        """See Producer.outstanding; of all clients."""
        return sum(client.outstanding for client in self._all)

    @property
    def miscounts(self) -> bool:
        """See Producer.miscounts; of any client."""
        return any(client.miscounts for client in self._all)

    @property
    def holds_records(self) -> bool:
        """See Producer.holds_records; of any client."""
        return any(client.holds_records for client in self._all)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called: what was outstanding then is reported by no one."""
        return self._closed

    def produce(self, records: Outgoing, at: Index) -> NDArray[np.int32]:
        """See Producer.produce. A queue that is full keeps no record from another client's."""
        clients = self._look_up_client_numbers(records.topic_names)
        if len(self._all) == 1:
            return self._all[0].produce(records, at)
        chosen, errors = clients[records.topics[at]], np.zeros(len(at), np.int32)
        for number in np.unique(chosen).tolist():
            of_client = (chosen == number).nonzero()[0]
            errors[of_client] = self._all[number].produce(records, at[of_client])
        return errors

    def flush(self, seconds: float) -> list[Report]:
        """See Producer.flush; one client after the other, which takes longer where they are many for so few seconds.
        What the others have is sent meanwhile.
        """
        share = max(seconds / len(self._all), _LEAST_FLUSH_SECONDS)
        for client in self._all:
            self._reports += client.flush(share) if client.outstanding else client.poll()
        return self._take_reports()

    def poll(self) -> list[Report]:
        """See Producer.poll."""
        for client in self._all:
            self._reports += client.poll()
        return self._take_reports()

    def give_up(self) -> list[Report] | None:
        """See Producer.give_up; None if any client does not say."""
        reports = [client.give_up() for client in self._all]
        return (
            None
            if None in reports
            else self._take_reports() + [report for of_client in reports for report in of_client or ()]
        )

    def meet_brokers(self, topics: Iterable[str], timeout: float) -> None:
        """Ask them for these topics, if nothing was asked before; without an answer records go their way all the same.

        Records that wait while an idempotent client connects are sent half a second later: it looks for a broker that
        gives it a number, finds none, and looks again after that time (rd_kafka_idemp_pid_fsm).
        """
        if not self._has_met_brokers:
            with suppress(KafkaException):
                self.read_metadata_together(topics, timeout)

    def read_metadata(self, topic: str | None, timeout: float) -> Mapping[str, TopicMetadata]:
        """See Producer.read_metadata. A client asks, too, whose topics have more or fewer partitions than it knows."""
        self._has_met_brokers = True
        if topic is not None:
            return self._look_up_client(topic).read_metadata(topic, timeout)
        found = self._all[0].read_metadata(None, timeout)
        for client, topics in zip(self._all[1:], self._topics[1:], strict=True):
            counts = {name: found[name].partitions for name in topics if name in found}
            if any(self._told.get(name) != count for name, count in counts.items()):
                client.read_metadata(None, timeout)  # a question for topics by name would make those that were deleted
                self._told.update(counts)
        return found

    def read_metadata_together(self, topics: Iterable[str], timeout: float) -> Mapping[str, TopicMetadata]:
        """See Producer.read_metadata_together, with a question of each client that has some of them."""
        self._has_met_brokers = True
        of_clients: dict[int, list[str]] = {}
        for topic, number in zip(topics, self._look_up_client_numbers(tuple(topics)).tolist(), strict=True):
            of_clients.setdefault(number, []).append(topic)
        found: dict[str, TopicMetadata] = {}
        for number, some in of_clients.items():
            found.update(self._all[number].read_metadata_together(some, timeout))
        return found

    def look_again(self, topics: Sequence[str] | None, timeout: float) -> None:
        """Ask what another client was told just now, of those of these topics that have a client here; None: of all.
        Without an answer records to new partitions fail, and a client that is new then writes them.
        """
        with suppress(KafkaException):
            if topics is None:
                self.read_metadata(None, timeout)
            elif known := [topic for topic in topics if topic in self._client_of]:
                self.read_metadata_together(known, timeout)

    def read_partition_states(self, topics: set[str], timeout: float) -> Mapping[str, Sequence[PartitionState]]:
        """See Producer.read_partition_states."""
        return self._all[0].read_partition_states(topics, timeout)

    def close(self) -> None:
        """See Producer.close."""
        self._closed = True
        for client in self._all:
            client.close()

    def _take_reports(self) -> list[Report]:
        """What was reported, before one that failed for good raised, too."""
        reports, self._reports = self._reports, []
        return reports

    def _look_up_client(self, topic: str) -> Producer:
        return self._all[int(self._look_up_client_numbers((topic,))[0])]

    def _look_up_client_numbers(self, topics: tuple[str, ...]) -> NDArray[np.intp]:
        """The number of each topic's client. Most batches have the topics of the one before."""
        if self._last[0] != topics:
            self._assign([topic for topic in topics if topic not in self._client_of])
            self._last = topics, np.array([self._client_of[topic] for topic in topics], np.intp)
        return self._last[1]

    def _assign(self, topics: Sequence[str]) -> None:
        """Give topics to clients for good: all records of a partition are one client's."""
        count = len(self._all)
        for topic in topics:
            number = self._choose_client_number()
            self._topics[number].add(topic)
            self._client_of[topic] = number
        self._introduce(range(count, len(self._all)))
        for topic in topics:
            self._all[self._client_of[topic]].open(topic)

    def _choose_client_number(self) -> int:
        """The number of the one with the fewest topics, which is a new one where all have many."""
        number = min(range(len(self._all)), key=lambda number: len(self._topics[number]))
        if len(self._topics[number]) < TOPICS_A_CLIENT or len(self._all) >= self._most:
            return number
        client = self._make()
        self._all.append(client)
        self._topics.append(set())
        self._log.info("client %d for Kafka: those before it have %d topics", len(self._all), len(self._client_of))
        if self._closed:  # by another thread, which may not have seen this one
            client.close()
            raise SinkUnavailable("the Kafka client is closed")
        return len(self._all) - 1

    def _introduce(self, numbers: Sequence[int]) -> None:
        """Let new clients ask for their topics, side by side: each takes 50 ms to connect."""
        if not numbers:
            return
        with ThreadPoolExecutor(len(numbers)) as threads:
            for found in threads.map(self._read_first_metadata, numbers):
                self._told.update({name: topic.partitions for name, topic in found.items()})

    def _read_first_metadata(self, number: int) -> Mapping[str, TopicMetadata]:
        try:
            return self._all[number].read_metadata_together(self._topics[number], _FIRST_METADATA_SECONDS)
        except KafkaException:  # what the client complains of is told when records do not get through
            return {}
