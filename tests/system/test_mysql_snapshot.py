"""Snapshots of a MySQL source through the whole service: the first start, the command line, a restart."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from psql_streamer.cli import main
from tests.mariadb import Schema
from tests.sections import mysql_section
from tests.service import Service

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

_SINK = """
[sink.nothing]
type = "stub_discard"
sources = ["db1"]
"""


def _run(service: Service, *arguments: str) -> tuple[int, str]:
    """The exit code and what is printed."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = main(["snapshot", *arguments, "-config", str(service.config)])
    return code, out.getvalue()


@pytest.mark.behaviour("N33")
def test_the_rows_of_a_mysql_source_are_sent_at_the_first_start_and_when_they_are_asked_for(
    schema: Schema, tmp_path: Path
) -> None:
    with schema.session() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        cursor.executemany("INSERT INTO t VALUES (%s)", [(number,) for number in range(100)])
    with Service(tmp_path, mysql_section(schema, snapshot="initial") + _SINK) as service:
        service.start()
        service.until(lambda: "done, 100 rows of 1 table" in service.text("/status"), "the first snapshot")
        code, told = _run(service, "start", "--table", f"{schema.name}.t", "--where", "id < 10", "--wait")
        assert code == 0, told
        assert "10 rows" in told
        code, told = _run(service, "start", "--table", "nowhere")
        assert code == 1
        assert "nowhere is not streamed" in told
        service.kill()
        service.start()
        _, told = _run(service, "list")
        assert told.count("done") >= 2, told
        assert 'psql_streamer_snapshot_rows_total{source="db1"} 110' in service.text("/metrics")
        assert service.stop() == 0
