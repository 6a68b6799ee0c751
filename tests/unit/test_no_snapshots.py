"""What is said of a snapshot of a source that takes none: what to do there instead."""

from __future__ import annotations

import pytest

from psql_streamer.interfaces import Source
from psql_streamer.pipeline.snapshot_requests import looks_up_keys, takes_snapshots
from sources.kafka.source import KafkaSource
from sources.mysql.source import MysqlSource
from sources.postgres.source import PostgresSource
from sources.sql.source import SqlSource


@pytest.mark.behaviour("N39")
@pytest.mark.parametrize(("source", "option"), [(SqlSource, "startAt"), (KafkaSource, "--reset-offsets")])
def test_a_source_without_snapshots_names_what_it_has_in_their_place(source: type[Source], option: str) -> None:
    assert not takes_snapshots(source)
    assert option in source.no_snapshots
    if not option.startswith("--"):
        assert option in {field.alias for field in source.Options.model_fields.values()}


@pytest.mark.parametrize("source", [PostgresSource, MysqlSource])
def test_sources_that_read_a_log_take_snapshots(source: type[Source]) -> None:
    assert takes_snapshots(source)


def test_a_source_that_looks_up_no_keys_says_why() -> None:
    assert looks_up_keys(PostgresSource)
    assert not looks_up_keys(MysqlSource)
    assert "collations" in MysqlSource.no_keys
