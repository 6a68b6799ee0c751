"""Keys land where Java's default partitioner puts them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.kafka.partitioner import NO_PARTITION, compute_partitions, hash_keys


def scalar_murmur2(key: bytes) -> int:
    """The algorithm as it is usually written, one key and one word at a time."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if key[whole:]:
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@pytest.mark.parametrize(
    ("key", "java"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_the_hash_is_the_one_that_kafka_clients_computes(key: str, java: int) -> None:
    assert hash_keys(pa.array([key.encode()], pa.binary())).view(np.int32)[0] == java


@given(st.lists(st.binary(max_size=40)), st.integers(0, 3))
def test_many_keys_at_once_hash_like_each_alone(keys: list[bytes], skipped: int) -> None:
    array = pa.array([b"x"] * skipped + keys, pa.binary())[skipped:]
    assert hash_keys(array).tolist() == [scalar_murmur2(key) for key in keys]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=40), st.integers(1, 9))
def test_few_keys_land_where_many_do(keys: list[bytes | None], count: int) -> None:
    alone = [-1 if key is None else (scalar_murmur2(key) & 0x7FFFFFFF) % count for key in keys]
    array = pa.array(keys, pa.binary())
    assert compute_partitions(array, np.full(len(keys), count, np.int32)).tolist() == alone


def test_a_large_binary_array_hashes_the_same() -> None:
    keys = [b"", b"1", b"a longer key"]
    assert hash_keys(pa.array(keys, pa.large_binary())).tolist() == hash_keys(pa.array(keys, pa.binary())).tolist()


def test_the_sign_bit_is_dropped_before_the_remainder() -> None:
    # murmur2("21") is negative; Java's toPositive clears the sign bit, it does not negate.
    assert (
        compute_partitions(pa.array([b"21"], pa.binary()), np.array([7], np.int32))[0] == (-973932308 & 0x7FFFFFFF) % 7
    )


def test_each_key_uses_the_partition_count_of_its_own_topic() -> None:
    keys = pa.array([b"foobar", b"foobar", b"foobar"], pa.binary())
    hashed = -790332482 & 0x7FFFFFFF
    chosen = compute_partitions(keys, np.array([1, 6, 50], np.int32))
    assert chosen.tolist() == [0, hashed % 6, hashed % 50]


def test_a_record_without_a_key_has_no_partition_and_an_empty_key_has_one() -> None:
    chosen = compute_partitions(pa.array([None, b""], pa.binary()), np.array([6, 6], np.int32))
    assert chosen.tolist() == [NO_PARTITION, (scalar_murmur2(b"") & 0x7FFFFFFF) % 6]
