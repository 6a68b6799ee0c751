"""What became of a change, as JSON for programs."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from psql_streamer.trial.trying import DeadLetter, Event, Tried


def render_tried(tried: Tried) -> dict[str, Any]:
    """A JSON object, for msgspec."""
    return {
        "table": tried.table,
        "outcome": tried.outcome,
        "change": tried.line,
        "events": [_render_event(event) for event in tried.events],
        "without_topic": tried.without_topic,
        "dead_letters": [_render_dead_letter(letter) for letter in tried.dead_letters],
    }


def indent_json(given: Any) -> str:
    """JSON of many lines. Numbers keep their digits."""
    return msgspec.json.format(msgspec.json.encode(given), indent=2).decode()


def as_json(data: bytes | None) -> Any:
    """Bytes that are JSON, as they are; an object with others in base64, and with JSON that is nested too deeply."""
    if data is None:
        return None
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"base64": base64.b64encode(data).decode()}
    return msgspec.Raw(data)


def render_key(key: bytes | None) -> Any:
    """As `as_json`; a key that is text and no JSON, as rules may give it, is a string."""
    made = as_json(key)
    if key is None or isinstance(made, msgspec.Raw):
        return made
    text = decode_line(key)
    return made if text is None else text


def decode_line(data: bytes) -> str | None:
    """Bytes that are text of one line; None for others."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def show_bytes(data: bytes) -> str:
    """Text, or base64 of what is none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _render_event(event: Event) -> dict[str, Any]:
    return {
        "topic": event.topic or None,
        "key": render_key(event.key),
        "value": as_json(event.value),
        "headers": {name: show_bytes(value) for name, value in event.headers.items()},
    }


def _render_dead_letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "topic": letter.topic or None,
        "reason": letter.reason,
        "rule": letter.rule,
        "column": letter.column,
        "events": [_render_event(event) for event in letter.events],
    }
