"""Rules of a configuration, tried in a test of one's own: events and dead letters as plain Python.

    from psql_streamer.testing import try_rule

    def test_the_mail_is_masked():
        result = try_rule("psql-streamer.toml", "public.customers", rows=[{"id": 1, "mail": "ann@example.org"}])
        assert result.events[0]["Columns"]["mail"] != "ann@example.org"

The first call of a session starts Spark, which takes seconds; those that follow share it.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psql_streamer.config import Config, load
from psql_streamer.errors import ConfigError
from psql_streamer.interfaces import Handler
from psql_streamer.model import Batch
from psql_streamer.trial.capturing import make_table_filter
from psql_streamer.trial.event_reading import read_events, read_lines
from psql_streamer.trial.outcome_json import decode_line
from psql_streamer.trial.row_lines import Row, RowChange, render_rows
from psql_streamer.trial.trying import Event, Trial, Tried


@dataclass(frozen=True, slots=True)
class RejectedChange:
    """A change that a rule put aside. column: whose value it is about. topic: where it would go; event: as what."""

    reason: str
    rule: str
    column: str | None
    topic: str
    event: Any


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What became of changes. topics, keys, events, headers: of the records, in their order, one element each.

    events: the records' values. Keys and values are what their JSON is, None for none, and what is no JSON is a string
    where it is text, else bytes; headers are texts. dropped: changes that the rule dropped, as lines of a file of
    events. dead_letters: what it put aside. outcomes: of each change: sent, dropped, dead-letter or no-topic.
    """

    topics: list[str]
    keys: list[Any]
    events: list[Any]
    headers: list[dict[str, str]]
    dropped: list[dict[str, Any]]
    dead_letters: list[RejectedChange]
    outcomes: list[str]


def try_rule(
    config: str | Path,
    table: str,
    *,
    events: str | Path | Sequence[str | Path] = (),
    rows: Sequence[Row | RowChange] = (),
    types: Mapping[str, str] | None = None,
    key: str | Sequence[str] = (),
    full: bool = False,
    sink: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> RuleResult:
    """What a sink's handlers, as the configuration has them, make of changes of a table. Nothing is sent.

    events: files that `psql-streamer capture` wrote; changes of other tables in them pass the handlers, too.
    rows: new rows, or what `inserted`, `updated` and `deleted` give, behind the events. types: PostgreSQL's names for
    columns whose type is not that of their values (`numeric(12,2)`). key: the key's columns; `id` if there is one.
    full: whether the rows' table has REPLICA IDENTITY FULL; else old rows are narrowed to their key, and left out of
    updates that keep it, as PostgreSQL does. sink: its name, where there are several. environ: variables for the
    configuration, beside those of the process.

    HandlerError, with the service's words, when the rule would stop the service; ConfigError, EventsUnreadable.
    """
    files = [events] if isinstance(events, str | Path) else events
    batches = [batch for file in files for batch in read_events(Path(file))]
    if rows:
        lines = render_rows(table, rows, types or {}, [key] if isinstance(key, str) else key, full)
        batches += read_lines(lines, "rows")
    fits = make_table_filter(table)
    _require_changes(batches, table)
    trial = _running.prepare_trial(load(Path(config), {**os.environ, **(environ or {})}), sink)
    return _make_result(list(trial.run(batches, fits)))


def _require_changes(batches: Sequence[Batch], table: str) -> None:
    fits = make_table_filter(table)
    if not any(fits(one.relation.schema, one.relation.table) for batch in batches for one in batch.changes):
        raise ConfigError([f'there is no change of "{table}": name events or rows'])


def _make_result(tried: Sequence[Tried]) -> RuleResult:
    records = [event for one in tried for event in one.events]
    return RuleResult(
        topics=[event.topic for event in records],
        keys=[_parse_value(event.key) for event in records],
        events=[_parse_value(event.value) for event in records],
        headers=[_decode_headers(event) for event in records],
        dropped=[one.line for one in tried if one.outcome == "dropped"],
        dead_letters=[
            RejectedChange(
                letter.reason,
                letter.rule,
                letter.column,
                letter.topic,
                next((_parse_value(event.value) for event in letter.events), None),
            )
            for one in tried
            for letter in one.dead_letters
        ],
        outcomes=[one.outcome for one in tried],
    )


def _parse_value(data: bytes | None) -> Any:
    if data is None:
        return None
    with suppress(ValueError):
        return json.loads(data)
    text = decode_line(data)
    return data if text is None else text


def _decode_headers(event: Event) -> dict[str, str]:
    return {name: value.decode("utf-8", "replace") for name, value in event.headers.items()}


class _Running:
    """The handlers of the last call. Those with an engine run on until others are there that share it."""

    def __init__(self) -> None:
        self._trial: Trial | None = None

    def prepare_trial(self, config: Config, sink: str | None) -> Trial:
        """Handlers of this configuration that are started, and a sink's format."""
        trial, before = Trial(config, sink), self._trial
        if before is not None and _may_go_on(before.handlers, trial.handlers):
            trial.handlers = before.handlers
        else:
            ended = () if before is None else _select_not_shared(before.handlers, trial.handlers)
            for handler in ended:
                handler.stop()
            try:
                trial.start()
            except BaseException:
                trial.stop()
                if ended:
                    self.stop()
                raise
            self.stop()
        self._trial = trial
        return trial

    def stop(self) -> None:
        """Stop what runs."""
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.stop()


def _may_go_on(running: Sequence[Handler], wanted: Sequence[Handler]) -> bool:
    """Whether those that run do what is wanted, as if they were started anew."""
    same = [[(type(one), one.options, one.sink, one.sources) for one in handlers] for handlers in (running, wanted)]
    return same[0] == same[1] and all(one.is_stateless for one in running)


def _select_not_shared(running: Sequence[Handler], wanted: Sequence[Handler]) -> Sequence[Handler]:
    """Those of the handlers that run which have to end before others start."""
    engines = {one.shared_engine for one in (*running, *wanted)} - {None}
    return [one for one in running if one.shared_engine is None or len(engines) > 1]


_running = _Running()
atexit.register(_running.stop)
