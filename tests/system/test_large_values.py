"""How much memory one large value takes on its way, and that it takes none when it has gone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.database import Database
from tests.sections import postgres_section
from tests.service import AS_INSTALLED, Service

SIZE = 32 << 20
"""Bytes of the value as the server sends it: a bytea in hex digits."""

SQL = {
    "bytea": f"INSERT INTO t VALUES (1, decode(repeat('616263ff', {SIZE >> 3}), 'hex'), NULL)",
    "text": f"INSERT INTO t VALUES (1, NULL, repeat('abcdefgh', {SIZE >> 3}))",
    "message": f"SELECT pg_logical_emit_message(true, 'm', repeat('abcdefgh', {SIZE >> 3}))",
}


@pytest.fixture
def service(database: Database, kafka: str, topic_prefix: str, tmp_path: Path) -> Service:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, b bytea, c text); CREATE PUBLICATION p FOR TABLE t")
    sink = f"""
    [sink.k]
    type = "kafka"
    sources = ["db1"]
    hosts = ["{kafka}"]
    topicPrefix = "{topic_prefix}"
    messageTopic = "{topic_prefix}.messages"
    deadLetterTopic = "{topic_prefix}.dead"
    """
    return Service(tmp_path, f"{postgres_section(database)}\n{sink}", AS_INSTALLED)


def read_memory(process: int, figure: str) -> int:
    """Bytes of VmRSS, or of VmHWM, the most of that since `forget_peak`."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(figure))


def forget_peak(process: int) -> None:
    Path(f"/proc/{process}/clear_refs").write_text("5")  # proc(5)


def list_children(process: int) -> list[int]:
    threads = Path(f"/proc/{process}/task").iterdir()
    return [int(child) for one in threads for child in (one / "children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", SQL)
def test_a_large_value_takes_few_times_its_size_and_goes(service: Service, database: Database, kind: str) -> None:
    with service:
        service.start()
        database.execute("INSERT INTO t VALUES (0, 'a', 'b')")
        service.until_durable(database)
        [reader] = list_children(service.pid)
        before = [read_memory(process, "VmRSS") for process in (service.pid, reader)]
        for process in (service.pid, reader):
            forget_peak(process)
        database.execute(SQL[kind])
        service.until_durable(database)
        peaks = [read_memory(process, "VmHWM") for process in (service.pid, reader)]
        taken = [(peak - was) / SIZE for peak, was in zip(peaks, before, strict=True)]
        assert taken[0] < 4.5, taken
        assert taken[1] < 1.5, taken
        for number in range(2, 5):
            database.execute("INSERT INTO t VALUES (%s, 'a', 'b')", number)
            service.until_durable(database)
        service.until(lambda: read_memory(service.pid, "VmRSS") - before[0] < SIZE / 2, "the memory to be given back")
