"""What became of a change, as JSON for programs."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from psql_streamer.trial.trying import DeadLetter, Event, Tried


def tried_to_json(tried: Tried) -> dict[str, Any]:
    """A JSON object, for msgspec."""
    return {
        "table": tried.table,
        "outcome": tried.outcome,
        "change": tried.line,
        "events": [_event_to_json(event) for event in tried.events],
        "without_topic": tried.without_topic,
        "dead_letters": [_dead_letter_to_json(letter) for letter in tried.dead_letters],
    }


def indented(given: Any) -> str:
    """JSON of many lines. Numbers keep their digits."""
    return msgspec.json.format(msgspec.json.encode(given), indent=2).decode()


def as_json(data: bytes | None) -> Any:
    """Bytes that are JSON, as they are; an object with others in base64."""
    if data is None:
        return None
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {"base64": base64.b64encode(data).decode()}
    return msgspec.Raw(data)


def key_as_json(key: bytes | None) -> Any:
    """As `as_json`; a key that is text and no JSON, as rules may give it, is a string."""
    made = as_json(key)
    if key is None or isinstance(made, msgspec.Raw):
        return made
    text = text_of(key)
    return made if text is None else text


def text_of(data: bytes) -> str | None:
    """Bytes that are text of one line; None for others."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def shown(data: bytes) -> str:
    """Text, or base64 of what is none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _event_to_json(event: Event) -> dict[str, Any]:
    return {
        "topic": event.topic or None,
        "key": key_as_json(event.key),
        "value": as_json(event.value),
        "headers": {name: shown(value) for name, value in event.headers.items()},
    }


def _dead_letter_to_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "topic": letter.topic or None,
        "reason": letter.reason,
        "rule": letter.rule,
        "column": letter.column,
        "events": [_event_to_json(event) for event in letter.events],
    }
