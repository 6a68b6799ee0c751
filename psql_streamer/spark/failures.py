"""What Spark raised -> HandlerRefused or HandlerUnavailable.

Spark's messages quote values of rows (CAST_INVALID_INPUT does), so only the name of the error condition is shown,
and the whole message only where it was found while the query was analysed, before any row was seen.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable
from psql_streamer.spark.executors import executors_died, find_executor_error
from psql_streamer.spark.metadata import ROW

# SQLSTATE classes of Spark's error conditions that another attempt may mend: 08 connection, 53 resources,
# 57 operator intervention, 58 system, XX internal; the rest speaks of the query or its data and will not change.
_TRANSIENT_SQLSTATES = ("08", "53", "57", "58", "XX")

# The conditions of a Spark Connect server that restarted, and of the client that has heard of it.
_SESSION_GONE = ("INVALID_HANDLE", "NO_ACTIVE_SESSION", "SESSION_")

_AMBIGUOUS = "AMBIGUOUS_REFERENCE"

_PYTHON = "PYTHON_EXCEPTION"

_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n((?:[ ].*\n)+)([A-Za-z_][\w.]*)", re.MULTILINE)
_FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+)', re.MULTILINE)

_PYTHON_ENDED = "Python worker exited unexpectedly"
"""What Spark says of a process of Python's that crashed, ended itself, or was killed, with a row in it."""

_NO_MEMORY = ("UNABLE_TO_ACQUIRE_MEMORY", "OutOfMemoryError")

_NO_PACKAGE = ("PACKAGE_NOT_INSTALLED", "UNSUPPORTED_PACKAGE_VERSION")

_OF_CALLS = (TypeError, ValueError, AttributeError, KeyError, IndexError, ImportError, NotImplementedError)
"""Built-in classes of the exceptions that pyspark raises beside those that it has from the JVM or a server."""

_NO_SPACE = os.strerror(errno.ENOSPC)
"""What Java says of a full disk as well."""

# What the expressions of masks have of their secret.
_LONG_BYTES = re.compile(r"X'[0-9A-Fa-f]{32,}'")

_MOST_CAUSES = 4

_BROADCAST = "java.util.concurrent.ExecutionException"
"""What Spark's broadcast of one side of a join raises for whatever went wrong in it."""

_ABOUT_VALUES = (
    "com.fasterxml.jackson.",
    "java.lang.ArithmeticException",
    "java.lang.NumberFormatException",
    "java.time.",
    "java.util.regex.",
    "javax.xml.stream.",
)
"""Exceptions that functions raise for a value, and Spark passes on as they are. They come again with the value."""

_ENGINE_END_SECONDS = 3.0
"""The time that a JVM may take to end after the error of the job that fails with it."""


class EngineLost(HandlerUnavailable):
    """The engine ended, or ran out of memory, while it ran a job.

    happened: what the job's message says behind table and rule. how: what a row does that makes it happen. cure: what
    to do about such a row; empty for more memory.
    """

    def __init__(self, what: str, remedy: str = "", happened: str = "", how: str = "", cure: str = "") -> None:
        super().__init__(what, remedy)
        self.happened = happened
        self.how = how
        self.cure = cure


class RowsFailed(HandlerRefused):
    """A job failed on the rows that it was given; with others it may work."""


class RowsRefused(RowsFailed):
    """What a rule made of some rows cannot be used. rows: which of the changes. column: of the rule's result."""

    def __init__(self, what: str, remedy: str, rows: NDArray[np.bool_], column: str) -> None:
        super().__init__(what, remedy)
        self.rows = rows
        self.column = column


class Uncoercible(RowsFailed):
    """A value that cannot be cast."""


def explain_failure(
    error: Exception,
    where: str,
    describe_end: Callable[[float], str | None],
    cluster: str = "",
    columns: Sequence[str] = (),
) -> HandlerError:
    """The error to raise for what Spark raised.

    where: table and rule. describe_end: seconds to wait for the JVM's end -> how it ended, None while it runs.
    cluster: what messages call the one that has the executors; empty if the engine is local. columns: names of those
    of the table.
    """
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    if isinstance(error, HandlerError):
        return error
    lacking = find_executor_error(error, cluster) if cluster else None
    if lacking is not None:
        return HandlerUnavailable(f"{where}: {lacking.what}", lacking.remedy)
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    passes = (
        condition is None
        or state is None
        or state.startswith(_TRANSIENT_SQLSTATES)
        or condition.startswith(_SESSION_GONE)
    )
    how = describe_end(_ENGINE_END_SECONDS if passes else 0.0)
    if how is not None:
        happened = f"the Spark JVM ended ({how})"
        return EngineLost(f"{where}: {happened}", "it is started again", happened, f"ends the Spark JVM ({how})")
    if isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError):
        return _explain_unwritten(where, error.errno, error.filename)
    if isinstance(error, ParseException | AnalysisException) or is_of_pyspark(error):
        return _explain_wrong_rule(error, where, condition, columns)
    causes = [condition] if condition else list_causes(error)
    raised = ", because of ".join(causes)
    if not passes or any(name.startswith(_ABOUT_VALUES) for name in causes):
        return _explain_failed_rows(error, where, raised)
    if _NO_SPACE in str(error):
        return _explain_unwritten(where, errno.ENOSPC)
    return _find_lost_engine(error, condition, where, cluster) or HandlerUnavailable(
        f"{where}: Spark ended with {raised}"
    )


def _find_lost_engine(error: Exception, condition: str | None, where: str, cluster: str) -> EngineLost | None:
    """For a job that failed because something ended under it, though the JVM lives."""
    if any(sign in f"{condition} {error}" for sign in _NO_MEMORY):
        happened, remedy = "Spark ran out of memory", "raise spark.driver.memory in [spark.conf]"
        return EngineLost(f"{where}: {happened}", remedy, happened, "takes more memory than Spark has")
    if _PYTHON_ENDED in str(error):
        happened, remedy = "the Python process of its function ended", "it is started again"
        cure = "correct the function, or what it calls, for such a row"
        return EngineLost(f"{where}: {happened}", remedy, happened, "ends the Python process of its function", cure)
    if cluster and executors_died(error):
        happened, remedy = f"executors of {cluster} ended", "look at the logs of its workers"
        return EngineLost(f"{where}: {happened}", remedy, happened, "ends an executor")
    return None


def explain_failed_broadcast(error: HandlerError, where: str) -> HandlerError:
    """For a rule with lookups, whose rows Spark broadcasts in a job of its own: no row of the table is to blame."""
    if _BROADCAST not in error.what:
        return error
    what = f"{where}: a value of a lookup that it joins with cannot be taken: {error.what.removeprefix(f'{where}: ')}"
    return HandlerUnavailable(
        what, "correct it where the lookup reads it, or have the rule take every value: try_cast(LOOKUP.COLUMN AS ...)"
    )


def _explain_wrong_rule(error: Exception, where: str, condition: str | None, columns: Sequence[str]) -> HandlerRefused:
    unclear = _describe_alike_names(columns) if condition == _AMBIGUOUS else ""
    what = f"pyspark raised {describe_pyspark_error(error)}" if is_of_pyspark(error) else _shorten_message(error)
    return HandlerRefused(f"{where}: {what}", unclear or "correct the rule in [spark.tables]")


def is_of_pyspark(error: BaseException) -> bool:
    """Whether pyspark's own code raised it for what it was called with: it comes again with the same call."""
    from pyspark.errors import PySparkException, UnsupportedOperationException

    if not isinstance(error, PySparkException) or getattr(error, "_origin", None) is not None:
        return False
    if isinstance(error, UnsupportedOperationException):  # a Spark Connect server has it with an SQLSTATE
        return error.getSqlState() is None
    return isinstance(error, _OF_CALLS)


def describe_pyspark_error(error: BaseException) -> str:
    """Its condition, as its text may quote values; of a package that is not there the text."""
    condition = str(getattr(error, "getCondition", lambda: None)() or type(error).__name__)
    if not condition.endswith(_NO_PACKAGE):
        return condition
    return f"{condition} ({str(error).strip().removeprefix(f'[{condition}] ').rstrip('.')})"


def _explain_failed_rows(error: Exception, where: str, raised: str) -> RowsFailed:
    accept = "the rule accept every value, with try_cast, try_divide or a CASE for the values it cannot take"
    if raised == _PYTHON:
        accept, raised = "the function accept every value", raised + _describe_python_error(str(error))
    remedy = f'make {accept}, or put such rows aside: onError = "dead-letter"'
    return RowsFailed(f"{where}: Spark ended with {raised}", remedy)


def _describe_python_error(message: str) -> str:
    """The class of the exception that Python code raised, and where. What it says may quote values."""
    found = _TRACEBACK.search(message)
    places = _FRAME.findall(found[1]) if found else []
    if found is None or not places:
        return ""
    file, line = next((place for place in reversed(places) if "/pyspark/" not in place[0]), places[-1])
    return f" ({found[2]} at {file}:{line})"


def _describe_alike_names(columns: Sequence[str]) -> str:
    """What to do about columns of a table that Spark takes for one; empty where it has none."""
    named: dict[str, str] = {}
    for column in columns:
        if column.lower() == ROW:
            return (
                f"the table has a column {column} of its own beside the handler's: rename it, or use a query that "
                "does not name it, as steps name all columns"
            )
        other = named.setdefault(column.lower(), column)
        if other != column:
            return (
                f"Spark takes the columns {other} and {column} of the table for one, unless [spark.conf] has "
                '"spark.sql.caseSensitive" = true; without it use a query that names neither, as steps name all columns'
            )
    return ""


def _explain_unwritten(where: str, number: int | None, path: str | None = None) -> HandlerUnavailable:
    """Of a file by which rows go to Spark or come back, or that Spark makes for itself. number: of the system's error.
    path: its name, where that is known."""
    folder = tempfile.gettempdir() if path is None else Path(path).parent
    why = "the system refuses it" if number is None else os.strerror(number)
    remedy = "make room there, or start the service again with another folder for temporary files (TMPDIR)"
    if number == errno.ENOENT:
        remedy = "Spark is started again with another one; keep what clears temporary files away from it"
    return HandlerUnavailable(f"{where}: a file for Spark cannot be written in {folder}: {why}", remedy)


def list_causes(error: Exception) -> list[str]:
    """Java's exceptions by class or condition, each in front of what it was raised for. Their messages may quote
    values.
    """
    # pyspark has an exception of its own for some of them, as for java.time.DateTimeException
    names, java = list[str](), getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with suppress(Exception):  # the JVM may be gone
        while java is not None and len(names) < _MOST_CAUSES:
            names.append(_find_condition(java) or java.getClass().getName())
            java = java.getCause()
    return list(dict.fromkeys(names)) or [type(error).__name__]


def _find_condition(java: Any) -> str:
    """Of an exception that is a SparkThrowable; empty for others."""
    with suppress(Exception):
        return java.getCondition() or ""
    return ""


def _shorten_message(error: Exception) -> str:
    """An analysis message without the plan and the caret picture that follow it."""
    lines = [line.strip() for line in str(error).split(";\n")[0].splitlines()]
    kept = [line for line in lines if line and not line.startswith(("==", "^", "'", "+-", "-"))]
    return _LONG_BYTES.sub("X'***'", " ".join(kept[:3]).rstrip(".;"))
