"""What the threads of a pipeline share: when to stop, why, and what to do about an error."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from psql_streamer.bounded import Call
from psql_streamer.errors import StreamerError
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.pipeline.retries import Retries
from psql_streamer.retry_limits import Tried
from psql_streamer.shortage import explain_shortage
from psql_streamer.unexpected import log_unexpected

log = logging.getLogger("psql_streamer.pipeline")

_LEAST_START_SECONDS = 5.0
"""The time that every attempt gets, also the last: it says best what is in the way."""

_INTERRUPTED_SECONDS = 2.0
"""The time that a start gets to end after it was interrupted."""


class Lifecycle:
    """stopping: set when the service is to stop. failure: the first error that stopped it.

    start_timeout: seconds for which the start of a part is tried again.
    """

    def __init__(self, metrics: Metrics, start_timeout: float) -> None:
        self.stopping = threading.Event()
        self.failure: StreamerError | None = None
        self._metrics = metrics
        self._start_timeout = start_timeout
        self._interrupted: list[Call[None]] = []
        self._starts: dict[str, Retries] = {}

    def start_problem(self, part: str) -> str:
        """Why the last attempt to start a part has failed, while it is tried again; else ""."""
        retries = self._starts.get(part)
        return retries.problem if retries is not None else ""

    @property
    def hanging(self) -> list[str]:
        """Threads of starts that were interrupted and have not ended."""
        return [attempt.name for attempt in self._interrupted if not attempt.ended]

    def fail(self, part: str, error: BaseException) -> None:
        """A part cannot go on: remember the first such error and stop."""
        self._metrics.count_error(part, error)
        first = self.failure is None
        try:
            known = prefix_part(part, error if isinstance(error, StreamerError) else _make_unexpected_error(error))
            if first:
                self.failure = known
        finally:
            self.stopping.set()  # before the log, which may be a pipe that nobody reads
        if not isinstance(error, StreamerError):
            log_unexpected(log, part, error)
        if not first:
            log.error("%s", known)

    def start(
        self, part: str, start: Callable[[], None], interval: float, interrupt: Callable[[], None] | None = None
    ) -> None:
        """Start a part; what may pass is tried again for a while, so that servers may be started together with it.

        After that it is an error like any other: whoever set a wrong address should not wait for ever to hear of it.
        interrupt: makes a start that waits raise soon; without it a start takes as long as it takes. When the service
        stops meanwhile, the part is left as it is.
        """
        give_up_at = time.monotonic() + self._start_timeout
        retries = self._starts[part] = Retries(part, Tried.START, self._metrics, self.stopping)
        try:
            retries.run(lambda: self._attempt(part, start, interrupt, give_up_at), interval, give_up_at=give_up_at)
        except StreamerError as error:
            self._metrics.count_error(part, error)
            raise prefix_part(part, error) from None
        except Exception as error:
            if (shortage := explain_shortage(error)) is None:
                raise
            self._metrics.count_error(part, shortage)
            raise prefix_part(part, shortage) from None

    def _attempt(
        self, part: str, start: Callable[[], None], interrupt: Callable[[], None] | None, give_up_at: float
    ) -> None:
        attempt = Call(start, f"start {part}")
        seconds = max(give_up_at - time.monotonic(), _LEAST_START_SECONDS)
        attempt.wait(seconds if interrupt else threading.TIMEOUT_MAX, self.stopping)
        if not attempt.ended and interrupt is not None:
            interrupt()
            attempt.wait(_INTERRUPTED_SECONDS, threading.Event())
            self._interrupted.append(attempt)
        if self.stopping.is_set():
            return
        if not attempt.ended:
            raise self._make_late_error(part)
        attempt.require_result()

    def _make_late_error(self, part: str) -> StreamerError:
        """For an attempt that does not end: those before it said what is in the way."""
        last = self._starts[part].last_error
        if last is not None:
            return last
        what = f"{part} did not start within {self._start_timeout:g} s"
        return StreamerError(what, "look whether the server that it waits for answers, or raise startTimeout")


def _make_unexpected_error(error: BaseException) -> StreamerError:
    return explain_shortage(error) or StreamerError(
        f"unexpected {type(error).__name__}", "please report it with the log"
    )


def prefix_part(part: str, error: StreamerError) -> StreamerError:
    """The error with the part's name in front, of the same class."""
    if error.what.startswith(part):
        return error
    # A class of a part's own may have another constructor.
    named = type(error).__new__(type(error))
    named.__dict__.update(error.__dict__)
    StreamerError.__init__(named, f"{part}: {error.what}", error.remedy)
    return named
