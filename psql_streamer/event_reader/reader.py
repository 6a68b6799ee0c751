"""Records of a topic to batches: the columns of all records lie in one table of cells, as a decoder's do.

Many records that are alike are read by columns (`alike`), others of one origin by fields (`plain`), all others one by
one. Whichever way, values stay JSON until all of the batch's are there, and the batch is the same.

A batch is of one origin, because it says of its changes where they were made: records of several origins give several
batches, in the order that `order` says. In a batch, changes stand in the order of the records. So the commit numbers of
an origin increase within a partition of the topic, as far as its writer did not write again what it was not sure of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import Raw

from psql_streamer.event_reader.alike import AlikeReader
from psql_streamer.event_reader.documents import (
    DEPTH_OF_VALUES,
    BrokenJsonError,
    Shallow,
    Veiled,
    cut_out,
    require_json,
    veil_surrogates,
)
from psql_streamer.event_reader.forms import FORMS, NOT_OF_THE_FORMAT, Parse, name_snapshot
from psql_streamer.event_reader.order import Order
from psql_streamer.event_reader.other_records import name_other_record
from psql_streamer.event_reader.parsed import Image, Message, NoEventError, Origin, Parsed
from psql_streamer.event_reader.part import Part
from psql_streamer.event_reader.plain import read_plain
from psql_streamer.event_reader.tables import Tables
from psql_streamer.event_reader.tombstones import LookBack, Tombstone, TombstoneReader
from psql_streamer.model import OF_BINARY_LOGS, Batch, Marker, Position, Relation

_ParseTopic = Callable[[str, bytes], Parsed]
"""Parses a record's value. The topic may tell its format."""


class Refused(NamedTuple):
    """A record that is no event. reason: without values."""

    message: Message
    reason: str


class Read(NamedTuple):
    """What records gave. batches: all but the last have the position before these records. records: how many were
    read. tombstones: how many of them have no value. tombstone_deletes: those of them that became deletes.
    unknown_tombstones: those that no record in front of them explains. headers_left_out: see HeaderReader.
    """

    batches: Sequence[Batch]
    refused: Sequence[Refused]
    records: int
    tombstones: int = 0
    tombstone_deletes: int = 0
    unknown_tombstones: Sequence[Message] = ()
    headers_left_out: int = 0


class EventReader:
    """Reads records of the formats in `forms`. name: of the source. For one thread.

    What a table looks like is remembered from batch to batch.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tables = Tables()
        self._alike = AlikeReader()
        self._tombstones = TombstoneReader(lambda message: self._read_value(message, self._parse))
        self._form_of_topic: dict[str, Parse] = {}
        self._kinds: dict[tuple[str, str], str] = {}

    def remember(self, relations: Iterable[Relation]) -> None:
        """See Source.remember."""
        self._tables.remember(relations)

    def forget_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """What comes of these does not follow what was read of them: others may have read records in between."""
        self._tombstones.forget_partitions(partitions)

    def read(
        self,
        messages: Sequence[Message],
        before: Position,
        behind: Callable[[int], Position],
        received_at: float,
        stops: bool,
        look_back: LookBack = lambda _: (),
    ) -> Read:
        """The batches of some records. before: the position in front of them. behind: the one behind so many of them.
        stops: whether nothing is read from the first record on that is no event. look_back: asked for the records in
        front of a tombstone, where those that were read do not say whose key it is.
        """
        self._tables.mark()
        try:
            if len(messages) >= _MANY and (part := self._read_many(messages)) is not None:
                batch = part.finish(self._name, behind(len(messages)), received_at)
                self._kinds[part.origin.host, part.origin.database] = part.origin.kind
                self._tombstones.forget()
                return Read([batch], (), len(messages), headers_left_out=part.headers_left_out)
            self._tables.roll_back()
            return self._read_each(messages, before, behind, received_at, stops, self._parse, look_back)
        except BrokenJsonError:
            self._tables.roll_back()
            self._tombstones.forget()
            return self._read_each(messages, before, behind, received_at, stops, self._parse_strictly, look_back)

    def _read_each(
        self,
        messages: Sequence[Message],
        before: Position,
        behind: Callable[[int], Position],
        received_at: float,
        stops: bool,
        parse: _ParseTopic,
        look_back: LookBack,
    ) -> Read:
        parts, refused, unknown = _Parts(self._tables), list[Refused](), list[Message]()
        count = repeated = 0
        for message in messages:
            try:
                said = self._read_record(message, parse, look_back)
                if said is Tombstone.REPEATED:
                    repeated += 1
                elif said is Tombstone.UNKNOWN:
                    unknown.append(message)
                else:
                    parts.add(said, message)
                    self._tombstones.note(message, said)
            except NoEventError as error:
                refused.append(Refused(message, str(error)))
                if stops:
                    break
            count += 1
        held = parts.select_filled()
        for part in held:  # before any of them tells of shapes
            part.look()
        batches = [part.finish(self._name, before, received_at) for part in held[:-1]]
        last = held[-1] if held else Part(_NOWHERE, self._tables)
        batches.append(last.finish(self._name, behind(count), received_at))
        tombstones = sum(message.value() is None for message in messages[:count])
        left_out = sum(part.headers_left_out for part in held)
        return Read(batches, refused, count, tombstones, tombstones - repeated - len(unknown), unknown, left_out)

    def _read_record(self, message: Message, parse: _ParseTopic, look_back: LookBack) -> Parsed | Tombstone:
        if message.value() is None:
            return self._tombstones.read(message, look_back)
        return self._read_value(message, parse)

    def _read_value(self, message: Message, parse: _ParseTopic) -> Parsed:
        parsed = self._name_kind(_parse_whole(parse, message.topic(), message.value() or b""))
        if parsed.kind is Marker.MESSAGE and parsed.origin.kind in OF_BINARY_LOGS:
            raise NoEventError("it is a logical message, and a binary log has none")
        if parsed.snapshot is not None and not parsed.snapshot.id:
            parsed = name_snapshot(parsed, message.headers() or ())
        return parsed

    def _read_many(self, messages: Sequence[Message]) -> Part | None:
        """By columns, or else by fields; None for records of which some must be read one by one."""
        parts: list[Part] = []
        for first in range(0, len(messages), _COLUMN_RECORDS):
            some = messages[first : first + _COLUMN_RECORDS]
            if self._read_alike(some, parts):
                continue
            for begin in range(0, len(some), _FIELD_RECORDS):
                if not self._read_plain(some[begin : begin + _FIELD_RECORDS], parts):
                    return None
        return parts[0]

    def _read_alike(self, messages: Sequence[Message], parts: list[Part]) -> bool:
        values = [message.value() for message in messages]
        if None in values:
            return False
        alike = self._alike.read(values)  # type: ignore[arg-type]  # no None is there
        if alike is None:
            return False
        part = self._find_part(alike.origin, parts)
        return part is not None and part.fill_alike(alike, messages)

    def _read_plain(self, messages: Sequence[Message], parts: list[Part]) -> bool:
        plain = read_plain(messages)
        if plain is None:
            return False
        part = self._find_part(plain.origin, parts)
        return part is not None and part.fill(plain, messages)

    def _find_part(self, origin: Origin, parts: list[Part]) -> Part | None:
        """The part that holds all of the records; None for a record of another origin. parts: that one, or none yet."""
        if not parts:
            parts.append(Part(origin, self._tables))
        return parts[0] if parts[0].origin == origin else None

    def _name_kind(self, parsed: Parsed) -> Parsed:
        """A record that does not name its transaction is of the kind of those from the same database before it."""
        origin = parsed.origin
        if origin.kind:
            self._kinds[origin.host, origin.database] = origin.kind
            return parsed
        kind = self._kinds.get((origin.host, origin.database), _KIND_UNSAID)
        return parsed._replace(origin=origin._replace(kind=kind))

    def _parse(self, topic: str, value: bytes) -> Parsed:
        """By the format of the topic's record before, or any other."""
        try:
            return self._form_of_topic[topic](value)
        except (KeyError, NoEventError, *NOT_OF_THE_FORMAT):
            return self._parse_as_any(topic, value)

    def _parse_strictly(self, topic: str, value: bytes) -> Parsed:
        """With a look into the values, too."""
        try:
            require_json(value)
        except BrokenJsonError:
            raise NoEventError("it is no JSON") from None
        return self._parse(topic, value)

    def _parse_as_any(self, topic: str, value: bytes) -> Parsed:
        reason = ""
        for _, parse in FORMS:
            try:
                parsed = parse(value)
            except NOT_OF_THE_FORMAT:
                continue
            except NoEventError as error:
                reason = reason or str(error)
            else:
                self._form_of_topic[topic] = parse
                return parsed
        other = name_other_record(value)
        raise NoEventError(other or reason or "it is none of the formats event, envelope and debezium")


class _Parts:
    """Where records go that are read one by one."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._order = Order()
        self._parts: list[Part] = []

    def add(self, parsed: Parsed, message: Message) -> None:
        """A change. NoEventError when it is not whole."""
        number = self._order.place(parsed, message)
        if number == len(self._parts):
            self._parts.append(Part(parsed.origin, self._tables))
        self._parts[number].add(parsed, message)

    def select_filled(self) -> Sequence[Part]:
        """One behind the other."""
        return [part for part in self._parts if part.count]


def _parse_whole(parse: _ParseTopic, topic: str, value: bytes) -> Parsed:
    """What a record says, however deep its values are. Raises nothing but NoEventError: it is one of many records."""
    try:
        try:
            return parse(topic, value)
        except RecursionError:
            return _parse_otherwise(parse, topic, cut_out(value, DEPTH_OF_VALUES))
        except NoEventError:
            if (veiled := veil_surrogates(value)) is None:
                raise
            return _parse_otherwise(parse, topic, veiled)
    except BrokenJsonError:
        raise NoEventError("it is no JSON") from None
    except (RecursionError, OverflowError, ValueError):
        raise NoEventError("a field of it has a value that no event has") from None


def _parse_otherwise(parse: _ParseTopic, topic: str, other: Shallow | Veiled) -> Parsed:
    """What a record says of which parts are written otherwise, with its values as they are."""
    parsed = parse(topic, other.text)
    if isinstance(other, Veiled):
        _require_whole_texts(other, parsed)
    return parsed._replace(new=_restore(other, parsed.new), old=_restore(other, parsed.old))


def _require_whole_texts(veiled: Veiled, parsed: Parsed) -> None:
    """Raises NoEventError for half of a surrogate pair outside of the columns' values: no text holds it."""
    held = [bytes(one) for image in (parsed.new, parsed.old) for one in (image or {}).values()]
    if veiled.text.count(veiled.mark) > sum(one.count(veiled.mark) for one in held):
        raise NoEventError("a name or a field of it has half of a surrogate pair")


def _restore(other: Shallow | Veiled, image: Image | None) -> Image | None:
    return None if image is None else {name: Raw(other.restore(bytes(value))) for name, value in image.items()}


_NOWHERE = Origin("kafka", "", "")

_KIND_UNSAID = "sql"
"""Such a source need not name transactions."""

_MANY = 32
"""Records from which on it pays to read them by fields."""

_FIELD_RECORDS = 250
"""Records of which Python's objects are there at a time: a processor's cache holds those of some hundred."""

_COLUMN_RECORDS = 2000
"""Records whose bytes are looked at together: they and what is found in them fit into a processor's cache."""
