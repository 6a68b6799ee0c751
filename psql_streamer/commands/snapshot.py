"""`psql-streamer snapshot`: ask the running service for snapshots, see them, pause, resume and cancel them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from psql_streamer import logs
from psql_streamer.commands.accept_gap import accept_gap
from psql_streamer.commands.key_file import KeyFile
from psql_streamer.commands.key_posting import KeyPoster, fill
from psql_streamer.commands.service_client import ServiceClient
from psql_streamer.commands.snapshot_follow import follow
from psql_streamer.commands.snapshot_text import (
    Snapshot,
    read_snapshots,
    show_details,
    show_overview,
    summarize_snapshot,
)
from psql_streamer.config import Config
from psql_streamer.errors import ConfigError
from psql_streamer.redaction import redact
from psql_streamer.shown_commands import show_command
from psql_streamer.snapshots import SnapshotState


def run(arguments: argparse.Namespace, config: Config) -> bool:
    """Do it; whether that, and a snapshot that was waited for, went well."""
    if arguments.action == "list" and arguments.source is not None:
        # The list of a stranger would be empty, as that of a source that has taken no snapshot.
        config.require_source(arguments.source)
    if arguments.action == "start" and arguments.accept_gap:
        return _accept_gap(arguments, config)
    if arguments.action == "reconcile":
        return _reconcile(arguments, config)
    return _RUN[arguments.action](arguments, ServiceClient(config))


def _start(arguments: argparse.Namespace, client: ServiceClient) -> bool:
    wanted = {"source": arguments.source, "tables": arguments.tables or None}
    shown = client.post("/snapshots", {key: value for key, value in wanted.items() if value is not None})
    if arguments.wait:
        return _follow(arguments, client, shown["id"], shown["source"])
    return _print(arguments, shown, [summarize_snapshot(Snapshot.from_shown(shown))])


def _reconcile(arguments: argparse.Namespace, config: Config) -> bool:
    """Whether every key was looked up. JSON is for its end; bars and lines then go to stderr."""
    client = ServiceClient(config)
    with KeyFile() as keys:
        form = fill(keys, arguments, config)
        wanted = {"source": arguments.source, "tables": [arguments.table], "keys": form.value}
        shown = client.post("/snapshots", {key: value for key, value in wanted.items() if value is not None})
        path = _make_path(shown["id"], shown["source"])
        poster = KeyPoster(client, path, _make_path(shown["id"], shown["source"], "/keys"), keys)
        try:
            snapshot = follow(poster.post, sys.stderr if arguments.json else sys.stdout)
        except KeyboardInterrupt:
            logs.complain(f"snapshot {shown['id']} is cancelled: nobody posts keys to it any more")
            client.delete(path)
            raise
    if arguments.json:
        _print(arguments, poster.last, [])
    for table in snapshot.progress.tables:
        if table.reason:
            logs.complain(redact(f"{table.table}: {table.reason}"))
    return snapshot.progress.state is SnapshotState.DONE


def _list(arguments: argparse.Namespace, client: ServiceClient) -> bool:
    answer = client.get("/snapshots")
    snapshots = read_snapshots(answer)
    if arguments.source is not None:
        answer["snapshots"] = [one for one in answer["snapshots"] if one["source"] == arguments.source]
        snapshots = [one for one in snapshots if one.source == arguments.source]
    return _print(arguments, answer, show_overview(snapshots))


def _show(arguments: argparse.Namespace, client: ServiceClient) -> bool:
    if arguments.follow:
        return _follow(arguments, client, arguments.id, arguments.source)
    shown = client.get(_make_path(arguments.id, arguments.source))
    return _print(arguments, shown, show_details(Snapshot.from_shown(shown)))


def _pause(arguments: argparse.Namespace, client: ServiceClient) -> bool:
    shown = client.post(_make_path(arguments.id, arguments.source, "/pause"))
    return _print(arguments, shown, [summarize_snapshot(Snapshot.from_shown(shown))])


def _resume(arguments: argparse.Namespace, client: ServiceClient) -> bool:
    shown = client.post(_make_path(arguments.id, arguments.source, "/resume"))
    return _print(arguments, shown, [summarize_snapshot(Snapshot.from_shown(shown))])


def _cancel(arguments: argparse.Namespace, client: ServiceClient) -> bool:
    shown = client.delete(_make_path(arguments.id, arguments.source))
    return _print(arguments, shown, [summarize_snapshot(Snapshot.from_shown(shown))])


_RUN: Mapping[str, Callable[[argparse.Namespace, ServiceClient], bool]] = {
    "start": _start,
    "list": _list,
    "show": _show,
    "pause": _pause,
    "resume": _resume,
    "cancel": _cancel,
}


def _follow(arguments: argparse.Namespace, client: ServiceClient, name: str, source: str | None) -> bool:
    """Whether it ended with all of its tables. JSON is for its end; bars and lines then go to stderr."""
    last: list[Any] = []

    def read() -> Snapshot:
        last[:] = [client.get(_make_path(name, source))]
        return Snapshot.from_shown(last[0])

    try:
        snapshot = follow(read, sys.stderr if arguments.json else sys.stdout)
    except KeyboardInterrupt:
        of_source = () if source is None else ("--source", source)
        logs.complain(f"snapshot {name} goes on: {show_command('snapshot', 'show', name, '--follow', *of_source)}")
        raise
    if arguments.json:
        _print(arguments, last[0], [])
    for table in snapshot.progress.tables:
        if table.reason:
            logs.complain(redact(f"{table.table}: {table.reason}"))
    return snapshot.progress.state is SnapshotState.DONE


def _accept_gap(arguments: argparse.Namespace, config: Config) -> bool:
    if arguments.tables or arguments.wait:
        raise ConfigError(["--accept-gap takes all tables at the next start: leave out --table, --where and --wait"])
    source, name, position = accept_gap(config, arguments.source)
    line = f"{name}: position {position} of source {source} is forgotten; its next start takes all tables"
    return _print(arguments, {"id": name, "source": source, "forgotten_position": position}, [line])


def _make_path(name: str, source: str | None, action: str = "") -> str:
    query = "" if source is None else f"?source={quote(source, safe='')}"
    return f"/snapshots/{quote(name, safe='')}{action}{query}"


def _print(arguments: argparse.Namespace, answer: Any, lines: Sequence[str]) -> bool:
    if arguments.json:
        json.dump(answer, sys.stdout, ensure_ascii=False, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)
    return True
