"""What Spark raised -> HandlerRefused or HandlerUnavailable.

Spark's messages quote values of rows (CAST_INVALID_INPUT does), so only the name of the error condition is shown,
and the whole message only where it was found while the query was analysed, before any row was seen.
"""

from __future__ import annotations

from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable

# SQLSTATE classes of Spark's error conditions that another attempt may mend: 08 connection, 53 resources,
# 57 operator intervention, 58 system, XX internal; the rest speaks of the query or its data and will not change.
_MAY_PASS = ("08", "53", "57", "58", "XX")


def failure(error: Exception, where: str, alive: bool) -> HandlerError:
    """The error to raise for what Spark raised. where: table and rule. alive: whether the JVM still runs."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    if isinstance(error, HandlerError):
        return error
    if not alive:
        return HandlerUnavailable(f"{where}: the Spark JVM ended", "it is started again")
    if isinstance(error, ParseException | AnalysisException):
        return HandlerRefused(f"{where}: {_first_lines(error)}", "correct the rule in [spark.tables]")
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    if condition and state and not state.startswith(_MAY_PASS):
        return HandlerRefused(
            f"{where}: Spark ended with {condition}",
            "make the rule accept every value, with try_cast, try_divide or a CASE for the values it cannot take",
        )
    return HandlerUnavailable(f"{where}: Spark ended with {condition or type(error).__name__}")


def _first_lines(error: Exception) -> str:
    """An analysis message without the plan and the caret picture that follow it."""
    lines = [line.strip() for line in str(error).split(";\n")[0].splitlines()]
    kept = [line for line in lines if line and not line.startswith(("==", "^", "'", "+-", "-"))]
    return " ".join(kept[:3]).rstrip(".;")
