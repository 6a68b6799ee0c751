"""Why a JVM ended, by its exit code and what it wrote on stderr.

Only what is known to hold no value of a row is taken from there: messages of exceptions may quote one.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

# org.apache.spark.util.SparkExitCode, and 3 of -XX:+ExitOnOutOfMemoryError.
_CODES = {
    3: "out of memory",
    50: "an exception that nobody caught",
    51: "an exception that nobody caught",
    52: "out of memory",
    53: "no folder for its blocks on disk",
    56: "no heartbeat",
    134: "it crashed",
    137: "killed, as the kernel does when memory runs out",
    143: "terminated",
}
_SIGNALS = {
    signal.SIGKILL: "SIGKILL, as the kernel sends it when memory runs out",
    signal.SIGABRT: "SIGABRT, it crashed",
}

_TELLING = re.compile(
    r"java\.lang\.OutOfMemoryError(?:: [A-Za-z ]+)?"
    r"|insufficient memory for the Java Runtime Environment"
    r"|Could not reserve enough space for [^.]*object heap"
    r"|SIG[A-Z]+ \(0x[0-9a-f]+\)"
    r"|\S*hs_err_pid\d+\.log"
)
_UNRESOLVED = re.compile(r"unresolved dependency: ([^#\s]+)#([^;\s]+);([^:\s]+): ")
_EXCEPTION = re.compile(r"\b(?:[a-z]\w*\.)+[A-Z]\w*(?:Error|Exception)\b")


def describe_exit(code: int) -> str:
    """A process's return code in words; negative: the signal that ended it (subprocess.Popen.returncode)."""
    if code < 0:
        try:
            number = signal.Signals(-code)
        except ValueError:
            return f"signal {-code}"
        return _SIGNALS.get(number, number.name)
    meaning = _CODES.get(code)
    return f"exit code {code}" + (f", {meaning}" if meaning else "")


def find_last_words(said: Sequence[str]) -> str:
    """What the last line that tells a reason says; "" where none does."""
    for pattern in (_TELLING, _EXCEPTION):
        for line in reversed(said):
            found = pattern.search(line)
            if found:
                return found[0]
    return ""


def find_unresolved(said: Sequence[str]) -> list[str]:
    """The Maven coordinates that Ivy did not find."""
    found = (_UNRESOLVED.search(line) for line in said)
    return list(dict.fromkeys(":".join(each.groups()) for each in found if each))
