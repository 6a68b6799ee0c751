"""Finds the keys that are to be looked up, and posts them to the running service as fast as it takes them."""

from __future__ import annotations

import argparse
import sys
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

from psql_streamer import logs
from psql_streamer.commands.key_file import KeyFile
from psql_streamer.commands.service_client import RequestRefused, ServiceClient
from psql_streamer.commands.snapshot_text import Snapshot
from psql_streamer.config import Config
from psql_streamer.errors import ConfigError, StreamerError
from psql_streamer.interfaces import KeysRequest
from psql_streamer.nearest import suggest_nearest
from psql_streamer.snapshots import KeyForm

_KEYS_POSTED_AT_ONCE, _BYTES_AT_ONCE = 5000, 512 << 10
_SHOW_SECONDS = 0.5


def fill(keys: KeyFile, arguments: argparse.Namespace, config: Config) -> KeyForm:
    """Put all keys that are to be looked up there, and say how they are written."""
    if arguments.keys is not None:
        return _fill_from_file(keys, arguments)
    if arguments.form is not None:
        raise ConfigError(["--form is of keys in a file (--keys): of topics the sink's format says it"])
    source = _choose_source(config, arguments.source)
    sink = _choose_sink(config, source, arguments.sink)
    if not arguments.same_keys and (handlers := config.list_handler_names(sink)):
        rules = (
            f"sink {sink} has the handler {', '.join(handlers)}, whose rules may write other keys than the table has"
        )
        raise ConfigError([f"{config.name}: {rules}: say --same-keys if they leave the columns of its key as they are"])
    schema, dot, table = arguments.table.partition(".")
    if not dot:
        raise ConfigError([f"--table: say {arguments.table} with its schema"])
    request = KeysRequest(source, schema, table, arguments.topic, arguments.mixed, logs.complain)
    found = config.sinks[sink].build().find_alive_keys(request)
    keys.add(found.documents, f"sink {sink}")
    logs.complain(f"{len(keys):,} keys of {arguments.table} are there, as the topics of sink {sink} have it")
    return found.form


def _fill_from_file(keys: KeyFile, arguments: argparse.Namespace) -> KeyForm:
    if arguments.sink is not None or arguments.topic is not None or arguments.mixed or arguments.same_keys:
        raise ConfigError(["--sink, --topic, --mixed and --same-keys are of topics, and --keys has them from a file"])
    try:
        if arguments.keys == "-":
            keys.add(sys.stdin.buffer, "stdin")
        else:
            with Path(arguments.keys).open("rb") as file:
                keys.add(file, arguments.keys)
    except OSError as error:
        raise StreamerError(f"{arguments.keys}: {error.strerror}", "name a file that can be read") from None
    return KeyForm(arguments.form or KeyForm.JSON)


def _choose_source(config: Config, source: str | None) -> str:
    if source is None and len(config.sources) == 1:
        return next(iter(config.sources))
    if source is None:
        raise ConfigError([f"{config.name}: which source: say it with --source: {', '.join(config.sources)}"])
    config.require_source(source)
    return source


def _choose_sink(config: Config, source: str, sink: str | None) -> str:
    able = [name for name, part in config.sinks.items() if source in part.options.sources]
    if sink is None and len(able) == 1:
        return able[0]
    if sink is None:
        which = ", ".join(able) or "none takes from it"
        raise ConfigError([f"{config.name}: which sink of source {source}: say it with --sink: {which}"])
    if sink not in able:
        raise ConfigError([f'{config.name}: source {source} has no sink "{sink}"{suggest_nearest(sink, able)}'])
    return sink


class KeyPoster:
    """Posts keys from where the service says on, again and again: it takes as many as it has room for, and begins
    anew behind what is durable when it was started again. last: its last answer.
    """

    def __init__(self, client: ServiceClient, path: str, path_of_keys: str, keys: KeyFile) -> None:
        self._client = client
        self._path = path
        self._path_of_keys = path_of_keys
        self._keys = keys
        self.last: Any = None

    def post(self) -> Snapshot:
        """As many as the service takes for a moment; how the snapshot is then. Errors as of ServiceClient.get."""
        self.last = self._client.get(self._path)
        until = time.monotonic() + _SHOW_SECONDS
        while not Snapshot.from_shown(self.last).progress.state.ended and time.monotonic() < until:
            before = self.last["keys"]["next"]
            if before >= len(self._keys) and self.last["keys"]["complete"]:
                break
            if not self._post_block(before) or self.last["keys"]["next"] == before:
                break
        return Snapshot.from_shown(self.last)

    def _post_block(self, first: int) -> bool:
        """Whether it took keys."""
        block = self._keys.read_block(first, _KEYS_POSTED_AT_ONCE, _BYTES_AT_ONCE)
        complete = b"true" if first + len(block) == len(self._keys) else b"false"
        body = b'{"from":%d,"keys":[%s],"complete":%s}' % (first, b",".join(block), complete)
        try:
            self.last = self._client.post_json(self._path_of_keys, body)
        except RequestRefused as error:
            if error.code != HTTPStatus.CONFLICT:
                raise
            self.last = self._client.get(self._path)  # it has ended, and says why
            return False
        return True
