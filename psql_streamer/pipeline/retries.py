"""Trying again after an error that may pass: with which pauses, for how long, and who is told."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from psql_streamer.errors import Outcome, StreamerError, choose_outcome
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.retry_limits import LIMITS, Backoff, Tried

log = logging.getLogger("psql_streamer.pipeline")


class Retries:
    """Does a piece of work until it works; then the next one. For one thread; `problem` may be read from any.

    part: as in /status. stop: ends every wait, and what is tried. problem: what /status says; "" while all is well.
    last_error: with which the last attempt failed behind which there is another one; None when one has worked. It holds
    what the attempt had at hand.
    """

    def __init__(self, part: str, tried: Tried, metrics: Metrics, stop: threading.Event) -> None:
        self.problem = ""
        self.last_error: StreamerError | None = None
        self._part = part
        self._tried, self._longest_pause = tried, LIMITS[tried].longest_pause
        self._metrics = metrics
        self._stop = stop

    def run(
        self,
        work: Callable[[], None],
        first_pause: float,
        *,
        recover: Callable[[], None] | None = None,
        give_up_at: float = math.inf,
    ) -> bool:
        """True when `work` is done; False when `stop` was set before. Raises an error that does not pass.

        first_pause: seconds; the later ones double. recover: called before every attempt but the first, and part of
        it. give_up_at: by time.monotonic(); an error after it is raised, too.
        """
        backoff = Backoff(first_pause, self._longest_pause)
        began = time.monotonic()
        while not self._stop.is_set():
            try:
                if backoff.attempts and recover is not None:
                    recover()
                work()
            except StreamerError as error:
                if choose_outcome(error) is not Outcome.RETRY or time.monotonic() > give_up_at:
                    raise
                self._wait(error, backoff)
            else:
                self._tell_that_it_works(backoff.attempts, time.monotonic() - began)
                return True
        return False

    def _wait(self, error: StreamerError, backoff: Backoff) -> None:
        """Tell and count the failure, and pause."""
        pause = backoff.draw_pause()
        self._metrics.count_error(self._part, error)
        if self._stop.is_set():
            log.warning("%s: %s (attempt %d, the last: the service stops)", self._part, error, backoff.attempts)
            return
        self.last_error = error
        self.problem = self._describe(error, backoff.attempts)  # before the log, which may be a pipe that nobody reads
        log.warning("%s: %s (attempt %d, next in %.1f s)", self._part, error, backoff.attempts, pause)
        self._metrics.count_retry(self._part)
        self._stop.wait(pause)

    def _describe(self, error: StreamerError, failures: int) -> str:
        attempts = failures - 1 if self._tried is Tried.STREAM else failures
        return f"attempt {attempts} failed: {error}" if attempts else str(error)

    def _tell_that_it_works(self, failures: int, seconds: float) -> None:
        self.problem, self.last_error = "", None
        if failures and not self._stop.is_set():
            log.info("%s: works again, after %d attempts in %.1f s", self._part, failures + 1, seconds)
