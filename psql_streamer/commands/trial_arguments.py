"""The arguments of `psql-streamer try`. It loads nothing: every command has its parser made."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command alone."""
    command.add_argument(
        *("--table", "-t"), metavar="TABLE", help="schema.table, or a pattern; default: all tables of the events"
    )
    command.add_argument(
        *("--events", "-e"),
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="what capture wrote; repeatable, in the order in which the changes came",
    )
    command.add_argument("--sink", metavar="SINK", help="its name, where there are several")
    command.add_argument("--json", action="store_true", help="print one JSON object")
