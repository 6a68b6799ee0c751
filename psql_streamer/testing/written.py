"""What arrives where a sink writes, and what should."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from psql_streamer.events.options import EventOptions
from psql_streamer.model import Batch
from psql_streamer.options import SinkOptions


class WrittenEvent(NamedTuple):
    """An event as it arrived. topic, headers: None where nobody can say, because a sink keeps none."""

    key: bytes | None
    value: bytes | None
    topic: str | None = None
    headers: Mapping[str, bytes] | None = None


_Said: TypeAlias = tuple[bytes | None, tuple[tuple[str, bytes], ...] | None]
"""The value of an event, and its headers."""

_Place: TypeAlias = tuple[str | None, bytes | None]
"""The topic and the key of events."""


def render_expected(options: SinkOptions, batches: Iterable[Batch]) -> list[WrittenEvent] | None:
    """The events that a sink of these options makes of batches; None where its options do not say it."""
    if not isinstance(options, EventOptions):
        return None
    encoder, found = options.make_encoder(), []
    for batch in batches:
        records = encoder.encode(batch)
        headers = {name: column.to_pylist() for name, column in records.headers.items()}
        for at, (key, value) in enumerate(zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True)):
            of_one = {name: column[at] for name, column in headers.items() if column[at] is not None}
            found.append(WrittenEvent(key, value, records.look_up_topic(at), of_one))
    encoder.stop()
    return found


def find_difference(
    before: Sequence[WrittenEvent], after: Sequence[WrittenEvent], expected: Sequence[WrittenEvent]
) -> str:
    """How what has come differs from what was expected, in words; empty where it does not.

    The order of events without a key, and of those with different ones, is left open.
    """
    sample = next(iter(after), WrittenEvent(None, None))
    had, has = _group_by_key(before), _group_by_key(after)
    wanted = _group_by_key([_leave_out_unknown(event, sample) for event in expected])
    for place in has.keys() | wanted.keys():
        old, should = had[place], wanted[place]
        new, where = has[place][len(old) :], _describe_place(place)
        if place[1] is None:
            new = sorted((Counter(has[place]) - Counter(old)).elements(), key=repr)
            should = sorted(should, key=repr)
        if len(new) != len(should):
            return f"{where} has {len(new)} events and should have {len(should)}"
        if new == should:
            continue
        if sorted(new, key=repr) == sorted(should, key=repr):
            return f"{where} has its events in another order"
        at, (one, other) = next(
            (at, both) for at, both in enumerate(zip(new, should, strict=True)) if both[0] != both[1]
        )
        return f"{where}: event {at + 1} has {_show(one)} and should have {_show(other)}"
    return ""


def _leave_out_unknown(event: WrittenEvent, sample: WrittenEvent) -> WrittenEvent:
    """What of an event a sink keeps that keeps what it does of the sample."""
    return event._replace(
        topic=None if sample.topic is None else event.topic, headers=None if sample.headers is None else event.headers
    )


def _group_by_key(events: Iterable[WrittenEvent]) -> defaultdict[_Place, list[_Said]]:
    found: defaultdict[_Place, list[_Said]] = defaultdict(list)
    for event in events:
        headers = None if event.headers is None else tuple(sorted(event.headers.items()))
        found[event.topic, event.key].append((event.value, headers))
    return found


def _describe_place(place: _Place) -> str:
    topic, key = place
    return f"key {key!r}" + ("" if topic is None else f" in topic {topic}")


def _show(said: _Said) -> str:
    value, headers = said
    return f"the value {value!r}" + ("" if headers is None else f" and the headers {dict(headers)!r}")
