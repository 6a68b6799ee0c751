"""Dead letters: what becomes of a record that Kafka will never take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from psql_streamer.binary_columns import measure_lengths, pack_values
from psql_streamer.events.records import Records
from psql_streamer.events.source_fields import choose_fields
from sinks.kafka.delivery import Delivery, Rejections
from sinks.kafka.errors import REJECTED, TOO_LARGE
from sinks.kafka.outgoing import Outgoing
from sinks.kafka.shipment import Shipment

HEADER_PREFIX = "dead_letter_"
"""What the names of our headers begin with; the record's own headers keep theirs."""

_TRUNCATED_FROM = HEADER_PREFIX + "truncated_from"


@dataclass(frozen=True, slots=True)
class _Letter:
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]

    @property
    def own_headers(self) -> Mapping[str, bytes]:
        """Those of the record."""
        return {name: value for name, value in self.headers.items() if not name.startswith(HEADER_PREFIX)}

    def __len__(self) -> int:
        return len(self.key or b"") + len(self.value or b"") + sum(map(len, self.own_headers.values()))


class DeadLetters:
    """The rejected records of one batch on their way to the dead-letter topic.

    Key, value and the record's own headers are the original bytes. What is too large for the topic as well is cut, in
    halves, until it fits, and the header dead_letter_truncated_from has its original size.
    """

    def __init__(self, topic: str, records: Records, rejected: Rejections) -> None:
        self._topic = topic
        self._all = {index: _make_letter(records, index, error) for index, error in rejected.items()}
        self._letters = dict(self._all)
        self._refused: dict[int, KafkaError] = {}
        self._shipment: Shipment | None = None
        self._singly = False

    def __len__(self) -> int:
        """How many records there are, those included that are durable."""
        return len(self._all)

    @property
    def under_way(self) -> bool:
        """Whether a client has some of them whose fate is not known."""
        return self._shipment is not None and self._shipment.under_way

    @property
    def wants_singly(self) -> bool:
        """Whether those that Kafka rejects are only found one by one."""
        return self._singly

    def write_again(self) -> None:
        """None of them was written after all. What is known to be too large stays cut."""
        if self._shipment is not None:
            self._singly = self._singly or self._shipment.singly
            self._cut(list(self._letters), self._shipment.rejected)
        self._letters = {index: letter for index, letter in self._all.items() if index not in self._refused}
        self._shipment = None

    def deliver(self, delivery: Delivery) -> Rejections:
        """Return when all are durable but those returned, which cannot be written there either. Raises as
        Delivery.deliver does, and goes on likewise when it is called again.
        """
        while self._letters:
            order = list(self._letters)
            if self._shipment is None:
                letters = _make_outgoing(self._topic, list(self._letters.values()))
                self._shipment = Shipment(letters, singly=delivery.singles_out)
            delivery.settle(self._shipment)
            failed = delivery.deliver(self._shipment)
            self._shipment = None
            self._letters = {index: self._all[index] for index in self._cut(order, failed)}
        return self._refused

    def _cut(self, order: Sequence[int], failed: Rejections) -> Sequence[int]:
        """Halve the letters that were too large, which are returned, and give up those that fail otherwise."""
        too_large = [order[i] for i, error in failed.items() if _can_shrink(self._all[order[i]], error)]
        self._refused |= {order[i]: error for i, error in failed.items() if order[i] not in too_large}
        self._all |= {index: _halve_letter(self._all[index]) for index in too_large}
        return too_large


def describe(records: Records, index: int) -> str:
    """Which record it is, without its content."""
    snapshot, part = records.find_snapshot(index), records.find_part(index)
    columns = (records.keys, records.values, *records.headers.values())
    size = sum(int(measure_lengths(column.slice(index, 1))[0]) for column in columns)
    return (
        f"a record of {size} bytes from table {records.look_up_table(index)} "
        f"({'' if snapshot is None else f'snapshot {snapshot}, '}"
        f"commit {_find_commit(records, index)}, change {records.seq[index]}{'' if part is None else f', part {part}'})"
    )


def _find_commit(records: Records, index: int) -> str:
    return str(choose_fields(records.source).show_commit(int(records.commit[index])))


def suggest_remedy(error: KafkaError, dead_letter_topic: str) -> str:
    """What could be done about a rejection: its cause, or a place for such records if there is none."""
    remedy = REJECTED[error.code()]
    return remedy if dead_letter_topic else f"{remedy}, or set deadLetterTopic to put such records aside"


def _make_letter(records: Records, index: int, error: KafkaError) -> _Letter:
    about = {
        "reason": error.str(),
        "topic": records.look_up_topic(index),
        "table": records.look_up_table(index),
        choose_fields(records.source).other_names.commit: _find_commit(records, index),
        "seq": str(records.seq[index]),
    }
    snapshot = records.find_snapshot(index)
    if snapshot is not None:
        about["snapshot"] = snapshot
    part = records.find_part(index)
    if part is not None:
        about["part"] = str(part)
    own = {name: column[index].as_py() for name, column in records.headers.items()}
    headers = {name: value for name, value in own.items() if value is not None}
    headers |= {HEADER_PREFIX + name: text.encode() for name, text in about.items()}
    return _Letter(records.keys[index].as_py(), records.values[index].as_py(), headers)


def _make_outgoing(topic: str, letters: Sequence[_Letter]) -> Outgoing:
    names = dict.fromkeys(name for letter in letters for name in letter.headers)
    return Outgoing(
        (topic,),
        np.zeros(len(letters), np.int32),
        pack_values([letter.key for letter in letters]),
        pack_values([letter.value for letter in letters]),
        np.full(len(letters), -1, np.int32),
        {name: pa.array([letter.headers.get(name) for letter in letters], pa.binary()) for name in names},
    )


def _can_shrink(letter: _Letter, error: KafkaError) -> bool:
    return error.code() in TOO_LARGE and len(letter) > 0


def _halve_letter(letter: _Letter) -> _Letter:
    headers = {_TRUNCATED_FROM: str(len(letter)).encode(), **letter.headers}
    key, value, own = letter.key or b"", letter.value or b"", letter.own_headers
    if sum(map(len, own.values())) > max(len(key), len(value)):
        return replace(letter, headers={**headers, **{name: text[: len(text) // 2] for name, text in own.items()}})
    if len(value) >= len(key):
        return replace(letter, value=value[: len(value) // 2], headers=headers)
    return replace(letter, key=key[: len(key) // 2], headers=headers)
