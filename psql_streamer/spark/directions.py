"""Columns of a rule's result that say of an event what is not part of it: where it goes, its key, further headers, and
which part of its change it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psql_streamer.errors import HandlerRefused
from psql_streamer.events.assembling import MOST_HEADER_NAMES, is_ours
from psql_streamer.events.json.json_text import join
from psql_streamer.events.json.values import choose_render
from psql_streamer.events.routing import is_topic
from psql_streamer.model import ADDRESS, ArrowType, Column
from psql_streamer.spark.facts import Field
from psql_streamer.spark.lacking import Mask

Direction: TypeAlias = tuple[Field, pa.Array, Mask | None]
"""Such a column, its values by element, and where these cannot be known (None: nowhere)."""

TOPIC, KEY, HEADERS, PART = "_topic", "_key", "_headers", "_part"

_STRING = r"string( collate .*)?|varchar\(\d+\)|char\(\d+\)|void"

_TYPES = {
    TOPIC: (re.compile(_STRING), "a string"),
    KEY: (re.compile(rf"{_STRING}|struct<.*"), "a string, or a struct, which becomes a JSON object"),
    HEADERS: (re.compile(r"map<string,string>|void"), "a map<string,string>"),
    PART: (re.compile("tinyint|smallint|int|bigint"), "an integer"),
}
"""Name -> what Spark calls the types that it may have, and what messages call them."""

DIRECTIONS = frozenset(_TYPES)
"""Names of columns that say something of an event and are not part of it."""

REASONS = {
    TOPIC: "a topic that Kafka does not allow",
    HEADERS: "a header whose name the service uses itself, or which has a NUL in its name",
    PART: "the same part twice",
}
"""What is wrong with a row by its column."""

_REMEDIES = {
    TOPIC: 'give a name of letters, digits, ".", "_" and "-", at most 249 of them, or NULL for what routing says',
    HEADERS: "name it otherwise",
    PART: f"number the rows of a change with integers that differ, or leave {PART} out",
}


def describe_remedy(column: str) -> str:
    """What to do about a row that is refused for a column."""
    return f'{_REMEDIES[column]}, or put such rows aside: onError = "dead-letter"'


def is_direction(field: Field, columns: Sequence[Column]) -> bool:
    """Whether a column of a result is one of these, and not a column of the table that has such a name.

    columns: of the table.
    """
    if field.name not in DIRECTIONS:
        return False
    theirs = field.source is not None and field.source < len(columns) and columns[field.source].name == field.name
    return not theirs


def refuse_wrong_types(fields: Iterable[Field], columns: Sequence[Column], where: str) -> None:
    """HandlerRefused when such a column is of a type that cannot be used."""
    for field in fields:
        if is_direction(field, columns) and not _TYPES[field.name][0].fullmatch(field.kind):
            raise HandlerRefused(
                f"{where}: the column {field.name} is of type {field.kind}", f"make it {_TYPES[field.name][1]}"
            )


@dataclass(frozen=True, slots=True)
class Directed:
    """addresses: by element of a result; None where its rule says nothing of topics, keys and headers. unknown: where
    it would, if the row had the values of which they are made; None: nowhere. fields: of ADDRESS, that the rule says.
    """

    addresses: pa.StructArray | None = None
    unknown: Mask | None = None
    fields: frozenset[str] = frozenset()

    def replace_in(self, before: pa.StructArray, keeps_keys: bool) -> pa.StructArray:
        """What rows say, where the rule says nothing of it. keeps_keys: whether that goes for keys, too."""
        nothing = pa.nulls(len(before), ADDRESS)
        others = {field.name: before if keeps_keys or field.name != "key" else nothing for field in ADDRESS}
        of_fields = others | dict.fromkeys(self.fields, self.addresses)
        return pa.StructArray.from_arrays(
            [pc.struct_field(one, name) for name, one in of_fields.items()], fields=list(ADDRESS)
        )


def read_directions(fields: Iterable[Direction], elements: int, where: str) -> Directed:
    """What a result says of its rows.

    fields: its columns of this kind.
    """
    given = {field.name: (values, absent) for field, values, absent in fields if field.name != PART}
    if not given:
        return Directed()
    absents = [absent for _, absent in given.values() if absent is not None]
    arrays = (_READ[name](given[name][0], elements) if name in given else None for name in _READ)
    addresses = pa.StructArray.from_arrays(
        [
            pa.nulls(elements, kind.type) if array is None else array
            for array, kind in zip(arrays, ADDRESS, strict=True)
        ],
        fields=list(ADDRESS),
    )
    _refuse_many_headers(addresses, where)
    unknown = np.logical_or.reduce(absents) if absents else None
    return Directed(addresses, unknown, frozenset(name.removeprefix("_") for name in given))


def find_refused(addresses: pa.StructArray) -> Iterator[tuple[str, Mask]]:
    """The columns that say something impossible, and of which elements."""
    topics = addresses.field("topic").dictionary_encode()
    legal = [is_topic(name.decode("utf-8", "replace")) for name in topics.dictionary.to_pylist()]
    if not all(legal):
        number = topics.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        yield TOPIC, np.append(~np.array(legal), False)[number]
    headers = addresses.field("headers")
    names = headers.keys.dictionary_encode()
    clash = np.array([is_ours(name.decode()) or b"\0" in name for name in names.dictionary.to_pylist()], np.bool_)
    if clash.any():
        bad = np.zeros(len(addresses), np.bool_)
        row = np.repeat(np.arange(len(addresses)), np.diff(headers.offsets.to_numpy()))
        bad[row[clash[names.indices.to_numpy()]]] = True
        yield HEADERS, bad


def _refuse_many_headers(addresses: pa.StructArray, where: str) -> None:
    names = addresses.field("headers").keys.unique()
    if len(names) > MOST_HEADER_NAMES:
        raise HandlerRefused(
            f"{where}: {HEADERS} has {len(names)} names of headers in one batch, more than {MOST_HEADER_NAMES}",
            "names of headers are no place for data: put it into their values",
        )


def _read_text(values: pa.Array, _: int) -> pa.Array:
    return values.cast(pa.string()).view(pa.binary())


def _read_key(values: pa.Array, elements: int) -> pa.Array:
    if not pa.types.is_struct(values.type):
        return _read_text(values, elements)
    piece = choose_render(ArrowType(values.type))(values)
    return join(piece.open, piece.values, piece.close, nulls=None)


def _read_headers(values: pa.Array, elements: int) -> pa.Array:
    if pa.types.is_null(values.type):
        return pa.nulls(elements, ADDRESS.field("headers").type)
    bounds = values.offsets.to_numpy()
    held = np.where(values.is_valid().to_numpy(zero_copy_only=False), np.diff(bounds), 0)
    if int(held.sum()) != int(bounds[-1] - bounds[0]):
        values = values.take(pa.array(np.arange(len(values))))  # leaves nothing behind a null
        bounds = values.offsets.to_numpy()
    first, last = int(bounds[0]), int(bounds[-1])
    keys, items = (some[first:last].cast(pa.string()).view(pa.binary()) for some in (values.keys, values.items))
    return pa.MapArray.from_arrays(pa.array((bounds - first).astype(np.int32)), keys, items)


_READ: Mapping[str, Callable[[pa.Array, int], pa.Array]] = {
    TOPIC: _read_text,
    KEY: _read_key,
    HEADERS: _read_headers,
}
"""In the order of ADDRESS."""
