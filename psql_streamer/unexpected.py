"""Errors that nobody has foreseen, in the log: where they come from, and not their own text. A library's message may
quote a value.
"""

from __future__ import annotations

import logging
import traceback


def log_unexpected(log: logging.Logger, where: str, error: BaseException, method: str = "") -> None:
    """where: the part, or the request. method: of the part, which raised it."""
    trace = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s: unexpected %s%s\n%s", where, type(error).__name__, f" in {method}" if method else "", trace)
