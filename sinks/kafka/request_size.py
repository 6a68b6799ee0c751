"""How large requests are: smaller than the client makes them, where a topic takes none of that size."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from psql_streamer.model import Index
from sinks.kafka.errors import TOO_LARGE
from sinks.kafka.librdkafka import resolve_properties
from sinks.kafka.outgoing import Outgoing
from sinks.kafka.producer import Failed
from sinks.kafka.rejections import measure_sizes
from sinks.kafka.shipment import Shipment

_NAME = "batch.size"

_PART = 4
"""A request that is too large is this many times as large as the next ones: a few steps reach any topic's size."""

_SMALLEST_BYTES = 4 << 10
"""Below it, writing record by record costs little more."""

_OFTEN_SECONDS = 60.0
"""Large records that come within so long of each other are worth smaller requests: each step to find one takes a new
client, which connects first.
"""

_SMALL_SECONDS, _MOST_SMALL_SECONDS = 600.0, 6 * 3600.0
"""The time for which requests stay small before large ones are tried again, in which case some records come twice: at
first, and at most.
"""


class RequestSize:
    """For one thread. properties: librdkafka's. log: for what changes.

    A request is rejected for its size if it is larger than the topic's max.message.bytes. That may be the request's
    fault, or that of one record in it. Smaller requests tell: what is still too large when it is alone in a request
    explains why the larger request with it was rejected. What no such record explains was the request's fault, and
    requests stay as small as that needs. They also stay small where large records come often. As topics may take more
    later, large requests are tried again after a while, and each time that they are rejected after twice as long.
    """

    def __init__(self, properties: Mapping[str, str], log: logging.Logger) -> None:
        self._given = self.bytes = int(resolve_properties(properties, [_NAME])[_NAME])
        self._steps: list[_Step] = []
        self._explained = -_OFTEN_SECONDS
        self._small_seconds, self._small_until = _SMALL_SECONDS, 0.0
        self._log = log

    @property
    def properties(self) -> Mapping[str, str]:
        """What a client has in place of its own."""
        return {} if self.bytes == self._given else {_NAME: str(self.bytes)}

    @property
    def is_tried(self) -> bool:
        """Whether requests are smaller for a shipment that has yet to be written."""
        return bool(self._steps)

    def lower(self, failed: Sequence[Failed], shipment: Shipment) -> bool:
        """Whether smaller requests may help, which those from now on are. failed: some of the shipment's records."""
        at = np.array([failure.place for failure in failed if failure.error.code() in TOO_LARGE])
        if not len(at) or self.bytes <= _SMALLEST_BYTES:
            return False
        step = _Step.from_records(shipment.records, at, self.bytes)
        if max(map(len, step.parts)) == 1:
            return False
        self._steps.append(step)
        topic = shipment.records.topic_names[shipment.records.topics[at[0]]]
        smaller = self.bytes // _PART
        self._log.warning(
            'topic "%s" rejects requests of up to %d bytes: writing with up to %d', topic, self.bytes, smaller
        )
        self.bytes = smaller
        return True

    def settle(self, shipments: Iterable[Shipment]) -> None:
        """All records of these are written, but for those that are rejected. Others that were too large were given up,
        or cut: they say nothing.
        """
        if not self._steps:
            self._restore()
            return
        size = self._steps[0].size
        rejected = [
            (shipment.records.values, [at for at, error in shipment.rejected.items() if error.code() in TOO_LARGE])
            for shipment in shipments
        ]
        guilty = [step.size for step in self._steps if step.is_of(rejected) and not step.is_explained_by(rejected)]
        if guilty:
            self.bytes = min(guilty) // _PART
        elif not self._comes_often():
            self.bytes = size
        self._steps.clear()
        if self.bytes != size:
            self._small_until = time.monotonic() + self._small_seconds
            self._small_seconds = min(2 * self._small_seconds, _MOST_SMALL_SECONDS)
            self._log.warning(
                'requests have up to %d bytes from now on: set "%s" = %d under the sink\'s kafka, or raise the '
                "topic's max.message.bytes, and segment.bytes if it is smaller",
                *(self.bytes, _NAME, self.bytes),
            )

    def _restore(self) -> None:
        """Requests are as large as they were given once they have been small for long."""
        if self.bytes != self._given and time.monotonic() >= self._small_until:
            self._log.info("trying requests of up to %d bytes again", self._given)
            self.bytes = self._given

    def _comes_often(self) -> bool:
        """Whether the record before the one that explains the steps was found a short time ago."""
        before, self._explained = self._explained, time.monotonic()
        return self._explained - before < _OFTEN_SECONDS


@dataclass(frozen=True, slots=True)
class _Step:
    """Requests of up to `size` bytes that were rejected. values: by which their shipment is known again. parts: the
    places of their records, by topic and partition; requests: of how many requests each part was, about.
    """

    size: int
    values: pa.Array
    parts: Sequence[Index]
    requests: Sequence[int]

    @classmethod
    def from_records(cls, records: Outgoing, at: Index, size: int) -> _Step:
        order = np.lexsort((at, records.partitions[at], records.topics[at]))
        at = at[order]
        place = np.stack((records.topics[at], records.partitions[at]))
        parts = np.split(at, np.flatnonzero((place[:, 1:] != place[:, :-1]).any(0)) + 1)
        requests = [max(1, int(measure_sizes(records, part).sum()) // size) for part in parts]
        return cls(size, records.values, parts, requests)

    def is_of(self, shipments: Iterable[tuple[pa.Array, Sequence[int]]]) -> bool:
        """Whether it was of one of these."""
        return any(values is self.values for values, _ in shipments)

    def is_explained_by(self, rejected: Iterable[tuple[pa.Array, Sequence[int]]]) -> bool:
        """Whether each request had a record that is too large by itself. rejected: places by values of shipments."""
        alone = [at for values, places in rejected if values is self.values for at in places]
        counts = (int(np.isin(part, alone).sum()) for part in self.parts)
        return all(count >= requests for count, requests in zip(counts, self.requests, strict=True))
