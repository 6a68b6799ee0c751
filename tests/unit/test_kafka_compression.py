"""Which records are compressed: those that it makes smaller."""

from __future__ import annotations

import secrets

import numpy as np
import pyarrow as pa
import pytest

from sinks.kafka.compression import UNCOMPRESSED, Compression
from sinks.kafka.librdkafka import resolve_properties
from sinks.kafka.outgoing import Outgoing, join

DIGITS = [secrets.token_hex(5000).encode() for _ in range(50)]
WORDS = [b" ".join(b"order %d of customer %d" % (at, at * number) for at in range(400)) for number in range(50)]


def outgoing(values: list[bytes | None]) -> Outgoing:
    count = len(values)
    keys = pa.nulls(count, pa.binary())
    return Outgoing(("a",), np.zeros(count, np.int32), keys, pa.array(values, pa.binary()), np.zeros(count, np.int32))


@pytest.mark.parametrize("codec", ["lz4", "snappy"])
def test_long_random_values_are_left_as_they_are_and_texts_are_not(codec: str) -> None:
    compression = Compression({"compression.type": codec})
    assert not compression.makes_smaller(outgoing([*DIGITS, None]))
    assert compression.makes_smaller(outgoing([*WORDS, None]))


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_other_codecs_are_left_in_charge(codec: str) -> None:
    assert Compression({"compression.type": codec}).makes_smaller(outgoing(list(DIGITS)))


def test_short_values_and_few_bytes_are_not_looked_at() -> None:
    compression = Compression({"compression.type": "lz4"})
    assert compression.makes_smaller(outgoing([value[:500] for value in DIGITS] * 10))
    assert compression.makes_smaller(outgoing(DIGITS[:6]))
    assert not compression.makes_smaller(outgoing(DIGITS[:7]))


@pytest.mark.parametrize("values", [[], [None], [b""] * 3, [b"", None]])
def test_records_without_values_are_compressed(values: list[bytes | None]) -> None:
    assert Compression({"compression.type": "lz4"}).makes_smaller(outgoing(values))


def test_of_several_batches_the_largest_one_tells() -> None:
    compression = Compression({"compression.type": "lz4"})
    assert not compression.makes_smaller(join([outgoing(WORDS[:9]), outgoing(list(DIGITS)), outgoing([])]))
    assert compression.makes_smaller(join([outgoing(DIGITS[:9]), outgoing(list(WORDS)), outgoing([])]))


def test_a_slice_is_judged_by_its_own_bytes() -> None:
    values = pa.array([*WORDS, *DIGITS], pa.binary())
    compression = Compression({"compression.type": "lz4"})
    for part, smaller in ((values.slice(0, 50), True), (values.slice(50), False)):
        of_part = outgoing([None] * 50)
        judged = Outgoing(of_part.topic_names, of_part.topics, of_part.keys, part, of_part.partitions)
        assert compression.makes_smaller(judged) is smaller


@pytest.mark.parametrize("name", ["compression.type", "compression.codec"])
def test_a_client_that_leaves_them_does_so_whatever_name_the_codec_was_given_by(name: str) -> None:
    given = {"compression.type": "lz4", name: "snappy"}
    assert not Compression(given).makes_smaller(outgoing(list(DIGITS)))
    assert resolve_properties({**given, **UNCOMPRESSED}, ["compression.codec"]) == {"compression.codec": "none"}
