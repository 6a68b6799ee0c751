"""Records in the frame of a schema registry, read as the JSON that they say."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from psql_streamer.errors import SourceError, SourceRefused, SourceUnavailable
from psql_streamer.event_reader.parsed import Message
from psql_streamer.registry.client import RegistryClient
from psql_streamer.registry.decoding import Decode, Decoders
from psql_streamer.registry.errors import NotOfSchemaError, RegistryError, RegistryRefused, SchemaError
from psql_streamer.registry.frames import KEY_HEADER, VALUE_HEADER, Frame, find_frame, find_guid
from sources.kafka.decoded import Decoded, Undecodable
from sources.kafka.options import SourceRegistryOptions

_AGAIN_SECONDS = 1.0
"""Between two attempts to ask a registry that did not answer."""

_FRAME_LOOK_SECONDS = 0.05

_DECODE_SECONDS = 2.0
"""After so long what is decoded is given, though a registry that is slow has yet to say the schemas of others: a
rebalance waits until the sinks have what was taken.
"""

log = logging.getLogger(__name__)


class FramedRecords:
    """name: of the source. problem: why records wait; empty: none do. refusal: what ends the source, if the registry
    refuses it. For the source's thread; others may look.
    """

    def __init__(self, name: str, options: SourceRegistryOptions) -> None:
        self._failures = 0
        self.problem = ""
        self.refusal: SourceRefused | None = None
        self._name = name
        self._options = options
        self._client: RegistryClient | None = None
        self._decoders: Decoders | None = None
        self._again = 0.0

    def stats(self) -> Mapping[str, int]:
        """For /stats: answers of the registry, and how often there was none."""
        answers = self._client.answers if self._client is not None else 0
        return {"registry_lookups": answers, "registry_failures": self._failures}

    def waits(self, timeout: float) -> bool:
        """Whether it is too early to ask the registry again, after some of the time until then."""
        left = self._again - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, timeout, _FRAME_LOOK_SECONDS))
        return True

    def wait_for_none(self) -> None:
        """There are no records that wait."""
        self.problem = ""

    def decode(self, messages: Sequence[Message], most_bytes: int) -> list[Message]:
        """The records, of which those are decoded that are framed, up to the first one whose schema is not known and
        for which the registry does not answer. most_bytes: of their JSON, but for a single record; the others are left.
        Those are left as well that a slow registry leaves no time for.
        """
        deadline = time.monotonic() + _DECODE_SECONDS
        found, error = self._decode_some(messages, most_bytes, deadline, may_wait=True)
        self.refusal = error if isinstance(error, SourceRefused) else None
        self._note("" if error is None or self.refusal is not None else str(error))
        return found

    def _note(self, problem: str) -> None:
        """What is waited for from now on; empty: nothing."""
        if problem and problem != self.problem:
            log.warning("source.%s: records wait: %s", self._name, problem)
        elif self.problem and not problem:
            log.info("source.%s: records do not wait for the schema registry any more", self._name)
        self.problem = problem
        self._again = time.monotonic() + _AGAIN_SECONDS if problem else 0.0

    def decode_all(self, messages: Sequence[Message]) -> list[Message]:
        """The same for records that nobody can wait for. Raises SourceError."""
        found, error = self._decode_some(messages, sys.maxsize, math.inf, may_wait=False)
        if error is not None:
            raise error
        return found

    def _decode_some(
        self, messages: Sequence[Message], most: int, deadline: float, *, may_wait: bool
    ) -> tuple[list[Message], SourceError | None]:
        found: list[Message] = []
        size = 0
        try:
            find = partial(self._connect().find, may_wait=may_wait)
            for message in messages:
                if size > most or (found and time.monotonic() > deadline):
                    break
                decoded = self._decode(message, find)
                found.append(decoded)
                size += len(decoded.value() or b"") + len(decoded.key() or b"")
        except RegistryError as error:
            self._failures += 1
            return found, to_source_error(error)
        return found, None

    def _connect(self) -> Decoders:
        if self._decoders is None:
            self._client = RegistryClient(self._options)
            self._decoders = Decoders(self._client)
        return self._decoders

    def _decode(self, message: Message, find: Callable[[int | str], Decode]) -> Message:
        value, key, headers = message.value(), message.key(), message.headers()
        of_value = _find_part_frame(value, headers, VALUE_HEADER)
        of_key = _find_part_frame(key, headers, KEY_HEADER) if self._options.keys else None
        if of_value is None and of_key is None:
            return message
        try:
            if of_value is not None:
                value = _read("value", of_value, find)
            if of_key is not None:
                key = _read("key", of_key, find)
        except _UnreadableError as error:
            return Undecodable(message, str(error))
        return Decoded(message, key, value)


class _UnreadableError(Exception):
    """A value or a key cannot be decoded. The text says why."""


def to_source_error(error: RegistryError) -> SourceError:
    """As the pipeline knows it."""
    return (SourceRefused if isinstance(error, RegistryRefused) else SourceUnavailable)(error.what, error.remedy)


def _find_part_frame(data: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None, name: str) -> Frame | None:
    """Of a value or a key; the header with this name counts, if there is one."""
    if data is not None and headers and (found := find_guid(headers, name)) is not None:
        guid, rest = found
        return Frame(guid, rest + data)
    return find_frame(data)


def _read(part: str, frame: Frame, find: Callable[[int | str], Decode]) -> bytes:
    try:
        return find(frame.schema)(frame.payload)
    except SchemaError as error:
        more = "; keys = false leaves keys as they are" if part == "key" else ""
        raise _UnreadableError(f"schema {frame.schema} of its {part}: {error}{more}") from None
    except NotOfSchemaError as error:
        raise _UnreadableError(f"its {part} is not of schema {frame.schema}: {error}") from None
