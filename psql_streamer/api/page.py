"""The status page that a browser gets: one document, no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from psql_streamer import __version__
from psql_streamer.api.page_snapshots import show_snapshots
from psql_streamer.interfaces import KnownSnapshot, Status
from psql_streamer.model import Stats
from psql_streamer.redaction import redact

REFRESH_SECONDS = 3

_TEMPLATES = Environment(
    loader=PackageLoader("psql_streamer.api"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True, slots=True)
class _Row:
    """A part as the page shows it. counters: labels and values."""

    name: str
    state: str
    reason: str
    counters: list[tuple[str, str]]


def render_status_page(
    status: Mapping[str, Status], stats: Mapping[str, Stats], known: Mapping[str, Sequence[KnownSnapshot]]
) -> str:
    """HTML with a row for every part: its state, the reason, its counters. known: snapshots by source, with bars."""
    return _TEMPLATES.get_template("status_page.html").render(
        refresh_seconds=REFRESH_SECONDS,
        version=__version__,
        state=_describe_state(all(part.ok for part in status.values())),
        parts=[_make_row(name, part, stats.get(name, {})) for name, part in status.items()],
        snapshots=show_snapshots(known),
    )


def _make_row(name: str, status: Status, stats: Stats) -> _Row:
    counters = [(_name_counter(key), _show_value(value)) for key, value in stats.items() if key != "snapshots"]
    return _Row(name, _describe_state(status.ok), redact(status.reason), counters)


def _name_counter(key: str) -> str:
    return key.replace("_", " ").replace("lsn", "LSN")


def _show_value(value: Any) -> str:
    """Counts with their thousands apart. A number of a type of its own, such as Lsn, is shown as its str is."""
    if type(value) is int:
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_show_value(count)}" for name, count in value.items())
    return str(value)


def _describe_state(ok: bool) -> str:
    return "ok" if ok else "problem"
