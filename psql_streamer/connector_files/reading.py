"""The options of a connector from a file: JSON as Kafka Connect takes it, or Debezium Server's properties."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from psql_streamer.errors import ConfigError

_SOURCE, _PRODUCER = "debezium.source.", "debezium.sink.kafka.producer."
_PROPERTY = re.compile(r"\s*([^=:\s]+)\s*[=:]\s*(.*?)\s*")

_WANTED = "give the JSON of a connector (GET /connectors/NAME), or the application.properties of Debezium Server"

PRODUCER = "producer.override."
"""What options of the producer begin with, in both forms."""


def read_options(text: str, name: str) -> Mapping[str, str]:
    """The options by name. name: of the file. ConfigError for neither of the two forms."""
    found = _read_json(text, name) if text.lstrip().startswith("{") else _read_properties(text)
    if "connector.class" not in found:
        raise ConfigError([f"{name}: has no connector.class: {_WANTED}"])
    return found


def _read_json(text: str, name: str) -> Mapping[str, str]:
    """The object with `name` and `config`, or the options alone."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError([f"{name}: is no JSON{where}"]) from None
    options = found.get("config", found)
    if not isinstance(options, dict):
        raise ConfigError([f"{name}: its `config` is no object"])
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in options.items()}


def _read_properties(text: str) -> Mapping[str, str]:
    """Those of the source, and of a sink that is Kafka."""
    found = {}
    for line in re.sub(r"\\\r?\n\s*", "", text).splitlines():
        match = None if line.lstrip().startswith(("#", "!")) else _PROPERTY.fullmatch(line)
        if match is None:
            continue
        key, value = match.groups()
        if key.startswith(_SOURCE):
            found[key.removeprefix(_SOURCE)] = value.replace("\\\\", "\\")
        elif key.startswith(_PRODUCER):
            found[PRODUCER + key.removeprefix(_PRODUCER)] = value
        elif key in ("debezium.format.key", "debezium.format.value"):
            found[f"{key.rpartition('.')[2]}.converter"] = value
        elif key == "debezium.format.schemas.enable":
            found["value.converter.schemas.enable"] = value
    return found
