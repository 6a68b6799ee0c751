"""A shipment: records on their way to Kafka, and how far each of them is."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from confluent_kafka import KafkaError
from numpy.typing import NDArray

from psql_streamer.model import Index
from sinks.kafka.clients import Clients
from sinks.kafka.errors import REJECTED
from sinks.kafka.outgoing import Outgoing
from sinks.kafka.producer import Failed, Report, Written

Mask = NDArray[np.bool_]

_FIRST_KEY_LINE = 1 << 31
"""Numbers of lines from here on are of keys: it is above every number of a partition."""


class Shipment:
    """Every record waits, is under way, is acknowledged, or is rejected for good; an error makes it wait again.

    singly: one record a request. rejected: index of a record -> why Kafka never takes it. client: has what is under
    way, and no other one can say what became of it. is_compressed: whether its requests are; None: not known yet.
    """

    def __init__(self, records: Outgoing, singly: bool = False) -> None:
        self.records = records
        self.singly = singly
        self.rejected: dict[int, KafkaError] = {}
        self.client: Clients | None = None
        self.is_compressed: bool | None = None
        self._waiting = np.ones(len(records), np.bool_)
        self._under_way = np.zeros(len(records), np.bool_)
        self._failed: list[Failed] = []
        self._written: dict[int, Written] = {}

    def make_fresh_copy(self) -> Shipment:
        """The same records, of which none was handed over yet. Those that are rejected stay so."""
        again = Shipment(self.records, self.singly)
        for place, error in self.rejected.items():
            again.reject(place, error)
        return again

    @property
    def waiting(self) -> int:
        """How many records have yet to be handed to a client."""
        return int(np.count_nonzero(self._waiting))

    @property
    def untouched(self) -> bool:
        """Whether no record was handed to a client, or rejected, yet."""
        return bool(self._waiting.all()) and not self.under_way and not self.rejected

    @property
    def under_way(self) -> bool:
        """Whether a client has records whose fate is not known."""
        return bool(np.count_nonzero(self._under_way) or self._failed)

    @property
    def has_failed(self) -> bool:
        """Whether a client has said of a record that it failed, and nobody has looked at it yet."""
        return bool(self._failed)

    def list_under_way(self) -> Index:
        """Which records a client was given and has not reported; some of them may be acknowledged."""
        return np.flatnonzero(self._under_way)

    def direct(self, partitions: NDArray[np.int32]) -> None:
        """Send what waits to these partitions. Nothing may be under way."""
        self.records = self.records.with_partitions(partitions)

    def list_waiting(self) -> Index:
        """Which records wait: topic by topic, and in order within each."""
        places: Index = self._waiting.nonzero()[0]
        number = len(self.records.topic_names)
        if number < 2:
            return places
        topics = self.records.topics[places]
        # numpy sorts numbers of 16 bits by their digits, in a time that grows with the records alone.
        return places[np.argsort(topics.astype(np.uint16) if number <= 1 << 16 else topics, kind="stable")]

    def hand_over(self, client: Clients, at: Index, errors: NDArray[np.int32]) -> None:
        """The client was given these records. errors: for each 0, or why it does not take it."""
        self.client = client
        self._waiting[at] = False
        self._under_way[at] = True
        refused: Index = errors.nonzero()[0]
        self._under_way[at[refused]] = False
        for place, code in zip(at[refused].tolist(), errors[refused].tolist(), strict=True):
            if code in REJECTED:
                self.rejected[place] = KafkaError(code)
            else:
                self._failed.append(Failed(place, KafkaError(code)))

    def reject(self, place: int, error: KafkaError) -> None:
        """The record can never be delivered."""
        self._waiting[place] = False
        self.rejected[place] = error

    def report(self, reports: Iterable[Report]) -> None:
        """What a client says of records that were under way."""
        for report in reports:
            if isinstance(report, Written):
                self._written[report.place] = report
            else:
                self._failed.append(report)

    def land(self) -> list[Failed]:
        """Nothing is under way any more: what was not reported is acknowledged. Returns what failed."""
        failed, self._failed = self._failed, []
        self._under_way[:] = False
        self.client = None
        return failed

    def repeat(self, places: Iterable[int]) -> None:
        """These records wait again, and all that are behind them. Nothing may be under way."""
        again = list(places)
        if again:
            self._waiting[again] = True
            self._waiting = add_followers(self.records, self._waiting)
            self._waiting[list(self.rejected)] = False

    def find_misplaced(self) -> list[int]:
        """Records that lie before an earlier one of their key, as far as clients said where they lie."""
        if not self._written:
            return []
        places, partitions, offsets = np.array(sorted(self._written.values()), np.int64).T
        keys = _number_keys(self.records)[places]
        by_log = np.lexsort((places, partitions, keys, self.records.topics[places]))
        places, offsets = places[by_log], offsets[by_log]
        log = np.stack([self.records.topics[places], keys[by_log], partitions[by_log]])
        same = (log[:, 1:] == log[:, :-1]).all(0) & (log[1, 1:] >= 0)
        found: list[int] = places[1:][same & (offsets[1:] < offsets[:-1])].tolist()
        return found

    def recall(self) -> None:
        """The client gives no account of what it has: all of it waits again."""
        places = self.list_under_way().tolist()
        self.repeat([*places, *(failed.place for failed in self.land())])


def add_followers(records: Outgoing, chosen: Mask) -> Mask:
    """The chosen records and every one that must not come before them: of the same partition, and where the client
    chooses partitions, of the same topic and key. Without both a record has no place that it must keep.
    """
    lines, ordered = _number_lines(records)
    places = np.arange(len(records))
    first = np.full(int(lines.max(initial=0)) + 1, len(records))
    heads = chosen & ordered
    np.minimum.at(first, lines[heads], places[heads])
    found: Mask = chosen | (ordered & (places >= first[lines]))
    return found


def _number_lines(records: Outgoing) -> tuple[Index, Mask]:
    """The number of the line that each record stands in; and whether it stands in one at all."""
    directed = records.partitions >= 0
    ordered = directed
    numbers = records.partitions.astype(np.int64)
    if not directed.all():
        keys = _number_keys(records)
        ordered = directed | (keys >= 0)
        numbers = np.where(directed, numbers, _FIRST_KEY_LINE + keys)
    _, lines = np.unique(records.topics.astype(np.int64) << 33 | numbers, return_inverse=True)
    return lines, ordered


def _number_keys(records: Outgoing) -> Index:
    """The same number for the same key; -1 for none."""
    codes = records.keys.dictionary_encode().indices.fill_null(-1)
    numbers: Index = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers
