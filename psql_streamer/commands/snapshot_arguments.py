"""The arguments of `psql-streamer snapshot`. It loads nothing: every command has its parser made."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

_ACTIONS = {
    "start": "ask for a snapshot",
    "reconcile": "look up the keys that a topic or a file has, and send deletes for those that no row has",
    "list": "list the snapshots of all sources",
    "show": "show a snapshot and its tables",
    "pause": "pause a snapshot",
    "resume": "let a paused snapshot go on",
    "cancel": "cancel a snapshot; what was sent of it stays",
}


def add_arguments(command: argparse.ArgumentParser, add_common: Callable[[argparse.ArgumentParser], None]) -> None:
    """The actions and their options. add_common: adds those that every command has."""
    actions = command.add_subparsers(dest="action", metavar="action", required=True)
    for name, text in _ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
        add_common(action)
        if name not in ("start", "reconcile", "list"):
            action.add_argument("id", metavar="ID", help="as `start` and `list` print it")
        action.add_argument("--source", metavar="SOURCE", help="its name, where several come into question")
        action.add_argument("--json", action="store_true", help="print what the service answers, as JSON")
        if name == "show":
            action.add_argument("--follow", action="store_true", help="show its progress until it ends")
        if name == "start":
            _add_start(action)
        if name == "reconcile":
            _add_reconcile(action)


def _add_start(start: argparse.ArgumentParser) -> None:
    start.add_argument(
        *("--table", "-t"),
        action=_Table,
        dest="tables",
        default=[],
        metavar="TABLE",
        help="schema.table, or a pattern; repeatable. Default: all tables",
    )
    start.add_argument(
        "--where", action=_Where, metavar="CONDITION", help="an SQL condition on the rows of the table before it"
    )
    start.add_argument("--wait", action="store_true", help="show its progress until it ends")
    start.add_argument(
        "--accept-gap",
        action="store_true",
        help="for a service that is stopped: forget the stored position, and take all tables at the next start",
    )


def _add_reconcile(reconcile: argparse.ArgumentParser) -> None:
    reconcile.add_argument("--table", "-t", required=True, metavar="TABLE", help="schema.table: whose keys they are")
    reconcile.add_argument("--sink", metavar="SINK", help="whose topics are read, where several come into question")
    reconcile.add_argument("--topic", metavar="TOPIC", help="the only one of the table's topics that is read")
    reconcile.add_argument(
        "--mixed", action="store_true", help="take events that name several hosts, databases or sources"
    )
    reconcile.add_argument(
        "--same-keys", action="store_true", help="the sink's rules leave the columns of the table's key as they are"
    )
    reconcile.add_argument(
        "--keys", metavar="FILE", help="a file of keys in place of topics, a JSON object a line; - for stdin"
    )
    reconcile.add_argument(
        "--form",
        choices=["json", "debezium"],
        help="how the keys of the file are written: as the formats event, envelope and flat do (json, the default)",
    )


class _Table(argparse.Action):
    def __call__(self, _parser: argparse.ArgumentParser, space: argparse.Namespace, value: Any, _: Any = None) -> None:
        space.tables = [*space.tables, {"table": value}]


class _Where(argparse.Action):
    """Of the table that was named last."""

    def __call__(self, parser: argparse.ArgumentParser, space: argparse.Namespace, value: Any, _: Any = None) -> None:
        if not space.tables or "where" in space.tables[-1]:
            parser.error("--where goes behind the --table that it is for, once")
        space.tables = [*space.tables[:-1], {**space.tables[-1], "where": value}]
