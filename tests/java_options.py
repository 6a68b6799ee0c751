"""Options of the JVMs that the tests start, which live for seconds."""

from __future__ import annotations

from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / ".venv" / "spark.jsa"
"""Spark's classes, as `python -m tests.spark_archive` makes it. A JVM goes without if it is not there."""

FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
"""What the second compiler does costs more than it gives, half of a start."""

_UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""An eighth of a start goes into the verification of classes."""

JAVA_OPTIONS = {
    "SPARK_LAUNCHER_OPTS": f"{FIRST_COMPILER} {_UNVERIFIED}",
    "SPARK_SUBMIT_OPTS": f"{FIRST_COMPILER} {_UNVERIFIED} -XX:SharedArchiveFile={ARCHIVE}",
    "KAFKA_OPTS": f"{FIRST_COMPILER} {_UNVERIFIED}",
}
"""Environment variable -> its value."""
