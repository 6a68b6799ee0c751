"""`psql-streamer capture`: changes of a table as lines of JSON, for `psql-streamer try`."""

from __future__ import annotations

import argparse
import sys
import time

from psql_streamer import logs
from psql_streamer.config import Config
from psql_streamer.errors import ConfigError
from psql_streamer.interfaces import CaptureRequest
from psql_streamer.trial.capturing import build_source, capture, make_table_filter, require_published
from psql_streamer.trial.event_lines import EventWriter
from psql_streamer.trial.scrubbing import Scrubber

_TELL_SECONDS = 10.0
_HINT = "nothing has changed yet; the rows that are there: --existing"


def run(arguments: argparse.Namespace, config: Config) -> bool:
    """Write the lines to stdout; whether there were any. What is said of it goes to stderr."""
    if arguments.keep and not arguments.scrub:
        raise ConfigError(["--keep names columns that --scrub leaves as they are: say --scrub, too"])
    fits = make_table_filter(arguments.table)
    source = build_source(config, arguments.source)
    request = CaptureRequest(fits, arguments.number, arguments.existing, logs.complain)
    of_its_own = source.make_capture(request)
    require_published(source, arguments.table, fits)
    scrubber = Scrubber(arguments.keep) if arguments.scrub else None
    writer = EventWriter(_put, fits) if scrubber is None else EventWriter(_put, fits, scrubber.scrub)
    progress = _Progress(arguments, writer)
    try:
        of_its_own.start(None)
        capture(of_its_own, writer, arguments.number, arguments.timeout, progress.tell)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:  # whoever reads has enough lines (`| head`), and counted them
        progress.silence()
        raise
    finally:
        of_its_own.stop()
        progress.end()
    if scrubber is not None and writer.written and (unseen := scrubber.list_unseen()):
        logs.complain(f"--keep: no change has a column {', '.join(unseen)}: what was meant has stand-ins")
    return writer.written > 0


def _put(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class _Progress:
    """How far it is, now and then, and at its end."""

    def __init__(self, arguments: argparse.Namespace, writer: EventWriter) -> None:
        self._arguments = arguments
        self._writer = writer
        self._due = 0.0
        self._silent = False

    def tell(self) -> None:
        """Say what is waited for, or how far it is."""
        begins, now = not self._due, time.monotonic()
        if now < self._due:
            return
        self._due = now + _TELL_SECONDS
        if begins and not self._arguments.existing:
            logs.complain(f"waits for {self._arguments.number} changes of {self._arguments.table}; Ctrl-C ends it")
        elif not begins:
            logs.complain(self._shown)

    def silence(self) -> None:
        """Say nothing at the end."""
        self._silent = True

    def end(self) -> None:
        """Nothing more comes."""
        if not self._silent:
            logs.complain(self._shown)

    @property
    def _shown(self) -> str:
        hint = f": {_HINT}" if not self._writer.written and not self._arguments.existing else ""
        return f"captured {self._writer.written} of {self._arguments.number} changes{hint}"
