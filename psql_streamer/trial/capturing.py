"""Changes of a running source, as they come, until there are enough of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from psql_streamer.config import Config
from psql_streamer.errors import ConfigError
from psql_streamer.interfaces import Source
from psql_streamer.model import Relation
from psql_streamer.nearest import suggest_nearest
from psql_streamer.table_patterns import TablePatterns
from psql_streamer.trial.event_lines import EventWriter

_READ_SECONDS = 0.5


def build_source(config: Config, name: str | None) -> Source:
    """The source of this name, or the only one; not started. ConfigError when it is not clear which."""
    if name is None:
        if len(config.sources) != 1:
            raise ConfigError([f"{config.name}: which source: say it with --source: {', '.join(config.sources)}"])
        name = next(iter(config.sources))
    config.require_source(name)
    return config.sources[name].build()


def make_table_filter(table: str) -> Callable[[str, str], bool]:
    """Whether a name or a pattern fits a table (schema, table). ConfigError for a pattern that is none."""
    try:
        patterns = TablePatterns({table: True})
    except ValueError as error:
        raise ConfigError([f"--table: {error}"]) from None
    return lambda schema, name: patterns.find(schema, name) is not None


def require_published(source: Source, table: str, fits: Callable[[str, str], bool]) -> None:
    """ConfigError when the source can say which tables it streams, and none of them is meant. May connect."""
    published = source.list_published()
    if published is not None and not any(fits(one.schema, one.table) for one in published):
        raise ConfigError(
            [f'--table: source {source.name} does not stream "{table}"{_suggest_table(table, published)}']
        )


def capture(source: Source, writer: EventWriter, most: int, timeout: float, tell: Callable[[], None]) -> None:
    """Write the changes that a source gives, until there are so many.

    source: started. timeout: seconds after which it ends with fewer. tell: called again and again, before anything is
    waited for.
    """
    deadline = time.monotonic() + timeout
    while writer.written < most and not source.is_exhausted:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        tell()
        batch = source.read(min(_READ_SECONDS, left))
        if batch is not None:
            writer.write(batch, most)
            source.confirm(batch.position)


def _suggest_table(table: str, published: Sequence[Relation]) -> str:
    return suggest_nearest(table, sorted({str(one) if "." in table else one.table for one in published}))
