"""The command line: what it takes, what it prints, how it exits."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from psql_streamer import __version__, cli
from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.cli import DEMO_SOURCES, main
from psql_streamer.config import Config
from psql_streamer.demo.stages import STAGES
from psql_streamer.errors import SinkRefused
from psql_streamer.interfaces import Severity
from psql_streamer.lsn import Lsn
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.pipeline import pipeline
from tests.config_files import MINIMAL, with_line, written

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

SECRET = "hunter2-in-the-dsn"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations that `run` would have run."""
    configs: list[Config] = []

    def run(config: Config) -> int:
        configs.append(config)
        return 0

    monkeypatch.setattr(pipeline, "run", run)
    return configs


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(written(tmp_path, MINIMAL.replace("/var/lib/psql-streamer", str(tmp_path))))


@pytest.fixture
def bad_file(tmp_path: Path) -> str:
    return str(written(tmp_path, with_line(MINIMAL, "[source.db1]", "batchSize = -5\ntimeuot = '1s'")))


@pytest.mark.parametrize(
    "arguments",
    [
        "-config FILE",
        "--config FILE",
        "-c FILE",
        "-config=FILE",
        "--config=FILE",
        "run -config FILE",
        "-config FILE run",
        "run -c FILE -v --log-format json",
        "-q -c FILE run -q",
    ],
)
def test_the_file_is_named_as_the_go_service_does_and_in_other_ways(
    ran: list[Config], file: str, arguments: str
) -> None:
    assert main(arguments.replace("FILE", file).split()) == 0
    assert [config.name for config in ran] == [file]


def test_run_warns_of_settings_without_effect(
    ran: list[Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["-config", str(written(tmp_path, with_line(MINIMAL, "[sink.kafka1]", "async = true")))])
    assert "WARNING config: " in capsys.readouterr().err
    assert len(ran) == 1


def test_the_debug_key_of_a_part_switches_its_messages_on(ran: list[Config], tmp_path: Path) -> None:
    assert main(["-config", str(written(tmp_path, with_line(MINIMAL, "[source.db1]", "debug = true")))]) == 0
    assert logging.getLogger("psql_streamer.source.db1").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("psql_streamer.sink.kafka1").isEnabledFor(logging.DEBUG)


def test_a_configuration_that_cannot_be_used_exits_2_with_every_problem(
    ran: list[Config], bad_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "-config", bad_file]) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        f"psql-streamer: {bad_file}: source.db1.batchSize: -5 is not allowed: must be greater than 0",
        f"psql-streamer: {bad_file}: source.db1: unknown key timeuot; did you mean timeout?",
    ]
    assert captured.out == ""
    assert ran == []


def test_no_configuration_at_all_exits_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in list(os.environ):
        if name.startswith(("PG_", "KAFKA_", "PSQL_STREAMER__")):
            monkeypatch.delenv(name)
    assert main([]) == 2
    assert "no configuration: give -config FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["frobnicate"], ["run", "--json"], ["-config"], ["demo", "--duration", "0"], ["--log"]]
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


def test_a_failure_while_running_exits_1_with_one_line(
    monkeypatch: pytest.MonkeyPatch, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(config: Config) -> int:
        raise SinkRefused("refused password=pw of the user", "grant WRITE on the topic")

    monkeypatch.setattr(pipeline, "run", run)
    assert main(["-config", file]) == 1
    assert capsys.readouterr().err == "psql-streamer: refused password=*** of the user: grant WRITE on the topic\n"


def test_a_failure_has_a_traceback_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(config: Config) -> int:
        raise SinkRefused("not authorised")

    monkeypatch.setattr(pipeline, "run", run)
    assert main(["-config", file, "-v"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_stderr_is_json_and_nothing_else_when_the_log_is(bad_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-config", bad_file, "--log-format", "json"]) == 2
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [entry["level"] for entry in entries] == ["error", "error"]


def test_validate_is_silent_when_all_is_well(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-config", file]) == 0
    assert capsys.readouterr() == ("", "")


def test_validate_exits_3_with_every_problem(bad_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-config", bad_file]) == 3
    captured = capsys.readouterr()
    assert [line.split(": ")[0] for line in captured.out.splitlines()] == ["error", "error"]
    assert captured.err == ""


def test_the_remedy_for_a_password_that_is_not_set_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = MINIMAL.replace("hunter2-in-the-dsn", "${PG_PASSWORD}")
    assert main(["validate", "-config", str(written(tmp_path, text))]) == 3
    assert "or write ${PG_PASSWORD:-default}\n" in capsys.readouterr().out


def test_validate_gives_json(bad_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--json", "-config", bad_file]) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is False
    assert [finding["severity"] for finding in said["findings"]] == ["error", "error"]


def test_a_warning_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path, with_line(MINIMAL, "[sink.kafka1]", "async = true")))
    assert main(["validate", "--json", "-config", path]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is True
    [finding] = said["findings"]
    assert finding["severity"] == "warning"
    assert "async = true has no effect" in finding["problem"]


def test_version_names_what_it_stands_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"psql-streamer {__version__}\nPython ")
    assert "\npyspark 4." in out


def test_stored_positions_are_shown_and_forgotten(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "positions")
    store.open()
    store.put("db1", StoredPosition(WalPosition(Lsn.parse("16/B374D848")).position, {}))
    store.close()
    assert main(["position", "-config", file]) == 0
    assert capsys.readouterr().out == "db1 16/B374D848\n"
    assert main(["position", "forget", "db1", "-config", file]) == 0
    assert main(["position", "-config", file]) == 0
    assert capsys.readouterr().out == ""
    assert main(["position", "forget", "db1", "-config", file]) == 1
    assert "holds no position of source db1" in capsys.readouterr().err


def test_asking_for_positions_before_the_first_start_leaves_no_file(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(tmp_path.iterdir())
    assert main(["position", "-config", file]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"lmdb: {tmp_path / 'positions'} does not exist: the service has stored none there yet" in said.err
    assert main(["position", "forget", "db1", "-config", file]) == 1
    assert "holds no position of source db1" in capsys.readouterr().err
    assert set(tmp_path.iterdir()) == before


def test_positions_are_asked_for_in_a_working_folder_that_was_removed(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(file).write_text(Path(file).read_text().replace(str(tmp_path / "positions"), "positions"))
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["position", "-config", file]) == 0
    assert "lmdb: positions does not exist: the service has stored none there yet" in capsys.readouterr().err


def test_the_position_of_a_source_that_was_renamed_is_pointed_at_and_can_be_forgotten(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "positions")
    store.open()
    for name in ("db1", "its old name"):
        store.put(name, StoredPosition(WalPosition(Lsn.parse("16/B374D848")).position, {}))
    store.close()
    assert main(["position", "-config", file]) == 0
    said = capsys.readouterr()
    assert said.out == "db1 16/B374D848\nits old name 16/B374D848\n"
    [pointed_at] = said.err.splitlines()
    assert 'there is no source "its old name" any more' in pointed_at
    pasted = shlex.split(pointed_at.partition("if it is not needed, ")[2])
    assert pasted == ["psql-streamer", "position", "forget", "its old name", "-config", file]
    assert main(pasted[1:]) == 0
    assert main(["position", "-config", file]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("db1 16/B374D848\n", "")


@pytest.mark.parametrize("duration", ["0", "-1", "nan", "inf", "abc"])
def test_a_duration_that_is_none_is_refused_in_words(duration: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["demo", f"--duration={duration}"])
    assert exited.value.code == 2
    assert f"--duration: {duration} is not a number of seconds above 0" in capsys.readouterr().err


def test_forgetting_an_unknown_source_names_the_nearest(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["position", "forget", "db2", "-config", file]) == 2
    assert 'there is no source "db2"; did you mean db1?' in capsys.readouterr().err


def test_positions_of_a_running_service_are_left_alone(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "positions")
    store.open()
    try:
        assert main(["position", "-config", file]) == 1
    finally:
        store.close()
    assert "is in use by PID" in capsys.readouterr().err


def test_it_runs_as_a_module_and_says_its_exit_codes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "psql_streamer", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "3  check or validate found errors" in done.stdout


def test_the_demo_has_every_source_that_the_command_line_takes() -> None:
    assert list(STAGES) == list(DEMO_SOURCES)


def test_a_bad_file_leaves_no_traceback_and_no_secret(bad_file: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "psql_streamer", "-config", bad_file, "-v"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_output_that_nobody_reads_is_no_failure_with_a_traceback(bad_file: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m psql_streamer validate -config {bad_file} | true"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""


def run_command(*arguments: str, shell: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own. shell: where the shell directs its streams."""
    command = [sys.executable, "-m", "psql_streamer", *arguments]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {shell}', "sh", *command],
        env={**os.environ, **environ},
        capture_output=True,
        encoding="utf-8",
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_told_in_a_line(unbuffered: str) -> None:
    done = run_command("version", shell="> /dev/full", PYTHONUNBUFFERED=unbuffered)
    message = (
        "psql-streamer: stdout cannot be written: no space left on device: make room for it, or write it elsewhere\n"
    )
    assert (done.returncode, done.stderr) == (1, message)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads_any_more_ends_a_command_without_a_word(unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "psql_streamer", "version"],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii:strict"])
def test_what_is_printed_is_utf_8_in_every_locale(tmp_path: Path, encoding: str) -> None:
    file = str(written(tmp_path, with_line(MINIMAL, "[source.db1]", '"Straße_日本" = 1')))
    done = run_command("validate", "-config", file, PYTHONIOENCODING=encoding)
    assert done.returncode == 3
    assert done.stdout.startswith(f"error: {file}: source.db1: unknown key Straße_日本; known: ")


def test_streams_that_are_closed_are_no_error() -> None:
    assert run_command("version", shell="<&- >&- 2>&-").returncode == 0
    assert run_command("version", shell="<&- >&-").stderr == ""


def test_a_finding_quotes_a_name_without_making_a_line_that_looks_like_another_finding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    finding = cli._make_finding("source.db1", Severity.WARNING, 'table "a\nsink.k: error: forged\x1b[2J" has no key')
    cli._print_findings(argparse.Namespace(json=False), [finding])
    assert capsys.readouterr().out == ('source.db1: warning: table "a\n    sink.k: error: forged\\x1b[2J" has no key\n')
