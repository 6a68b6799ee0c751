"""Whether the executors of a cluster can run functions of rules: their Python, and the modules that it finds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '?([A-Za-z_][\w.]*)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"\n]+)"')
_LOST = "ExecutorLostFailure"

_INSTALL = "install it there, or name it in pyFiles of [spark]"
_SET_PYTHON = "set spark.pyspark.python in [spark.conf] to the one that they have"


def find_missing(spark: SparkSession, modules: Sequence[str], cluster: str) -> HandlerError | None:
    """What keeps an executor from importing the modules of rules; None when nothing does. Runs one job.

    cluster: what messages call it.
    """
    from pyspark.sql import functions as f

    probe = f.udf(_make_prober(tuple(modules)), "string", useArrow=False)
    try:
        [[told]] = spark.range(1).select(probe("id")).collect()
    except Exception as error:
        return find_executor_error(error, cluster) or HandlerUnavailable(
            f"the executors of {cluster} ran no Python ({type(error).__name__})", "look at their logs"
        )
    for module, why in json.loads(told).items():
        return HandlerRefused(f"the executors of {cluster} cannot import {module} ({why})", _INSTALL)
    return None


def find_executor_error(error: Exception, cluster: str) -> HandlerError | None:
    """What an executor lacks, if that is why a job failed: no row is to blame."""
    text = str(error)
    program = _NO_PROGRAM.search(text)
    if program is not None:
        return HandlerUnavailable(f"the executors of {cluster} have no {program[1]}", _SET_PYTHON)
    if "PYTHON_VERSION_MISMATCH" in text:
        return HandlerUnavailable(f"the executors of {cluster} have another Python than the service", _SET_PYTHON)
    missing = _MISSING.search(text)
    if missing is not None:
        return HandlerUnavailable(f"the executors of {cluster} have no module {missing[1]}", _INSTALL)
    return None


def executors_died(error: Exception) -> bool:
    """Whether a job failed because a task ended one executor after the other."""
    return _LOST in str(error)


def _make_prober(modules: tuple[str, ...]) -> Callable[[int], str]:
    """A function inside of another travels as code: executors have no module of ours."""

    def missing(_: int) -> str:
        import importlib
        import json

        told = {}
        for module in modules:
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                told[module] = f"there is no module {error.name}"
            except ImportError:
                told[module] = "ImportError"
            except Exception:
                # A module may want a session when it is imported; its functions travel as code, and do without.
                told.pop(module, None)
        return json.dumps(told)

    return missing
