"""Records that an instance wrote become batches again, from which the same records are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from psql_streamer.event_reader.reader import EventReader, Read
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch, Position
from tests.encoding import encoder_of
from tests.golden import batches

BEFORE, AFTER = Position({"offset": 0}, "0"), Position({"offset": 1}, "1")


@dataclass(frozen=True)
class Record:
    """As confluent_kafka.Message, as far as a reader asks."""

    key_bytes: bytes | None
    value_bytes: bytes | None
    at: int = 0
    of: str = "orders"

    def topic(self) -> str:
        return self.of

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.value_bytes

    def headers(self) -> None:
        return None


def written(form: str, batch: Batch, **options: bool) -> list[Record]:
    """The records of a batch, all in one topic."""
    router = Router({}, "", "t", "messages")
    found = encoder_of(form, router, {}, **options).encode(batch)
    pairs = zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True)
    return [Record(key, value, at) for at, (key, value) in enumerate(pairs)]


def read(records: Sequence[Record], reader: EventReader | None = None) -> Read:
    return (reader or EventReader("hop")).read(records, BEFORE, lambda _: AFTER, 1.0, stops=False)


@pytest.mark.parametrize("form", ["event", "envelope"])
def test_a_hop_leaves_keys_and_values_as_they_are(form: str) -> None:
    reader = EventReader("test")
    count = 0
    for batch in batches():
        first = written(form, batch)
        found = read(first, reader)
        assert not found.refused
        again = [record for one in found.batches for record in written(form, one)]
        for one, other in zip(first, again, strict=True):
            assert one.key_bytes == other.key_bytes
            assert one.value_bytes == other.value_bytes
            count += 1
    assert count >= 40
