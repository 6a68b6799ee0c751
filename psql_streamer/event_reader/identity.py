"""What tells a record from others that do not say which change of their transaction they are: where it is stored."""

from __future__ import annotations

import hashlib

from psql_streamer.event_reader.parsed import Message


def make_uuid(message: Message, commit: int) -> bytes:
    """A UUID of version 8 (RFC 9562): a hash of topic, partition, offset and commit number, the same at each read."""
    place = f"{message.topic()}/{message.partition()}/{message.offset()}/{commit}"
    digits = hashlib.blake2b(place.encode(), digest_size=16).hexdigest()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}".encode()
