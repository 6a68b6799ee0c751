"""Logging: text for people or JSON for machines, on stderr, without secrets.

The service's loggers are children of `psql_streamer`: `psql_streamer.source.db1`, `psql_streamer.sink.kafka1`. Every
other library speaks from `warning` on.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TextIO

from psql_streamer.config import LogFormat, LogLevel, LogOptions
from psql_streamer.errors import StreamerError
from psql_streamer.log_output import LogOutput, wait_no_longer
from psql_streamer.redaction import redact

__all__ = ["complain", "configure", "is_json", "say", "set_debug", "set_part_debug", "wait_no_longer"]

SERVICE = "psql_streamer"
# The packages that ship parts log under their module's name when no part is concerned.
_OURS = (SERVICE, "sources", "sinks")
_LEVELS = [logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG]
_NAMES = {
    LogLevel.ERROR: logging.ERROR,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.INFO: logging.INFO,
    LogLevel.DEBUG: logging.DEBUG,
}


_configured = {"level": logging.INFO}


def configure(options: LogOptions, verbosity: int = 0, debug: Iterable[str] = (), stream: TextIO | None = None) -> None:
    """Set up logging for the process.

    verbosity: steps from the configured level, up (`-v`) or down (`-q`). debug: parts whose own `debug` is on, as
    `source.db1`. stream: stderr unless given.
    """
    handler = LogOutput(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if options.format is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    _configured["level"] = _choose_level(options.level, verbosity)
    set_debug(on=False)
    for part in debug:
        set_part_debug(part, on=True)


def set_debug(*, on: bool) -> None:
    """Switch debug messages of the whole service while it runs; off is the configured level, for every part."""
    for name in _OURS:
        logging.getLogger(name).setLevel(logging.DEBUG if on else _configured["level"])
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(f"{SERVICE}."):
            logging.getLogger(name).setLevel(logging.NOTSET)


def set_part_debug(part: str, *, on: bool) -> None:
    """Switch debug messages of one part, named as in `/status`: `source.db1`."""
    logging.getLogger(f"{SERVICE}.{part}").setLevel(logging.DEBUG if on else logging.NOTSET)


def is_json() -> bool:
    """Whether stderr is read by a machine, so that every line of it has to be JSON."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


def say(line: str) -> None:
    """A line for people on stderr, which a stop waits for no longer than for the log."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogOutput):
            handler.say(line)


def complain(problem: str) -> None:
    """A problem that ends a command, as a line for people, or as JSON where the log is."""
    if is_json():
        logging.getLogger(f"{SERVICE}.cli").error("%s", problem)
    else:
        say(f"psql-streamer: {escape_controls(problem)}")


# A name of a table may hold any of these: its lines must not look like lines of the log, nor steer the terminal.
_SHOWN_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"} | {
    ord("\n"): "\n    ",
    **{code: f"\\u{code:04x}" for code in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}


def escape_controls(message: str) -> str:
    """For people: further lines are indented, and characters that steer a terminal are shown."""
    return message.translate(_SHOWN_CONTROLS)


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO    source.db1: connected`, with the traceback of an unexpected exception."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; more, which are indented, for a traceback and where the message has them."""
        message, traceback = _describe_record(record)
        line = f"{_render_time(record)} {record.levelname:<7} {_name_part(record)}: {escape_controls(message)}"
        return f"{line}\n{traceback}" if traceback else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, part, message, and traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message holds."""
        message, traceback = _describe_record(record)
        entry = {
            "time": _render_time(record),
            "level": record.levelname.lower(),
            "part": _name_part(record),
            "message": message,
        }
        if traceback:
            entry["traceback"] = traceback
        return json.dumps(entry, ensure_ascii=False)


def _describe_record(record: logging.LogRecord) -> tuple[str, str]:
    """The message and the traceback, redacted.

    An error of ours explains itself: its text joins the message, and where it came from shows with debug only.
    """
    message = record.getMessage()
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return redact(message), ""
    if isinstance(error, StreamerError):
        if str(error) not in message:
            message = f"{message}: {error}"
        if not logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
            return redact(message), ""
    return redact(message), redact(logging.Formatter().formatException((type(error), error, error.__traceback__)))


def _name_part(record: logging.LogRecord) -> str:
    return record.name.removeprefix(f"{SERVICE}.")


def _render_time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _choose_level(level: LogLevel, verbosity: int) -> int:
    place = _LEVELS.index(_NAMES[level]) + verbosity
    return _LEVELS[max(0, min(place, len(_LEVELS) - 1))]
