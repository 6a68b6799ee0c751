"""Sinks that keep nothing."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from psql_streamer.lsn import Lsn
from psql_streamer.model import (
    POSTGRESQL,
    Batch,
    LogicalMessage,
    Rejection,
    ReplicaIdentity,
    SourceInfo,
    Transactions,
    Truncate,
)
from psql_streamer.options import SinkOptions
from psql_streamer.pgoutput.wal_position import WalPosition
from sinks.stub import StubDiscardSink, StubLogSink
from tests.columns import postgres_column, postgres_table
from tests.spark_changes import shop

ORDERS = postgres_table(1, "public", "orders", ReplicaIdentity.DEFAULT, (postgres_column("id", 23, key=True),))


def test_a_verbose_line_stays_one_line_whatever_a_prefix_holds(caplog: pytest.LogCaptureFixture) -> None:
    message = LogicalMessage("a\nINFO forged" + "b" * 1000, b"x", 0, -1, 1, -1)
    sink = StubDiscardSink("s", SinkOptions.model_validate({"type": "stub", "sources": ["db1"], "verbose": True}))
    with caplog.at_level(logging.INFO):
        sink.write(replace(batch_of(0), messages=(message,)))
    assert caplog.messages[0] == ".a\\nINFO forged" + "b" * 50 + "...: 1 message"


def batch_of(truncates: int) -> Batch:
    return Batch(
        SourceInfo(POSTGRESQL, "db1", "localhost", "shop"),
        WalPosition(Lsn(0x16B374D848)).position,
        Transactions(np.array([1], np.uint64), np.array([0], np.int64)),
        truncates=tuple(Truncate(ORDERS, i, i, 1, 0, False, False) for i in range(truncates)),
        nbytes=100,
    )


def options(**section: Any) -> SinkOptions:
    return SinkOptions.model_validate({"type": "stub_log", "sources": ["db1"]} | section)


@pytest.mark.parametrize("kind", [StubDiscardSink, StubLogSink])
def test_a_stub_counts_what_passes(kind: type[StubDiscardSink]) -> None:
    sink = kind("stub", options())
    sink.start()
    sink.write(batch_of(2))
    sink.write(batch_of(3))
    sink.stop()
    assert sink.stats() == {"events": 5, "bytes": 200, "batches": 2, "dead_lettered": 0}
    assert sink.status().ok
    assert not list(sink.check())


def test_a_stub_counts_what_a_handler_put_aside() -> None:
    sink = StubDiscardSink("stub", options())
    sink.write(replace(batch_of(2), rejections=(Rejection(shop(), "a reason", None, "a rule"),)))
    assert (sink.stats()["events"], sink.stats()["dead_lettered"]) == (2, 4)


def test_the_logging_stub_logs_a_line_per_batch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        StubLogSink("stub", options()).write(batch_of(2))
    assert caplog.messages == ["2 truncate, up to 16/B374D848"]


def test_verbose_adds_a_line_per_table_and_action(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        StubLogSink("stub", options(verbose=True)).write(batch_of(2))
    assert "public.orders: 1 truncate" in caplog.messages


def test_the_discarding_stub_is_silent_until_debug_is_switched_on(caplog: pytest.LogCaptureFixture) -> None:
    sink = StubDiscardSink("stub", options())
    with caplog.at_level(logging.INFO):
        sink.write(batch_of(1))
        assert caplog.messages == []
        sink.set_debug(True)
        sink.write(batch_of(1))
        assert len(caplog.messages) == 1
        sink.set_debug(False)
        sink.write(batch_of(1))
        assert len(caplog.messages) == 1


def test_a_stub_takes_batches_without_handlers_unless_the_section_names_some() -> None:
    assert options().handlers == ()
    assert options(handlers=["spark"]).handlers == ("spark",)
