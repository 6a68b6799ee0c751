"""`python -m tests.spark_archive`: the archive of Spark's classes that the JVMs of the tests map (class data sharing).

A JVM reads and checks some 15,000 classes before Spark's first batch. With the archive it needs a third less CPU time.
A JVM that starts before it is there, or that has other classes, goes without.
"""

from __future__ import annotations

import os
import sys
from unittest.mock import patch

from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.options import SparkOptions
from tests.java_options import ARCHIVE, FIRST_COMPILER

_DUMP_SECONDS = 120
"""The JVM writes the archive when it ends."""


def main() -> int:
    """Make it, unless it is there."""
    if ARCHIVE.exists():
        return 0
    made = ARCHIVE.with_suffix(f".{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{FIRST_COMPILER} -XX:ArchiveClassesAtExit={made}"
    rules = {"a": {"sql": "SELECT *, length(b) AS n FROM changes"}}
    handler = SparkHandler("spark", SparkOptions.model_validate({"master": "local[2]", "tables": rules}))
    with patch("psql_streamer.spark.jvm._JVM_STOP_SECONDS", _DUMP_SECONDS):
        handler.start()
        handler.stop()
    if not made.exists():
        print("tests: no archive of Spark's classes was made; the tests take longer without", file=sys.stderr)
        return 1
    made.rename(ARCHIVE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
