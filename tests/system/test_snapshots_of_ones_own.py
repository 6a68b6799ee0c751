"""Snapshots of a source of one's own through the whole service: HTTP, the command line, restarts, the store."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from psql_streamer.cli import main
from tests.service import Service

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

TOKEN = "correct-horse-battery-staple"


def config(gate: Path, more: str = "") -> str:
    return f"""
{more}
[log]
level = "debug"
[source.db1]
type = "tests.snapshot_source:MadeUpSource"
gate = "{gate}"
[sink.nothing]
type = "stub_discard"
sources = ["db1"]
"""


def run(service: Service, *arguments: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["snapshot", *arguments, "-config", str(service.config)])
    return code, out.getvalue(), err.getvalue()


def told(service: Service, *arguments: str) -> Any:
    """What a command prints as JSON."""
    code, out, err = run(service, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def found(service: Service, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(service.text(f"/snapshots/{name}"))
    return shown


def post(service: Service, path: str, body: Any, **headers: str) -> int:
    """The answer's code."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{service.port}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", **headers},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.behaviour("N18", "N20", "N23")
def test_a_snapshot_is_started_paused_killed_resumed_and_followed_to_its_end(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.write_text("4")
    with Service(tmp_path, config(gate, f'httpToken = "{TOKEN}"')) as service:
        service.start()
        assert post(service, "/snapshots", {"tables": ["public.a"]}) == 401
        assert post(service, "/snapshots", {"tables": ["public.a"]}, Authorization="Bearer wrong") == 401
        name = told(service, "start", "--table", "public.a", "--where", "id > 5", "--table", "public.b")["id"]
        service.until(lambda: found(service, name)["rows"] == 400, "four chunks")
        assert post(service, "/snapshots", {"tables": ["public.b"]}, Authorization=f"Bearer {TOKEN}") == 409
        assert told(service, "pause", name)["wanted"] == "pause"
        service.until(lambda: found(service, name)["state"] == "paused", "the pause")
        stored = service.stats()["source.db1"]["snapshots"]
        assert [(one["id"], one["state"], one["tables_left"]) for one in stored] == [(name, "paused", 2)]
        service.until(lambda: "chunk 4" in service.stats()["source.db1"]["stored_position"], "its position")
        service.kill()
        gate.write_text("1000")
        service.start()
        service.until(lambda: found(service, name)["state"] == "paused", "what was wanted before the kill")
        assert found(service, name)["rows"] == 400
        assert found(service, name)["requested"][0] == {"table": "public.a", "where": "id > 5"}
        following = subprocess.Popen(
            [sys.executable, "-m", "psql_streamer", "snapshot", "show", name, "--follow", "-config", service.config],
            stdout=subprocess.PIPE,
            text=True,
        )
        code, out, _ = run(service, "resume", name)
        assert (code, out.split()[0]) == (0, name)
        followed, _ = following.communicate(timeout=60)
        assert following.returncode == 0
        assert f"{name} done: 2 of 2 tables, 1,300 rows" in followed.splitlines()[-1]
        assert run(service, "list")[1].splitlines()[1].split()[:4] == [name, "db1", "done", "2/2"]
        rows = 'psql_streamer_snapshot_rows_total{source="db1"} 1300.0'
        assert rows in service.text("/metrics")
        code, _, err = run(service, "cancel", name)
        assert (code, err) == (1, f"psql-streamer: snapshot {name} has ended: it is done: ask for a new one\n")
        assert service.stop() == 0
    log = service.log.read_text()
    assert f"snapshot {name} was asked for: public.a, public.b" in log
    assert TOKEN not in log
    assert "id > 5" not in log, "a condition may hold a value"


@pytest.mark.behaviour("N26")
def test_a_wait_for_a_snapshot_that_fails_exits_1_and_a_gap_is_accepted_while_the_service_is_stopped(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    gate.write_text("1000")
    with Service(tmp_path, config(gate)) as service:
        service.start()
        code, out, err = run(service, "start", "--table", "public.b", "--table", "public.broken", "--wait")
        assert code == 1
        assert out, err
        name = out.split()[0]
        assert out.splitlines()[-1].startswith(f"{name} failed: 1 of 2 tables, 300 rows")
        assert err == "psql-streamer: public.broken: permission denied: GRANT SELECT ON broken TO streamer\n"
        assert service.status()[0] == 500, "the source says so"
        code, _, err = run(service, "start", "--accept-gap")
        assert (code, err.strip().rpartition(": ")[2]) == (1, "stop the service first")
        assert service.stop() == 0
        code, _, err = run(service, "list")
        where = f"127.0.0.1:{service.port}"
        assert (code, err.split(": ")[1]) == (1, f"nothing answers at {where}")
        again = told(service, "start", "--accept-gap")
        assert again["forgotten_position"].startswith("chunk ")
        service.start(wait=False)
        service.until(lambda: service.status()[0] != 0, "an answer")
        service.until(lambda: found(service, again["id"])["state"] == "failed", "all tables to be taken")
        assert found(service, again["id"])["rows"] == 1300
        assert [one["id"] for one in told(service, "list")["snapshots"]] == [again["id"]]
        assert service.stop() == 0
