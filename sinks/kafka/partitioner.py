"""Java's default partitioner over a whole column of keys: `toPositive(murmur2(key)) % partitions`.

The same key lands in the same partition as it does from a Java producer (kafka-clients,
org.apache.kafka.clients.producer.internals.BuiltInPartitioner and org.apache.kafka.common.utils.Utils.murmur2).
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.binary_columns import read_offsets, read_value_bytes

NO_PARTITION = -1
"""librdkafka's RD_KAFKA_PARTITION_UA: the client chooses; for records without a key."""

_FEW_KEYS = 16
"""Keys up to which one by one is faster than all at once."""

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
_WORD = struct.Struct("<I")


def compute_partitions(keys: pa.BinaryArray, counts: NDArray[np.int32]) -> NDArray[np.int32]:
    """The partition of every key, NO_PARTITION for a null key.

    counts: how many partitions the topic of each key has, one element a key, each above zero.
    """
    if not np.count_nonzero(counts != 1):
        chosen = np.zeros(len(keys), np.int32)
    elif len(keys) <= _FEW_KEYS:
        hashes = [_hash_key(key or b"") & 0x7FFFFFFF for key in keys.to_pylist()]
        chosen = np.array(hashes, np.int32) % counts
    else:
        chosen = (hash_keys(keys).view(np.int32) & 0x7FFFFFFF) % counts
    if keys.null_count:
        chosen[np.asarray(keys.is_null())] = NO_PARTITION
    return chosen


def hash_keys(keys: pa.BinaryArray) -> NDArray[np.uint32]:
    """The 32-bit MurmurHash2 of every key, seeded as Java does; of a null key, that of no bytes.

    Works word by word over all keys at once, the longest keys first, so that those which still have a word
    are always a leading slice.
    """
    words, starts, lengths = _read_words(keys)
    order = None if _are_all_equal(lengths) else np.argsort(-lengths, kind="stable")
    if order is not None:
        starts, lengths = starts[order], lengths[order]
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    whole = lengths >> 2
    for step in range(int(whole[0]) if len(whole) else 0):
        active = int(np.searchsorted(-whole, -step, side="left"))
        _mix(hashes[:active], words[starts[:active] + 4 * step])
    _mix_tail(hashes, words, starts + 4 * whole, lengths & 3)
    _finish(hashes)
    if order is None:
        return hashes
    unsorted = np.empty_like(hashes)
    unsorted[order] = hashes
    return unsorted


def _hash_key(key: bytes) -> int:
    """The same as `murmur2`, of one key."""
    factor, length = int(_M), len(key)
    found = _SEED ^ length
    for (word,) in _WORD.iter_unpack(key[: length & ~3]):
        mixed = word * factor & 0xFFFFFFFF
        mixed = (mixed ^ mixed >> 24) * factor
        found = (found * factor ^ mixed) & 0xFFFFFFFF
    if length & 3:
        found = (found ^ int.from_bytes(key[length & ~3 :], "little")) * factor & 0xFFFFFFFF
    found = (found ^ found >> 13) * factor & 0xFFFFFFFF
    return found ^ found >> 15


def _read_words(keys: pa.BinaryArray) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]:
    """The little-endian word that begins at every byte of the data; where each key starts; how long it is."""
    bounds, held = read_offsets(keys).astype(np.int64), read_value_bytes(keys)
    padded = np.zeros(len(held) + 4, np.uint8)
    padded[:-4] = held
    words = np.ndarray((len(padded) - 3,), np.dtype("<u4"), padded, strides=(1,))
    return words, bounds[:-1] - bounds[0], np.diff(bounds)


def _are_all_equal(lengths: NDArray[np.int64]) -> bool:
    return len(lengths) == 0 or not np.count_nonzero(lengths != lengths[0])


def _mix(hashes: NDArray[np.uint32], word: NDArray[np.uint32]) -> None:
    word *= _M
    word ^= word >> np.uint32(24)
    word *= _M
    hashes *= _M
    hashes ^= word


def _mix_tail(
    hashes: NDArray[np.uint32], words: NDArray[np.uint32], tails: NDArray[np.int64], left: NDArray[np.int64]
) -> None:
    """The one to three bytes behind the last whole word: the low bytes of the word that begins there."""
    masks = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)[left]
    mixed = (hashes ^ (words[tails] & masks)) * _M
    np.copyto(hashes, mixed, where=left > 0)


def _finish(hashes: NDArray[np.uint32]) -> None:
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
