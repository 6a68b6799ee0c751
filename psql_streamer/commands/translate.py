"""`psql-streamer translate`: the configuration file for what a Debezium connector's configuration says."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from psql_streamer.connector_files.reading import read_options
from psql_streamer.connector_files.toml_text import render_file
from psql_streamer.connector_files.translation import translate_connector
from psql_streamer.errors import ConfigError

_SETTINGS = {"http": "127.0.0.1:8080", "lmdb": "/var/lib/psql-streamer/positions"}
_HEAD = "Options of the connector that are not below, or that want a look; docs/migrating/debezium.md has the switch:"


def run(arguments: argparse.Namespace) -> None:
    """Print the file. ConfigError: it cannot be read, or is of another connector."""
    made = translate_connector(read_options(_read(arguments.file), arguments.file))
    notes = [_HEAD, *(f"- {note}" for note in made.notes)] if made.notes else []
    sys.stdout.write(render_file(_SETTINGS, made.sections, notes))


def _read(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{name}: {getattr(error, 'strerror', None) or 'is no text in UTF-8'}"]) from None
