"""Where a source goes on, and that a position of another stream is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from psql_streamer.checkpoint.resume import Resume, choose_position
from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.errors import PositionRefused
from psql_streamer.interfaces import Source
from psql_streamer.lsn import Lsn
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Position
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.pipeline.lifecycle import Lifecycle
from psql_streamer.pipeline.source_runner import SourceRunner
from sources.kafka.options import KafkaSourceOptions
from sources.kafka.source import KafkaSource
from sources.mysql.options import MysqlOptions
from sources.mysql.places import Place
from sources.mysql.positions import BinlogPosition
from sources.mysql.source import MysqlSource
from sources.postgres.options import PostgresOptions
from sources.postgres.source import PostgresSource
from sources.snapshot.gap_remedies import accept_gap
from sources.sql.options import SqlOptions
from sources.sql.source import SqlSource

HERE = Position({"n": 1}, "n=1")

POSTGRES_SECTION: dict[str, Any] = {
    "type": "postgres",
    "dsn": "dbname=shop",
    "publication": "shop",
    "replication_slot": "shop",
}
MYSQL_SECTION: dict[str, Any] = {"type": "mysql", "dsn": "mysql://root@127.0.0.1/", "tables": ["shop.*"]}
POSTGRES = PostgresSource("shop", PostgresOptions(**POSTGRES_SECTION))
MYSQL = MysqlSource("shop", MysqlOptions(**MYSQL_SECTION))
SQL = SqlSource("shop", SqlOptions(type="sql", url="sqlite:////shop.sqlite", tables=["orders"]))
KAFKA = KafkaSource(
    "shop", KafkaSourceOptions(type="kafka", hosts=["127.0.0.1:9092"], topics=["orders"], group_id="shop")
)


def test_a_source_goes_on_at_its_stored_position() -> None:
    stored = StoredPosition(HERE, {"slot": "s", "timeline": "1"})
    assert choose_position(POSTGRES, stored, {"slot": "s", "timeline": "1", "new": "x"}) == Resume(HERE)
    assert choose_position(POSTGRES, None, {"slot": "s"}) == Resume(None)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (
            {"slot": "other", "timeline": "1"},
            'was made with slot "s", now "other": if that is right, stop the service and accept',
        ),
        ({"file": "shop.sqlite"}, 'was made with slot "s", of which this source knows nothing, timeline "1", of which'),
    ],
)
def test_a_position_of_another_stream_is_refused_with_the_difference(now: dict[str, str], said: str) -> None:
    with pytest.raises(PositionRefused, match="the stored position n=1 was made with") as refused:
        choose_position(POSTGRES, StoredPosition(HERE, {"slot": "s", "timeline": "1"}), now)
    assert said in str(refused.value)


SLOT_CHANGED = StoredPosition(HERE, {"slot": "s"}), {"slot": "other"}


OR_SET = "; or set {} to where to go on"
FORGET = "forget the position (psql-streamer position forget shop) to start "


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        (POSTGRES, accept_gap("shop") + OR_SET.format("walPositionOverride")),
        (MYSQL, accept_gap("shop") + OR_SET.format("positionOverride")),
        (SQL, FORGET + "at startAt"),
        (KAFKA, FORGET + "at the offsets of its group, and of partitions that have none at startAt"),
    ],
    ids=["postgres", "mysql", "sql", "kafka"],
)
def test_what_to_do_is_said_in_the_words_of_the_source(source: Source, remedy: str) -> None:
    with pytest.raises(PositionRefused) as refused:
        choose_position(source, *SLOT_CHANGED)
    assert refused.value.remedy == f"if that is right, {remedy}"


@pytest.mark.parametrize("source", [POSTGRES, MYSQL, SQL, KAFKA], ids=lambda source: type(source).__name__)
def test_the_key_of_the_override_is_one_of_the_options_where_there_is_an_override(source: Source) -> None:
    keys = {field.alias for field in type(source).Options.model_fields.values()}
    follows = type(source).position_override is not Source.position_override
    assert (source.override_key in keys) is follows
    assert bool(source.override_key) is follows


def test_an_override_is_the_operators_word_once() -> None:
    source = PostgresSource("shop", PostgresOptions(**POSTGRES_SECTION, wal_position_override="0/2A"))
    there = source.position_override
    assert there is not None
    stored = StoredPosition(HERE, {"slot": "s"})
    assert choose_position(source, stored, {"slot": "other"}) == Resume(there, overriding=True)
    followed = StoredPosition(HERE, {"slot": "s"}, override=str(there))
    assert choose_position(source, followed, {"slot": "s"}) == Resume(HERE)


OVERRIDING = [
    (PostgresSource("shop", PostgresOptions(**POSTGRES_SECTION, wal_position_override="0/2A")), WalPosition(Lsn(99))),
    (
        MysqlSource("shop", MysqlOptions(**MYSQL_SECTION, position_override="binlog.000007:42")),
        BinlogPosition(None, Place("binlog.000007", 99)),
    ),
]


@pytest.mark.parametrize(("source", "stored"), OVERRIDING, ids=["postgres", "mysql"])
def test_an_override_that_is_followed_is_logged_under_its_own_name(
    source: Source, stored: WalPosition | BinlogPosition, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = source.position_override
    assert wanted is not None
    runner = SourceRunner(
        source, [], Store(tmp_path / "lmdb", 1 << 20), Metrics(), Lifecycle(Metrics(), 1), lambda: None
    )
    runner._log_override(stored.position, wanted)
    assert f"source.shop: {source.override_key}: going back from {stored.position} to {wanted}" in caplog.text
