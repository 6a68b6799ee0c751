"""The status page that a browser gets: one document, no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from string import Template
from typing import Any

from psql_streamer import __version__
from psql_streamer.interfaces import Status
from psql_streamer.lsn import Lsn
from psql_streamer.model import Stats
from psql_streamer.redaction import redact

REFRESH_SECONDS = 3

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="$refresh">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
:root { color-scheme: light dark; --good: #1a7f4b; --bad: #c4322b; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; }
h1 small { font-weight: normal; opacity: .7; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .5rem .75rem .5rem 0; text-align: left; vertical-align: top; }
th[scope=row] { font-weight: 600; white-space: nowrap; }
dl { display: grid; font-size: .85rem; font-variant-numeric: tabular-nums; gap: 0 1rem;
     grid-template-columns: auto 1fr; margin: 0; }
dt { opacity: .7; white-space: nowrap; }
dd { margin: 0; overflow-wrap: anywhere; }
td:last-child { min-width: 17rem; }
a { margin-right: 1rem; }
.ok { color: var(--good); font-weight: 600; }
.problem { color: var(--bad); font-weight: 600; }
@media (max-width: 48rem) {
  thead { display: none; }
  tr { border-bottom: 1px solid var(--line); display: block; padding: .5rem 0; }
  th[scope=row], td, td:last-child { border: 0; display: block; min-width: 0; padding: .1rem 0; }
  th[scope=row], td:nth-child(2) { display: inline-block; margin-right: .75rem; }
}
</style>
</head>
<body>
<h1>psql-streamer <small>$version</small> <span class="$state">$state</span></h1>
<table>
<thead><tr><th>Part</th><th>State</th><th>Reason</th><th>Counters</th></tr></thead>
<tbody>
$rows</tbody>
</table>
<p><a href="/status">/status</a> <a href="/stats">/stats</a> <a href="/metrics">/metrics</a>
<a href="/openapi.json">/openapi.json</a></p>
</body>
</html>
""")

_ROW = Template("""<tr><th scope="row">$part</th><td class="$state">$state</td><td>$reason</td><td>$counters</td></tr>
""")


def status_page(status: Mapping[str, Status], stats: Mapping[str, Stats]) -> str:
    """HTML with a row for every part: its state, the reason, its counters."""
    state = _state(all(part.ok for part in status.values()))
    return _PAGE.substitute(
        refresh=REFRESH_SECONDS,
        title=f"{state}: psql-streamer",
        version=escape(__version__),
        state=state,
        rows="".join(_row(name, part, stats.get(name, {})) for name, part in status.items()),
    )


def _row(name: str, status: Status, stats: Stats) -> str:
    return _ROW.substitute(
        part=escape(name), state=_state(status.ok), reason=escape(redact(status.reason)), counters=_counters(stats)
    )


def _counters(stats: Stats) -> str:
    items = (f"<dt>{escape(_label(key))}</dt><dd>{escape(_shown(key, stats[key]))}</dd>" for key in stats)
    return f"<dl>{''.join(items)}</dl>" if stats else ""


def _label(key: str) -> str:
    return key.replace("_", " ").replace("lsn", "LSN")


def _shown(key: str, value: Any) -> str:
    """Positions as PostgreSQL writes them, counts with their thousands apart."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(Lsn(value)) if key.endswith("lsn") else f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(name, count)}" for name, count in value.items())
    return str(value)


def _state(ok: bool) -> str:
    return "ok" if ok else "problem"
