"""What `check` says of a schema registry."""

from __future__ import annotations

from collections.abc import Iterator

from psql_streamer.interfaces import Finding, Severity
from psql_streamer.registry.client import LOOK_AT_URL, NO_USABLE_ANSWER, RegistryClient
from psql_streamer.registry.errors import RegistryRefused
from psql_streamer.registry.options import RegistryOptions


def find_problems(options: RegistryOptions) -> Iterator[Finding]:
    """An error if no server answers, or one refuses the client; a warning for each that is silent beside others."""
    try:
        problems = RegistryClient(options).find_problems()
    except RegistryRefused as error:
        yield Finding(Severity.ERROR, error.what, error.remedy)
        return
    severity = Severity.ERROR if len(problems) == len(options.url) else Severity.WARNING
    for problem in problems:
        yield Finding(severity, f"{NO_USABLE_ANSWER} {problem}", LOOK_AT_URL)
