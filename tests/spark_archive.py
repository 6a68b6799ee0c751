"""`python -m tests.spark_archive`: the archive of Spark's classes that the JVMs of the tests map.

A JVM that starts before it is there, or that has other classes, goes without.
"""

from __future__ import annotations

import os
import sys

from psql_streamer.errors import StreamerError
from psql_streamer.spark.class_archive import make_class_archive
from tests.java_options import ARCHIVE, FIRST_COMPILER


def main() -> int:
    """Make it, unless it is there."""
    if ARCHIVE.exists():
        return 0
    os.environ["SPARK_SUBMIT_OPTS"] = FIRST_COMPILER
    try:
        make_class_archive(ARCHIVE)
    except StreamerError as error:
        print(f"tests: {error}; the tests take longer without the archive of Spark's classes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
