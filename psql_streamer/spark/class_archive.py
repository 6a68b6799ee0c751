"""`python -m psql_streamer.spark.class_archive FILE`: an archive of Spark's classes for the JVMs that start later.

A JVM reads and checks some 15,000 classes before Spark's first batch. One that maps an archive of them takes some
half of the CPU time until then ("class data sharing", java(1)). The archive is that of one release of Java and
of pyspark: a JVM of another one, or with other options, goes without, and says nothing of it.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from psql_streamer.errors import StreamerError
from psql_streamer.redaction import redact
from psql_streamer.spark.jvm import JAVA_OPTIONS, Jvm
from psql_streamer.spark.options import SparkOptions
from psql_streamer.spark.prepared import make_prepared_rules
from psql_streamer.spark.warm_up import warm_up

_USAGE = "usage: python -m psql_streamer.spark.class_archive FILE"

_WRITE_SECONDS = 180.0
"""The JVM writes the archive when it ends."""


def main(arguments: Sequence[str]) -> int:
    """Make the archive that the one argument names; the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write(f"{_USAGE}\n")
        return 2
    path = Path(arguments[0]).absolute()
    try:
        make_class_archive(path)
    except StreamerError as error:
        sys.stderr.write(f"{redact(str(error))}\n")
        return 1
    sys.stdout.write(f"{path}: {path.stat().st_size / 1e6:.0f} MB\n")
    return 0


def make_class_archive(path: Path) -> None:
    """Start Spark once, and have its JVM write the archive. One that is there is replaced when the new one is whole.

    StreamerError: the file cannot be made, or Spark does not start.
    """
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise StreamerError(f"{path} cannot be made", f"make {path.parent} a folder that this user may write to")
    made = path.with_name(f".{path.name}.{os.getpid()}")
    option = shlex.quote(f"-XX:ArchiveClassesAtExit={made}")
    try:
        _run_spark_once(SparkOptions.model_validate({"master": "local[2]", "conf": {JAVA_OPTIONS: option}}))
        if not made.exists():
            raise StreamerError("the JVM has written no archive", f"look at the free space of {path.parent}")
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)


def _run_spark_once(options: SparkOptions) -> None:
    jvm = Jvm(options)
    try:
        warm_up(jvm.spark, make_prepared_rules(jvm.spark))
        jvm.spark.stop()
    finally:
        jvm.stop(_WRITE_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
