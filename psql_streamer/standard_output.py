"""What commands print: UTF-8 whatever the locale is, and a message where it cannot be written."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from psql_streamer.errors import StreamerError


@contextmanager
def telling_of_standard_output() -> Iterator[None]:
    """StreamerError where stdout cannot be written, BrokenPipeError where nobody reads it any more.

    Lines of JSON are UTF-8 for whoever reads them, so they are not written in the locale's characters.
    """
    given = sys.stdout
    if type(given) is not io.TextIOWrapper:  # a caller's own
        yield
        return
    sys.stdout = _TellingOutput(
        given.buffer,
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=given.line_buffering,
        write_through=given.write_through,
    )
    try:
        yield
        sys.stdout.flush()
    except BaseException:
        _write_what_is_left(given)
        raise
    finally:
        sys.stdout.detach()
        sys.stdout = given


def _write_what_is_left(given: io.TextIOWrapper) -> None:
    """Or drop it, where it cannot be written: it must not be tried again at exit."""
    try:
        sys.stdout.flush()
    except (_OutputError, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), given.fileno())


class _OutputError(StreamerError):
    """What was printed is not where it should be."""

    def __init__(self, error: OSError) -> None:
        what = os.strerror(error.errno).lower() if error.errno else str(error)
        super().__init__(f"stdout cannot be written: {what}", "make room for it, or write it elsewhere")


class _TellingOutput(io.TextIOWrapper):
    """An error of a write is one of stdout, and not of what is written from."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _OutputError(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _OutputError(error) from error
