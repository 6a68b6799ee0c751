"""Libraries that a driver takes for an account's way to log in, where they are not installed."""

from __future__ import annotations

import re

from psql_streamer.errors import SourceRefused

_NAMED = re.compile(r"'(\w+)' package is required")


def explain_missing_library(error: RuntimeError, server: str, instead: str) -> SourceRefused:
    """Our error for PyMySQL's: it raises a RuntimeError that names the package. instead: what to do without it."""
    found = _NAMED.search(str(error))
    package = found[1] if found else "what it names"
    return SourceRefused(
        f"no session with {server} ({error})", f"pip install {package} beside psql-streamer, or {instead}"
    )
