"""What became of changes, for people: the change on the left, and what is sent of it on the right."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import msgspec

from psql_streamer.name_counts import escape_unprintable
from psql_streamer.trial.outcome_json import as_json, indent_json, render_key, show_bytes
from psql_streamer.trial.trying import DeadLetter, Event, Tried

NARROWEST, WIDEST = 60, 100

_LEFT_SHARE = 0.42
_BETWEEN = " | "
_ABSENT = "(not sent)"
_OUTCOMES: Mapping[str, tuple[str, str]] = {
    "sent": ("change is sent", "changes are sent"),
    "dropped": ("is dropped by the rule", "are dropped by the rule"),
    "dead-letter": ("is a dead letter", "are dead letters"),
    "no-topic": ("has no topic", "have no topic"),
}


def describe(number: int, tried: Tried, width: int) -> Iterator[str]:
    """The lines of one change, none of them longer than the width, and an empty one behind them."""
    left_width = int(width * _LEFT_SHARE)
    right_width = width - left_width - len(_BETWEEN)
    yield f"--- {number}  {tried.line['op']} {tried.table} {tried.place} ".ljust(width, "-")[:width]
    left = [part for line in _change(tried.line) for part in _wrap_line(line, left_width)]
    right = [part for line in _describe_result(tried) for part in _wrap_line(line, right_width)]
    for one, other in zip_longest(left, right, fillvalue=""):
        yield f"{one.ljust(left_width)}{_BETWEEN}{other}".rstrip()
    yield ""


def summarize_outcomes(outcomes: Mapping[str, int]) -> str:
    """`3 changes are sent, 1 is dropped by the rule`."""
    told = [f"{count} {_OUTCOMES[name][count != 1]}" for name in _OUTCOMES if (count := outcomes.get(name, 0))]
    return ", ".join(told) or "no changes"


def _change(line: Mapping[str, Any]) -> Iterator[str]:
    """The columns of a change. Of an update that has its old row, what it was and what it is."""
    before, after = line.get("before"), line.get("after")
    names = list(dict.fromkeys([*(after or {}), *(before or {})]))
    width = max(map(len, names), default=0)
    for name in names:
        yield f"{name.ljust(width)}  {_describe_values(name, before, after)}"


def _describe_values(name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    old = None if before is None or name not in before else _show_value(before[name])
    if after is None:
        return old or ""
    new = _show_value(after[name]) if name in after else _ABSENT
    return new if old is None or old == new else f"{old} -> {new}"


def _show_value(value: Any) -> str:
    return "NULL" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _describe_result(tried: Tried) -> Iterator[str]:
    if tried.outcome == "dropped":
        yield "dropped by the rule"
    elif tried.outcome == "no-topic":
        yield "no topic: see tableTopicMapping"
    for event in tried.events:
        yield from _describe_event(event)
    if tried.events and tried.without_topic:
        yield f"{_describe_rows(tried.without_topic)} no topic: see tableTopicMapping"
    for letter in tried.dead_letters:
        yield from _describe_dead_letter(letter)


def _describe_rows(count: int) -> str:
    return "1 row has" if count == 1 else f"{count} rows have"


def _describe_event(event: Event) -> Iterator[str]:
    yield f"topic {event.topic or '(none)'}"
    yield f"key {_show_key(event.key)}"
    if event.headers:
        yield "headers " + ", ".join(f"{name}: {show_bytes(value)}" for name, value in event.headers.items())
    if event.value is None:
        yield "no value (a tombstone)"
    else:
        yield from indent_json(as_json(event.value)).splitlines()


def _show_key(key: bytes | None) -> str:
    """A text without quotes: its bytes have none."""
    made = "(none)" if key is None else render_key(key)
    return made if isinstance(made, str) else _show_on_line(made)


def _describe_dead_letter(letter: DeadLetter) -> Iterator[str]:
    yield f"dead letter, topic {letter.topic or '(none: it is counted)'}"
    yield f"reason: {letter.reason}"
    if letter.column is not None:
        yield f"column: {letter.column}"


def _show_on_line(given: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(given), indent=0).decode()


def _wrap_line(line: str, width: int) -> Iterator[str]:
    """A line in pieces; those behind the first are indented. Control characters are shown by their escapes."""
    text = escape_unprintable(line)
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    yield text[:width]
    rest, room = text[width:], max(1, width - len(indent))
    for begin in range(0, len(rest), room):
        yield indent + rest[begin : begin + room]
