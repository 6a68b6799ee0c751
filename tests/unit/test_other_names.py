"""What somebody is told who writes another product's name for a type."""

from __future__ import annotations

import pytest

from psql_streamer import plugins
from psql_streamer.errors import ConfigError

SOURCES = {
    "mariadb": "mysql",
    "mysql8": "mysql",
    "postgresql": "postgres",
    "pg": "postgres",
    "PG-15": "postgres",
    "jdbc": "sql",
    "sqlite3": "sql",
    "redpanda": "kafka",
}
SINKS = {"redpanda": "kafka", "kafka-connect": "kafka", "stdout": "stub_log", "null": "stub_discard"}


@pytest.mark.parametrize("name", SOURCES)
def test_the_source_that_reads_a_product_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f'"{name}" is not a known source; did you mean {SOURCES[name]}\\?'):
        plugins.load_source_class(name)


@pytest.mark.parametrize("name", SINKS)
def test_the_sink_that_writes_to_a_product_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f'"{name}" is not a known sink; did you mean {SINKS[name]}\\?'):
        plugins.load_sink_class(name)


def test_a_name_that_nobody_is_called_gets_the_list() -> None:
    with pytest.raises(ConfigError, match='"zebra" is not a known sink; known: kafka, '):
        plugins.load_sink_class("zebra")
