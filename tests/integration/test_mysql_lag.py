"""How far a `mysql` source is behind, in bytes and in seconds; and that an idle server leaves it nowhere behind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest

from psql_streamer.interfaces import Status
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Batch, Stats
from psql_streamer.pipeline.snapshots import SnapshotsOfSources
from sources.mysql.source import MysqlSource
from tests.mariadb import Schema
from tests.mysql_source import read_all, read_until, streaming
from tests.source_at_work import wait_for

LARGE = 200_000


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is asked for the end of its binary log without long pauses."""
    monkeypatch.setattr("sources.mysql.server_watch._SERVER_LOOK_SECONDS", 0.05)


class OneSource:
    """A service of which nothing but its source is there."""

    snapshots = SnapshotsOfSources({}, [])

    def __init__(self, source: MysqlSource) -> None:
        self._source = source

    def status(self) -> Mapping[str, Status]:
        return {"source.db1": self._source.status()}

    def stats(self) -> Mapping[str, Stats]:
        return {"source.db1": self._source.stats()}

    def set_debug(self, on: bool) -> None:
        """There is nothing to switch."""


def lag(metrics: Metrics, unit: str) -> float:
    """As Prometheus reads it; -1 where it is not there."""
    found = re.search(rf'^psql_streamer_lag_{unit}{{source="db1"}} (\S+)$', metrics.render().decode(), re.MULTILINE)
    return float(found[1]) if found else -1.0


@pytest.mark.behaviour("B7")
def test_what_is_not_stored_is_the_lag_in_bytes_and_seconds(every_schema: Schema) -> None:
    schema, metrics = every_schema, Metrics()
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY, note LONGTEXT)")
    with streaming(schema, batchSize=1) as source:
        metrics.watch(OneSource(source))
        metrics.expect(["source.db1"])
        row = f"INSERT INTO t VALUES ({{}}, REPEAT('x', {LARGE}))"
        schema.execute(row.format(1), "FLUSH BINARY LOGS", row.format(2))
        files = [name for name, *_ in schema.query("SHOW BINARY LOGS")][-2:]
        batches = read_all(source, schema)
        for number, batch in enumerate(batches):
            metrics.count_batch("db1", batch, number)
        wait_for(lambda: lag(metrics, "bytes") >= 2 * LARGE, "the bytes of both rows, in two files")
        assert lag(metrics, "bytes") < 3 * LARGE
        wait_for(lambda: 0 < lag(metrics, "seconds") < 30, "the seconds since the commit, by the server's clock")
        # The position behind a transaction comes with the begin of the next one.
        source.confirm(next(batch.position for batch in batches if batch.position.data["file"] == files[1]))
        wait_for(lambda: LARGE <= lag(metrics, "bytes") < 2 * LARGE, "the bytes of the second row")
        wait_until_nothing_is_behind(source, metrics, schema, batches)
        assert lag(metrics, "seconds") == 0


@pytest.mark.behaviour("B7")
def test_the_position_of_an_idle_server_moves_to_the_end_of_its_log(every_schema: Schema) -> None:
    """Though nothing comes that is streamed: transactions of other tables, and files that begin."""
    schema, metrics = every_schema, Metrics()
    schema.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE other (id INT PRIMARY KEY)")
    with streaming(schema, tables=[f"{schema.name}.t"]) as source:
        metrics.watch(OneSource(source))
        schema.execute("INSERT INTO other VALUES (1), (2)", "FLUSH BINARY LOGS", "INSERT INTO other VALUES (3)")
        wait_until_nothing_is_behind(source, metrics, schema)
        schema.execute("FLUSH BINARY LOGS")
        wait_until_nothing_is_behind(source, metrics, schema)


def store(source: MysqlSource, metrics: Metrics, batches: Sequence[Batch]) -> None:
    """What the pipeline does with batches that are durable."""
    for number, batch in enumerate(batches):
        source.confirm(batch.position)
        metrics.note_stored("db1", number)


def wait_until_nothing_is_behind(
    source: MysqlSource, metrics: Metrics, schema: Schema, batches: Sequence[Batch] = ()
) -> None:
    """Store what comes until that is the end of the binary log, in the position and in the metric.

    batches: what has come already.
    """
    [(file, offset, *_)] = schema.query("SHOW BINARY LOG STATUS" if schema.on_mysql else "SHOW MASTER STATUS")

    def is_there(more: list[Batch]) -> bool:
        store(source, metrics, [*batches, *more])
        data = [batch.position.data for batch in (*batches, *more)]
        # MariaDB adds a checkpoint to a file that has begun.
        return bool(data) and (data[-1]["file"], data[-1]["offset"]) >= (file, offset)

    read_until(source, is_there)
    wait_for(lambda: lag(metrics, "bytes") == 0, "no byte behind the end of the binary log")
