"""The table of benchmarks: what it names exists, what its loads write is what they say, and its page has every line.

The Go psql-streamer is not there in tests: a program in its place ends at once.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import psutil
import pytest
import tomli

from benchmarks import __main__ as command
from benchmarks import other_sources
from benchmarks.cases import CASES
from benchmarks.failures import BenchmarkFailed
from benchmarks.figures import NAMES, SHOWN, Figures, at_least, at_most, shown
from benchmarks.go_service import GoService
from benchmarks.load import Load
from benchmarks.other_sources import TopicBacklog
from benchmarks.stage import Stage
from benchmarks.tables import one_shape, own_shapes

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def test_goals_are_for_figures_that_are_shown_and_for_lines_that_come_before() -> None:
    known: set[str] = set()
    for case in CASES:
        assert case.name not in known
        for goal in case.goals:
            assert goal.figure in SHOWN.keys() & NAMES.keys()
            assert not goal.of or goal.of in known, f"{case.name} is held against {goal.of}"
        known.add(case.name)


def test_the_page_has_every_line_and_no_other() -> None:
    listed = PAGE.read_text().partition("## The benchmarks")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| ((?:`[a-z0-9-]+`(?:, )?)+) \|", listed, re.MULTILINE)
    assert [name for line in lines for name in re.findall(r"`([^`]+)`", line)] == [case.name for case in CASES]


def test_a_thousand_shapes_are_a_thousand_and_the_same_every_time() -> None:
    tables = own_shapes(1000)
    assert len({table.columns for table in tables}) == 1000
    assert {table.columns.count(", ") - table.columns.count("(12, ") + 1 for table in tables} == {4, 5, 6, 7, 8}
    assert tables == own_shapes(1000)


@pytest.mark.parametrize(
    ("tables", "rows_per_transaction", "asked", "rows"),
    [(1, 1000, 200_000, 200_000), (1000, 1000, 1500, 2000), (100, 1, 150, 200), (7, 1000, 1, 994)],
)
def test_rows_are_rounded_up_to_whole_transactions_and_turns(
    tables: int, rows_per_transaction: int, asked: int, rows: int
) -> None:
    assert Load(one_shape(tables), 0, rows_per_transaction).with_rows(asked).rows == rows


def test_a_goal_is_missed_by_a_value_on_its_wrong_side_and_unknown_without_its_line() -> None:
    results = {"one": {"rate": 100.0, "cpu": 4.0}, "many": {"rate": 79.0, "cpu": 5.1}}
    assert at_least(0.8, "rate", of="one").value("many", results) == 0.79
    assert not at_least(0.8, "rate", of="one").is_reached(0.79)
    assert at_least(0.8, "rate", of="one").is_reached(0.8)
    assert not at_most(5, "cpu").is_reached(5.1)
    assert at_least(0.8, "rate", of="none").value("many", results) is None
    assert at_most(5, "cpu").value("none", results) is None


def test_the_go_service_gets_one_batch_size_for_both_ends_and_tells_why_it_ended(tmp_path: Path) -> None:
    program = _program(tmp_path, 'echo "cannot read $2" >&2; exit 3')
    service = GoService(program, tmp_path, "a:9092,b:9092", "in", "out", 500)
    with service, pytest.raises(BenchmarkFailed) as failed:
        _require_running_for(service, 20.0)
    config = tmp_path / "out.toml"
    assert str(failed.value) == f"the Go psql-streamer ended with 3: cannot read {config}"
    keys = tomli.loads(config.read_text())
    both = {"type": "kafka", "hosts": ["a:9092", "b:9092"], "batchSize": 500}
    assert keys["source"] == {"bench": both | {"topics": ["in"], "groupID": "out"}}
    sink = {"sources": ["bench"], "handlers": ["passthrough"], "topicFallback": "out"}
    assert keys["sink"] == {"bench": both | sink}


def test_the_go_service_is_measured_over_the_same_topic_when_its_program_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(_: Stage, program: Path, source: str, rows: int) -> Figures:
        assert (program, source, rows) == (tmp_path / "go", "bench1-in", 70)
        return {"go": 5.0, "go_large": 6.0}

    def run(backlog: TopicBacklog, stage: Stage, rows: int) -> Figures:
        return {"rss_service": 7.0, **backlog.beside(stage, '[source.bench]\ntopics = ["bench1-in"]', rows)}

    monkeypatch.setattr(other_sources, "measure_go_service", measure)
    monkeypatch.setattr(TopicBacklog, "_run", run)
    backlog = TopicBacklog(70, 70)
    line = "(service 7)  the Go psql-streamer 5  with larger batches 6"
    assert shown(backlog.measure(_stage(tmp_path, tmp_path / "go"))) == line
    assert capsys.readouterr().out == ""
    assert shown(backlog.measure(_stage(tmp_path, None))) == "(service 7)"
    assert "no --go-service was given" in capsys.readouterr().out


def test_a_go_service_that_is_no_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--list", "--go-service", str(tmp_path / "none")])
    with pytest.raises(SystemExit):
        command.main()
    assert f"{tmp_path}/none is not a program that can be run" in capsys.readouterr().err


def _program(folder: Path, script: str) -> Path:
    program = folder / "go"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def _stage(folder: Path, go_service: Path | None) -> Stage:
    return Stage(folder, folder, "a:9092", psutil.Process(), go_service=go_service)


def _require_running_for(service: GoService, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        service.require_running()
        time.sleep(0.01)
