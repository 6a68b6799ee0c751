"""A sink that is taken out of the configuration for a while, or comes later, lacks rows: that is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.database import Database
from tests.kafka_reader import consume
from tests.sections import kafka_section, postgres_section
from tests.service import Service

pytestmark = pytest.mark.slow


@pytest.mark.behaviour("R5")
def test_a_sink_that_is_back_after_a_while_says_how_far_the_source_has_come_without_it(
    database: Database, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    kept, back = (kafka_section(kafka, f"{topic_prefix}{name}", name) for name in ("kept", "back"))
    with Service(tmp_path, postgres_section(database) + kept + back) as service:
        both = service.config.read_text()
        alone = both.replace(back, "")

        def serve(config: str, row: int) -> str:
            """Start, have a row delivered, stop; the reason of the sink that comes and goes."""
            service.config.write_text(config)
            service.start()
            database.execute("INSERT INTO t VALUES (%s)", row)
            service.until_durable(database)
            reason = str(service.status()[1]["parts"].get("sink.back", {}).get("reason", ""))
            assert service.stop() == 0
            return reason

        assert "without it" not in serve(both, 1)
        serve(alone, 2)
        told = "source.db1 has come to 0/"
        said = _check(service.config, both)
        assert said.count(told) == 1
        assert f"sink.back: warning: {told}" in said
        reason = serve(both, 3)
        assert reason.startswith("wrote up to ")
        assert told in reason
        assert "psql-streamer snapshot start --source db1 " in reason
        assert service.log.read_text().count(f"sink.back: {told}") == 1
        assert "without it" not in serve(both, 4), "it is told until the next restart"
        assert told not in _check(service.config, both)
    rows = [len(consume(kafka, [f"{topic_prefix}{name}.public.t"])) for name in ("kept", "back")]
    assert rows == [4, 3]


def _check(file: Path, config: str) -> str:
    file.write_text(config)
    command = [sys.executable, "-m", "psql_streamer", "check", "-config", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
