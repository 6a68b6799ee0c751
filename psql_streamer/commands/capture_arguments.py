"""The arguments of `psql-streamer capture`. It loads nothing: every command has its parser made."""

from __future__ import annotations

import argparse

DEFAULT_CHANGES = 100
DEFAULT_SECONDS = 60.0


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command alone."""
    command.add_argument("--source", metavar="SOURCE", help="its name, where there are several")
    command.add_argument(
        *("--table", "-t"), required=True, metavar="TABLE", help="schema.table, or a pattern as in the configuration"
    )
    command.add_argument(
        *("--number", "-n"),
        type=_count,
        default=DEFAULT_CHANGES,
        metavar="N",
        help=f"how many changes; default: {DEFAULT_CHANGES}",
    )
    command.add_argument(
        "--timeout",
        type=_parse_seconds,
        default=DEFAULT_SECONDS,
        metavar="SECONDS",
        help=f"end with fewer changes after so long; default: {DEFAULT_SECONDS:g}",
    )
    command.add_argument(
        "--existing", action="store_true", help="the rows that are there, as READ changes, in place of changes to come"
    )
    command.add_argument(
        "--scrub", action="store_true", help="replace every value by one of the same type and shape that tells nothing"
    )
    command.add_argument(
        "--keep",
        type=_parse_names,
        default=frozenset(),
        metavar="COLUMN,...",
        help="columns that --scrub leaves as they are",
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is not a number of changes above 0")
    return int(text)


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return seconds


def _parse_names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())
