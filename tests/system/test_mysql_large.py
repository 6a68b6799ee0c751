"""A transaction that is larger than the memory that the service may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from psql_streamer.embedded.mariadb import EmbeddedMariadb
from tests.mariadb import Schema, fresh_schema
from tests.sections import kafka_section, mysql_section
from tests.service import Service

_ROW_BYTES = 1000
_SMALL = 20_000
_MOST_GROWN = 200 << 20
"""What queues hold that are full, and what is under way to Kafka: less than any of these transactions."""


def peak_bytes(service: Service) -> int:
    """The most memory that the process has had: VmHWM of proc(5)."""
    status = Path(f"/proc/{service.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def insert(schema: Schema, service: Service, first: int, last: int) -> None:
    """One transaction of so many rows; return when the brokers have them."""
    schema.execute(f"INSERT INTO t SELECT seq, REPEAT(MD5(seq), {_ROW_BYTES // 32 + 1}) FROM seq_{first}_to_{last}")
    service.until(lambda: delivered(service) == last, f"{last} rows", timeout=400)


def delivered(service: Service) -> int:
    """How many events are in Kafka."""
    return int(service.stats().get("sink.k", {}).get("events", 0))


@pytest.mark.slow
@pytest.mark.behaviour("B10")
@pytest.mark.parametrize(
    "rows", [200_000, pytest.param(1_100_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])], ids=["0.2GB", "1GB"]
)
def test_a_transaction_of_any_size_passes_in_bounded_memory(
    own_mariadb: EmbeddedMariadb, kafka: str, topic_prefix: str, tmp_path: Path, rows: int
) -> None:
    server = own_mariadb
    with fresh_schema(server.host, server.port, server.version, "shop") as schema:
        schema.execute(f"CREATE TABLE t (id INT PRIMARY KEY, note VARCHAR({_ROW_BYTES + 32}))")
        with Service(tmp_path, mysql_section(schema) + kafka_section(kafka, topic_prefix)) as service:
            service.start()
            insert(schema, service, 1, _SMALL)
            before = peak_bytes(service)
            insert(schema, service, _SMALL + 1, rows)
            grown = peak_bytes(service) - before
            assert service.stop() == 0
    assert grown < _MOST_GROWN, f"{grown / 2**20:.0f} MB"
