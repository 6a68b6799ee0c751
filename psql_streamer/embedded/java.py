"""Finding a Java that Spark 4 and Kafka 4 run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from psql_streamer.errors import StreamerError

OLDEST_JAVA = 17
"""Spark 4 and Kafka 4's broker both need at least this."""

_NO_VM = "Error occurred during initialization of VM"
"""What the launcher of a Java says that is there and cannot work, as under a limit of its memory."""

_REMEDY_OF_NO_VM = (
    "raise the limit of memory (ulimit -v, or that of the container), or look at JAVA_TOOL_OPTIONS and JDK_JAVA_OPTIONS"
)
_MOST_OF_REASON = 300

_USUAL_PLACES = (
    "/usr/lib/jvm/*/bin/java",
    "/usr/java/*/bin/java",
    "/opt/java/*/bin/java",
    "/opt/homebrew/opt/openjdk*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
)

_INSTALL_LINES = {
    "apt-get": "apt-get install openjdk-17-jre-headless",
    "dnf": "dnf install java-17-openjdk-headless",
    "apk": "apk add openjdk17-jre-headless",
    "brew": "brew install openjdk@17",
}


def find_java() -> Path:
    """The first java of version 17 or later in JAVA_HOME, PATH and the usual places; StreamerError when none is."""
    too_old: list[str] = []
    for java in _list_candidates():
        shown = _run(java)
        version = _parse_version(shown)
        if version is not None and version >= OLDEST_JAVA:
            return java
        if version is not None:
            too_old.append(f"{java} is Java {version}")
        elif _NO_VM in shown:
            raise StreamerError(f"{java} does not start: {_quote_reason(shown)}", _REMEDY_OF_NO_VM)
    found = f" ({', '.join(too_old)})" if too_old else ""
    raise StreamerError(f"no Java {OLDEST_JAVA} or later found{found}", f"install one: {install_line()}")


def read_java_version(java: Path) -> int | None:
    """The feature release of a java program (17, 21, ...), learnt by running it; None when it does not run."""
    return _parse_version(_run(java))


def _run(java: Path) -> str:
    """What it says of itself; nothing when it does not run."""
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # The version is on stderr, why there is no virtual machine on stdout.
    return ran.stderr + ran.stdout


def _parse_version(shown: str) -> int | None:
    # Up to Java 8 the feature release was the second number: "1.8.0_392".
    found = re.search(r'version "(?:1\.)?(\d+)', shown)
    return int(found[1]) if found else None


def _quote_reason(shown: str) -> str:
    """The lines around the one that says that there is no virtual machine, without their times and tags."""
    lines = [line.strip().rstrip(".") for line in shown.splitlines() if line.strip() and not line.startswith("[")]
    return "; ".join(line for line in lines if _NO_VM not in line)[:_MOST_OF_REASON] or _NO_VM


def install_line() -> str:
    """The command that installs Java with this machine's package manager."""
    return next((line for tool, line in _INSTALL_LINES.items() if shutil.which(tool)), _INSTALL_LINES["apt-get"])


def _list_candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    for pattern in _USUAL_PLACES:
        # The highest version last in name order, first in preference.
        yield from sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
