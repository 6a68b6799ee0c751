"""`psql-streamer try`: what the rules make of captured changes. Nothing is sent, and no position moves."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from psql_streamer import logs
from psql_streamer.commands.trial_text import NARROWEST, WIDEST, describe, summarize_outcomes
from psql_streamer.config import Config
from psql_streamer.errors import ConfigError
from psql_streamer.model import Batch
from psql_streamer.trial.capturing import make_table_filter
from psql_streamer.trial.event_reading import read_events
from psql_streamer.trial.outcome_json import indent_json, render_tried
from psql_streamer.trial.trying import Trial, Tried


def run(arguments: argparse.Namespace, config: Config) -> bool:
    """Print what becomes of the changes; True, or the error with which the service would stop.

    Values are printed, because they were asked for, and never logged.
    """
    fits = make_table_filter(arguments.table or "*.*")
    batches = [batch for path in arguments.events for batch in read_events(path)]
    _require_some(arguments, batches, fits)
    trial = Trial(config, arguments.sink)
    for name, table in trial.list_changelogs():
        logs.complain(f"lookup {name} begins with the rows that {table} has now, unless they are among the events")
    try:
        trial.start()
        _print(arguments, trial.run(batches, fits))
    finally:
        trial.stop()
    return True


def _require_some(arguments: argparse.Namespace, batches: Sequence[Batch], fits: Callable[[str, str], bool]) -> None:
    tables = {str(one.relation): one.relation for batch in batches for one in batch.changes}
    if not any(fits(table.schema, table.table) for table in tables.values()):
        what = f'no change of "{arguments.table}"' if arguments.table else "no change"
        known = f"; there are changes of {', '.join(sorted(tables))}" if tables else ""
        raise ConfigError([f"--events: {', '.join(map(str, arguments.events))}: {what}{known}"])


def _print(arguments: argparse.Namespace, tried: Iterator[Tried]) -> None:
    if arguments.json:
        every = list(tried)
        outcomes = dict(Counter(one.outcome for one in every))
        told = {"changes": [render_tried(one) for one in every], "outcomes": outcomes}
        sys.stdout.write(f"{indent_json(told)}\n")
        return
    width = max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))
    counts = Counter[str]()
    for number, one in enumerate(tried, 1):
        counts[one.outcome] += 1
        sys.stdout.writelines(f"{line}\n" for line in describe(number, one, width))
    sys.stdout.write(f"{summarize_outcomes(counts)}\n")
