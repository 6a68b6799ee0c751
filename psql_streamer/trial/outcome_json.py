"""What became of a change, as JSON for programs."""

from __future__ import annotations

import base64
import json
from typing import Any

from psql_streamer.trial.trying import DeadLetter, Event, Tried


def tried_to_json(tried: Tried) -> dict[str, Any]:
    """A JSON object."""
    return {
        "table": tried.table,
        "outcome": tried.outcome,
        "change": tried.line,
        "events": [event_to_json(event) for event in tried.events],
        "dead_letters": [_dead_letter_to_json(letter) for letter in tried.dead_letters],
    }


def event_to_json(event: Event) -> dict[str, Any]:
    """A record; its key and value parsed where they are JSON."""
    return {
        "topic": event.topic or None,
        "key": parsed(event.key),
        "value": parsed(event.value),
        "headers": {name: shown(value) for name, value in event.headers.items()},
    }


def parsed(data: bytes | None) -> Any:
    """What the bytes are as JSON; an object with them in base64 for what is none."""
    try:
        return None if data is None else json.loads(data)
    except ValueError:
        return {"base64": base64.b64encode(data or b"").decode()}


def shown(data: bytes) -> str:
    """Text, or base64 of what is none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _dead_letter_to_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "topic": letter.topic or None,
        "reason": letter.reason,
        "rule": letter.rule,
        "column": letter.column,
        "events": [event_to_json(event) for event in letter.events],
    }
