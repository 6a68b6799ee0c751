"""`psql-streamer snapshot`: what it asks for, what it prints, and what it says when something is wrong."""

from __future__ import annotations

import argparse
import http.server
import io
import json
import re
import shlex
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from psql_streamer.api.snapshot_models import SnapshotShown
from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition, StoredSnapshot
from psql_streamer.cli import _build_parser, main
from psql_streamer.commands import snapshot, snapshot_follow
from psql_streamer.commands.service_client import RequestRefused, ServiceAway
from psql_streamer.commands.snapshot_follow import follow
from psql_streamer.commands.snapshot_text import (
    Snapshot,
    show_bars,
    show_details,
    show_duration,
    show_overview,
    summarize_snapshot,
)
from psql_streamer.config import load
from psql_streamer.embedded.ports import free_ports
from psql_streamer.errors import StreamerError
from psql_streamer.interfaces import KnownSnapshot
from psql_streamer.model import Position
from psql_streamer.snapshots import (
    SnapshotProgress,
    SnapshotRequest,
    SnapshotState,
    TableProgress,
    TableRequest,
    TableState,
    Wanted,
)

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

TOKEN = "correct-horse-battery-staple"
NAME = "20261122-203716-ab12"
A = TableProgress("public.a", TableState.READING, 250, 1000, 5, ("250",))
B = TableProgress("public.b", TableState.DONE, 310, 300, 3)
C = TableProgress("public.c", TableState.WAITING, estimated_rows=40)
BROKEN = TableProgress("public.broken", TableState.FAILED, reason="permission denied: GRANT SELECT ON broken TO me")
RUNNING = SnapshotProgress(
    *(NAME, SnapshotState.RUNNING, (B, C, A), True, 1795379836.0, 560, 8, 1, 2, 7.5, 120.0, 75.2)
)


def shown(progress: SnapshotProgress = RUNNING, wanted: Wanted = Wanted.RUN) -> dict[str, Any]:
    """As the service answers."""
    known = KnownSnapshot("db1", progress, (TableRequest("public.a", "id > 5"),), wanted)
    answer: dict[str, Any] = json.loads(SnapshotShown.from_known(known).model_dump_json())
    return answer


def at(progress: SnapshotProgress = RUNNING, wanted: Wanted = Wanted.RUN) -> Snapshot:
    return Snapshot.from_shown(shown(progress, wanted))


def test_what_the_service_answers_is_read_back() -> None:
    assert at() == Snapshot("db1", "run", replace(RUNNING, tables=[B, C, A]))


def test_an_answer_of_another_version_is_told() -> None:
    with pytest.raises(StreamerError, match="as another version does"):
        Snapshot.from_shown(shown() | {"state": "dancing"})


def test_a_line_has_tables_rows_pace_and_what_is_left() -> None:
    assert summarize_snapshot(at()) == (
        f"{NAME} running: 1 of 3 tables, 560 of about 1,340 rows, 120 rows/s, 1 min 15 s left"
    )
    failed = replace(RUNNING, state=SnapshotState.FAILED, reason="public.c was not read")
    assert summarize_snapshot(at(failed)) == f"{NAME} failed: 1 of 3 tables, 560 rows, in 8 s: public.c was not read"


def test_what_is_wanted_is_said_until_it_is_so() -> None:
    assert "running (pause asked): " in summarize_snapshot(at(wanted=Wanted.PAUSE))
    assert f"{NAME} paused: " in summarize_snapshot(at(replace(RUNNING, state=SnapshotState.PAUSED), Wanted.PAUSE))
    assert "paused (cancel asked): " in summarize_snapshot(
        at(replace(RUNNING, state=SnapshotState.PAUSED), Wanted.CANCEL)
    )


def test_details_have_a_bar_for_every_table_those_that_are_read_first() -> None:
    progress = replace(RUNNING, tables=(B, C, A, BROKEN, TableProgress("s.new", TableState.READING, 7)))
    lines = show_details(at(progress))
    assert [line.split()[0] for line in lines[2:]] == ["public.a", "s.new", "public.broken", "public.c", "public.b"]
    assert lines[2] == "public.a       [#####---------------]  25%  reading, 250 of about 1,000 rows"
    assert lines[3] == "s.new          [????????????????????]    ?  reading, 7 rows"
    assert lines[4].endswith("failed, 0 rows: permission denied: GRANT SELECT ON broken TO me")
    assert lines[6] == "public.b       [####################] 100%  done, 310 rows"


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10), (12, 4), (1, 1)])
def test_bars_fit_into_the_terminal(columns: int, lines: int) -> None:
    many = [TableProgress(f"public.a_table_with_a_long_name_{n}", TableState.WAITING) for n in range(500)]
    found = show_bars(at(replace(RUNNING, tables=[*many, A])), columns, lines)
    assert len(found) <= max(lines, 4)
    assert all(len(line) < columns or len(line) <= 3 for line in found)
    if lines > 4:
        assert found[2].startswith("public.a ")
        assert re.fullmatch(r"4\d\d more tables; 501 in all are not .*", found[-1])


def test_the_list_has_columns() -> None:
    own = replace(RUNNING, id="initial", state=SnapshotState.FAILED, reason="public.c was not read")
    lines = show_overview([at(), at(own)])
    assert lines[0].split() == ["ID", "SOURCE", "STATE", "TABLES", "ROWS", "LEFT", "ASKED", "(UTC)"]
    assert lines[1].split("  ")[0] == NAME
    assert re.sub(" +", " ", lines[1]) == f"{NAME} db1 running 1/3 560 1 min 15 s 2026-11-22 20:37:16"
    assert re.sub(" +", " ", lines[2]) == "initial db1 failed 1/3 560 2026-11-22 20:37:16 public.c was not read"
    assert show_overview([]) == ["no snapshots"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599, "59 min 59 s"),
        (3601, "1 h 0 min"),
        (9e4, "25 h 0 min"),
    ],
)
def test_durations_are_read_at_a_glance(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def steps(*found: Snapshot | Exception) -> Callable[[], Snapshot]:
    left = list(found)

    def read() -> Snapshot:
        one = left.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    return read


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_follow, "_PROGRESS_LOOK_SECONDS", 0.0)


DONE = replace(RUNNING, state=SnapshotState.DONE, tables=(replace(A, state=TableState.DONE), B), rows=1310)


@pytest.mark.usefixtures("_at_once")
def test_in_a_terminal_bars_are_written_over_one_another() -> None:
    out = Terminal()
    assert follow(steps(at(), at(DONE)), out).progress.state is SnapshotState.DONE
    first, last = out.getvalue().split("\x1b[5A")
    assert first.count("\n") == 5
    assert last.count("\x1b[2K") == 4, "one table less"
    assert last.endswith("\x1b[J"), "what is left of the lines before is removed"
    assert "100%" in last


@pytest.mark.usefixtures("_at_once")
def test_elsewhere_a_line_is_written_when_something_happens() -> None:
    out = io.StringIO()
    further = replace(RUNNING, rows=561)
    follow(steps(at(), at(further), at(further, Wanted.PAUSE), at(DONE)), out)
    assert "\x1b" not in out.getvalue()
    assert [line.partition(":")[0] for line in out.getvalue().splitlines()] == [
        f"{NAME} running",
        f"{NAME} running (pause asked)",
        f"{NAME} done",
    ]


@pytest.mark.usefixtures("_at_once")
def test_a_restart_of_the_service_is_waited_for_and_told() -> None:
    away, starting = ServiceAway("nothing answers at x", "start it"), RequestRefused(503, "source db1 has not started")
    out = io.StringIO()
    follow(steps(at(), away, starting, away, at(DONE)), out)
    assert [line for line in out.getvalue().splitlines() if "waiting" in line] == ["nothing answers at x: waiting"]


def test_whoever_ends_the_wait_is_told_that_the_snapshot_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def follow_until_interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(snapshot, "follow", follow_until_interrupted)
    folder = tmp_path / "a folder"
    folder.mkdir()
    with answering(202, shown()) as (port, _):
        config = file_of(folder, port)
        assert main(["snapshot", "start", "--wait", "-config", config]) == 130
        said = capsys.readouterr().err
        assert said == (
            f"psql-streamer: snapshot {NAME} goes on: "
            f"psql-streamer snapshot show {NAME} --follow --source db1 -config '{config}'\n"
        )
        command = shlex.split(said.partition("goes on: psql-streamer ")[2])
        assert main(command) == 130


@pytest.mark.usefixtures("_at_once")
def test_a_service_that_stays_away_and_a_refusal_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestRefused):
        follow(steps(RequestRefused(404, "there is no snapshot")), io.StringIO())
    monkeypatch.setattr(snapshot_follow, "PATIENCE_SECONDS", -1.0)
    with pytest.raises(ServiceAway):
        follow(steps(ServiceAway("nothing answers")), io.StringIO())


def parsed(*arguments: str) -> argparse.Namespace:
    return _build_parser().parse_args(["snapshot", *arguments])


def test_a_condition_is_that_of_the_table_before_it() -> None:
    found = parsed("start", "--table", "s.a", "--where", "id > 5", "-t", "s.b", "--table", "s.c", "--where", "x")
    assert found.tables == [{"table": "s.a", "where": "id > 5"}, {"table": "s.b"}, {"table": "s.c", "where": "x"}]
    assert parsed("start").tables == [], "the default stays as it was"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["show"],
        ["start", "--where", "x"],
        ["start", "--table", "a", "--where", "x", "--where", "y"],
        ["list", "--follow"],
        ["pause"],
    ],
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parsed(*arguments)
    assert stopped.value.code == 2


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers what it is told to, and remembers what it was asked."""

    answer: ClassVar[tuple[int, bytes]] = (200, b"{}")
    asked: ClassVar[list[tuple[str, str, str, bytes]]] = []

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.asked.append((self.command, self.path, self.headers.get("Authorization", ""), body))
        code, content = self.answer
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_DELETE = do_GET  # noqa: N815 - the names of BaseHTTPRequestHandler

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


@contextmanager
def answering(code: int, content: Any) -> Iterator[tuple[int, list[tuple[str, str, str, bytes]]]]:
    """A port where everything is answered so, and what was asked there."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    handler = type("Handler", (Answering,), {"answer": (code, body), "asked": []})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1], handler.asked  # type: ignore[attr-defined]
        server.shutdown()


CONFIG = """
http = "{http}"
lmdb = "{folder}/positions"
{more}
[source.db1]
type = "tests.snapshot_source:MadeUpSource"
[sink.nothing]
type = "stub_discard"
sources = ["db1"]
"""


def file_of(folder: Path, http: str | int, more: str = "") -> str:
    path = folder / "psql-streamer.toml"
    address = http if isinstance(http, str) else f"127.0.0.1:{http}"
    path.write_text(CONFIG.format(http=address, folder=folder, more=more))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "method", "path", "body"),
    [
        (["start"], "POST", "/snapshots", {}),
        (
            ["start", "--source", "db1", "--table", "public.a", "--where", "id > 5"],
            "POST",
            "/snapshots",
            {"source": "db1", "tables": [{"table": "public.a", "where": "id > 5"}]},
        ),
        (["show", NAME], "GET", f"/snapshots/{NAME}", None),
        (["show", "a/b", "--source", "d b"], "GET", "/snapshots/a%2Fb?source=d%20b", None),
        (["pause", NAME], "POST", f"/snapshots/{NAME}/pause", None),
        (["resume", NAME], "POST", f"/snapshots/{NAME}/resume", None),
        (["cancel", NAME, "--source", "db1"], "DELETE", f"/snapshots/{NAME}?source=db1", None),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_command_is_one_request_with_the_token(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    method: str,
    path: str,
    body: Any,
    form: str,
) -> None:
    with answering(202, shown()) as (port, asked):
        config = file_of(tmp_path, f":{port}", f'httpToken = "{TOKEN}"')
        more = ["--json"] if form == "json" else []
        assert main(["snapshot", *arguments, *more, "-config", config]) == 0
    sent = b"" if body is None else json.dumps(body).encode()
    assert asked == [(method, path, f"Bearer {TOKEN}", sent)]
    out = capsys.readouterr().out
    if form == "json":
        assert json.loads(out) == shown()
    else:
        assert out.splitlines()[0] == summarize_snapshot(at())


def test_the_list_is_that_of_a_source_where_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(200, {"snapshots": [shown()]}) as (port, asked):
        config = file_of(tmp_path, port, '[source.db2]\ntype = "tests.snapshot_source:MadeUpSource"')
        assert main(["-c", config, "snapshot", "list"]) == 0
        assert NAME in capsys.readouterr().out
        assert main(["-c", config, "snapshot", "list", "--source", "db2", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"snapshots": []}
        assert main(["-c", config, "snapshot", "list", "--source", "db3"]) == 2
        assert 'there is no source "db3"; did you mean db' in capsys.readouterr().err
    assert asked[0] == ("GET", "/snapshots", "", b"")


@pytest.mark.parametrize(
    ("code", "content", "said"),
    [
        (409, {"error": "table s.a is in snapshot x: wait for it"}, "table s.a is in snapshot x: wait for it"),
        (
            401,
            {"error": "token"},
            "the service at {where} wants its httpToken, and {file} has none: give the service's ",
        ),
        (404, b"<html>", "what answers at {where} is no psql-streamer (HTTP 404): look what listens there"),
        (500, {"message": "x"}, "what answers at {where} is no psql-streamer (HTTP 500)"),
        (200, b"[]", "what answers at {where} is no psql-streamer (HTTP 200)"),
        (200, {"x": 1}, "the service speaks of snapshots as another version does: use that version"),
    ],
)
def test_a_refusal_exits_1_with_what_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: int, content: Any, said: str
) -> None:
    with answering(code, content) as (port, _):
        config = file_of(tmp_path, port)
        assert main(["snapshot", "start", "-config", config]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"psql-streamer: {said.format(where=f'127.0.0.1:{port}', file=config)}")


@pytest.mark.parametrize("content", [{}, {"snapshots": 5}, {"snapshots": [{}]}, {"snapshots": [5]}])
def test_a_list_that_another_version_gives_exits_1_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: dict[str, Any]
) -> None:
    for chosen in ([], ["--source", "db1"]):
        with answering(200, content) as (port, _):
            assert main(["snapshot", "list", "-config", file_of(tmp_path, port), *chosen]) == 1
        said = "psql-streamer: the service speaks of snapshots as another version does: use that version\n"
        assert capsys.readouterr().err == said


def test_a_service_that_is_not_running_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [port] = free_ports(1)
    for http_address, where in ((f":{port}", f"127.0.0.1:{port}"), (f"0.0.0.0:{port}", f"127.0.0.1:{port}")):
        assert main(["snapshot", "list", "-config", file_of(tmp_path, http_address)]) == 1
        assert capsys.readouterr().err == (
            f"psql-streamer: nothing answers at {where}: "
            "start the service, or give the configuration that it runs with (-config)\n"
        )


def test_what_hangs_up_and_a_port_that_nobody_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hang_up = threading.Thread(target=lambda: listener.accept()[0].close())
        hang_up.start()
        assert main(["snapshot", "list", "-config", file_of(tmp_path, listener.getsockname()[1])]) == 1
        hang_up.join()
    assert "nothing answers at 127.0.0.1:" in capsys.readouterr().err
    assert main(["snapshot", "list", "-config", file_of(tmp_path, ":0")]) == 1
    assert "is a port that only the service's log tells: set a port with http" in capsys.readouterr().err


def test_a_token_that_is_none_is_refused_and_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for token in ("", "two words", "smile-☺"):
        config = file_of(tmp_path, 1, f'httpToken = "{token}"')
        assert main(["snapshot", "list", "-config", config]) == 2
        err = capsys.readouterr().err
        assert "httpToken: " in err
        assert "must be one or more visible ASCII characters, without blanks" in err
        assert not token or token not in err


def test_the_token_is_in_no_text_of_the_configuration(tmp_path: Path) -> None:
    config = load(Path(file_of(tmp_path, 1, f'httpToken = "{TOKEN}"')), {})
    assert config.http_token == TOKEN
    assert TOKEN not in repr(config)
    assert load(Path(file_of(tmp_path, 1)), {"PSQL_STREAMER__HTTP_TOKEN": "2024"}).http_token == "2024"


STORED = StoredPosition(Position({"chunks": 3}, "chunk 3"), {})


def stored(folder: Path, *snapshots: str) -> Store:
    """A store of a service that is stopped, with a position and snapshots of db1."""
    store = Store(folder / "positions")
    store.open()
    store.put("db1", STORED)
    store.put_snapshots("db1", [StoredSnapshot(SnapshotRequest(name)) for name in snapshots])
    return store


@pytest.mark.behaviour("N26")
def test_a_gap_is_accepted_by_forgetting_the_position_and_leaving_a_request_for_all_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path, "older").close()
    config = file_of(tmp_path, 1)
    assert main(["snapshot", "start", "--accept-gap", "-config", config]) == 0
    line = capsys.readouterr().out
    store = Store(tmp_path / "positions")
    store.open_to_read()
    [request] = [one.request for one in store.read_snapshots("db1")]
    assert store.get("db1") is None
    store.close()
    assert (request.tables, request.wanted) == ((), Wanted.RUN)
    assert line == f"{request.id}: position chunk 3 of source db1 is forgotten; its next start takes all tables\n"
    assert main(["snapshot", "start", "--accept-gap", "--source", "db1", "--json", "-config", config]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["source"], said["forgotten_position"]) == ("db1", "none")


def test_a_gap_is_not_accepted_behind_the_back_of_a_running_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = stored(tmp_path)
    try:
        assert main(["snapshot", "start", "--accept-gap", "-config", file_of(tmp_path, 1)]) == 1
        assert running.get("db1") == STORED
    finally:
        running.close()
    assert re.search(r"positions is in use by PID \d+: stop the service first\n$", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--table", "public.a"], "--accept-gap takes all tables at the next start: leave out --table"),
        (["--wait"], "leave out --table, --where and --wait"),
        (["--source", "db2"], 'there is no source "db2"; did you mean db1?'),
    ],
)
def test_what_does_not_go_with_accepting_a_gap_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["snapshot", "start", "--accept-gap", *arguments, "-config", file_of(tmp_path, 1)]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "positions").exists()


def test_forgetting_a_position_forgets_what_was_asked(tmp_path: Path) -> None:
    stored(tmp_path, "one").close()
    assert main(["position", "forget", "db1", "-config", file_of(tmp_path, 1)]) == 0
    store = Store(tmp_path / "positions")
    store.open_to_read()
    assert store.read_snapshots("db1") == []
    store.close()
