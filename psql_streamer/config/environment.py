"""The environment: overrides of single keys, and the handful of variables that start a service with no file.

    PSQL_STREAMER__SOURCE__DB1__BATCH_SIZE=500     source.db1.batchSize
    PG_HOST PG_DATABASE KAFKA_BROKERS ...          one postgres source, one kafka sink

Values are taken as they are: the shell or the container runtime has expanded them already.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli

from psql_streamer.config.document import Document, KeyPath, fold, show_path
from psql_streamer.config.problems import Problems
from psql_streamer.errors import ConfigError
from psql_streamer.redaction import is_secret

NAME = "environment"
"""How messages call a configuration without a file."""

VARIABLE_PREFIX = "PSQL_STREAMER__"
_NEAR_PREFIX = "PSQL_STREAMER_"
_OF_KUBERNETES = re.compile(r"_(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT|PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)$")

_REQUIRED = ("PG_HOST", "PG_DATABASE", "KAFKA_BROKERS")
# libpq's names of what PG_* give.
_DSN_KEYWORDS = {
    "host": "PG_HOST",
    "port": "PG_PORT",
    "dbname": "PG_DATABASE",
    "user": "PG_USERNAME",
    "password": "PG_PASSWORD",
}
_HTTP = "127.0.0.1:8080"


def build_document(environ: Mapping[str, str]) -> Document:
    """The configuration that the PG_* and KAFKA_* variables stand for; ConfigError when too few are set.

    Without any of them the document is empty, for PSQL_STREAMER__ variables to fill, if there are some of a source or
    a sink: a container sets one for the address alone.
    """
    missing = [name for name in _REQUIRED if not environ.get(name)]
    if len(missing) == len(_REQUIRED):
        if any(name.upper().startswith((f"{VARIABLE_PREFIX}SOURCE__", f"{VARIABLE_PREFIX}SINK__")) for name in environ):
            return Document(NAME, {})
        wanted = ", ".join(_REQUIRED)
        raise ConfigError([f"no configuration: give -config FILE, or set the environment variables {wanted}"])
    if missing:
        raise ConfigError(
            [f"environment variable {name}: is not set: a service without -config FILE needs it" for name in missing]
        )
    source, sink = ("source", "postgres"), ("sink", "kafka")
    return Document(
        NAME,
        {
            "http": _HTTP,
            "lmdb": str(_state_folder(environ) / "positions"),
            "source": {
                "postgres": {
                    "type": "postgres",
                    "dsn": _build_dsn(environ),
                    "publication": environ.get("PG_PUBLICATION") or "psql_streamer",
                    "replicationSlot": environ.get("PG_SLOT") or "psql_streamer",
                }
            },
            "sink": {
                "kafka": {
                    "type": "kafka",
                    "sources": ["postgres"],
                    "hosts": [host.strip() for host in environ["KAFKA_BROKERS"].split(",") if host.strip()],
                    "topicPrefix": environ.get("KAFKA_TOPIC_PREFIX") or environ["PG_DATABASE"],
                }
            },
        },
        variables={
            (*source, "dsn"): "PG_HOST, PG_PORT, PG_DATABASE, PG_USERNAME or PG_PASSWORD",
            (*source, "publication"): "PG_PUBLICATION",
            (*source, "replicationSlot"): "PG_SLOT",
            (*sink, "hosts"): "KAFKA_BROKERS",
            (*sink, "topicPrefix"): "KAFKA_TOPIC_PREFIX",
        },
    )


def override(document: Document, environ: Mapping[str, str], problems: Problems) -> None:
    """Put the value of every PSQL_STREAMER__ variable at its place in the document.

    Names are compared without case and separators; what is not there yet is made, in lower case. The options of the
    section then say how its keys are really written.
    """
    for name in sorted(environ):
        if name.upper().startswith(VARIABLE_PREFIX):
            _set_value(document, name, name[len(VARIABLE_PREFIX) :].split("__"), environ[name], problems)


def find_ignored(environ: Mapping[str, str], keys: Collection[str], tables: Collection[str]) -> list[str]:
    """Warnings about variables that read like ours, but for an underscore behind the prefix: nothing is set by them.

    keys: those at the top of a file that have a value. tables: the others. Any other name is somebody else's, and so
    are those that Kubernetes makes of a service's name.
    """
    found = []
    for name in sorted(environ):
        rest = name[len(_NEAR_PREFIX) :]
        if not name.upper().startswith(_NEAR_PREFIX) or rest.startswith("_") or _OF_KUBERNETES.search(name):
            continue
        first = rest.split("_")[0]
        if fold(rest) in {fold(key) for key in keys}:
            meant = VARIABLE_PREFIX + rest
        elif fold(first) in {fold(table) for table in tables} and first != rest:
            meant = f"{VARIABLE_PREFIX}{first}__..."
        else:
            continue
        what = "two underscores stand behind PSQL_STREAMER and between levels"
        found.append(f"environment variable {name} has no effect: {what}, as in {meant}")
    return found


def _set_value(document: Document, name: str, keys: list[str], text: str, problems: Problems) -> None:
    table: Any = document.tree
    path: KeyPath = ()
    for number, key in enumerate(keys, 1):
        if not isinstance(table, dict) or not key:
            problems.add((), f"environment variable {name}: {show_path(path) or 'this'} is not a table of settings")
            return
        written = next((known for known in table if fold(known) == fold(key)), key.lower())
        path = (*path, written)
        if number == len(keys):
            table[written] = text if is_secret(written) else _parse_value(text)
            document.variables[path] = name
            document.texts[path] = text
        else:
            if written not in table:
                table[written] = {}
                document.variables[path] = name
            table = table[written]


def _parse_value(text: str) -> Any:
    """What the text is in TOML: `500`, `true`, `["a", "b"]`; anything that is not TOML is a string."""
    try:
        return tomli.loads(f"value = {text}\n").get("value", text) if "\n" not in text else text
    except (tomli.TOMLDecodeError, RecursionError):
        return text


def _build_dsn(environ: Mapping[str, str]) -> str:
    return " ".join(
        f"{keyword}={_quote_value(environ[variable])}"
        for keyword, variable in _DSN_KEYWORDS.items()
        if environ.get(variable)
    )


def _quote_value(value: str) -> str:
    """A value of a libpq connection string (libpq, "Keyword/Value Connection Strings")."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _state_folder(environ: Mapping[str, str]) -> Path:
    """The folder for our state, made as the XDG base directory specification wants it: private, on an absolute path."""
    state = Path(environ.get("XDG_STATE_HOME", ""))
    home = Path(environ.get("HOME") or "/")
    folder = (state if state.is_absolute() else home / ".local" / "state") / "psql-streamer"
    with suppress(OSError):  # the store says so when it is not there
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
