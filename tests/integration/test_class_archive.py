"""The archive of Spark's classes: who may make one, and that a JVM takes its classes from there."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from psql_streamer.spark.class_archive import main
from psql_streamer.spark.jvm import JAVA_OPTIONS, Jvm
from psql_streamer.spark.options import SparkOptions

_MOST_OF_SPARK = 5_000
"""Classes that a start of Spark loads, at least."""


@pytest.mark.parametrize("arguments", [[], ["--help"], ["one", "two"]])
def test_what_is_no_file_is_answered_with_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == "usage: python -m psql_streamer.spark.class_archive FILE\n"


def test_a_folder_that_is_not_there_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none" / "spark.jsa")]) == 1
    said = capsys.readouterr().err
    assert (
        said == f"{tmp_path}/none/spark.jsa cannot be made: make {tmp_path}/none a folder that this user may write to\n"
    )


@pytest.mark.soak
def test_a_jvm_takes_the_classes_of_spark_from_the_archive(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    archive, loaded = folder / "spark.jsa", tmp_path / "loaded"
    made = run_apart("-m", "psql_streamer.spark.class_archive", str(archive))
    assert made.startswith(f"{archive}: "), made
    assert [path.name for path in folder.iterdir()] == ["spark.jsa"]
    run_apart("-c", f"import {__name__} as t; t.start_with({str(archive)!r}, {str(loaded)!r})")
    of_archive = [line for line in loaded.read_text().splitlines() if "shared objects file (top)" in line]
    assert len(of_archive) > _MOST_OF_SPARK
    assert any("org.apache.spark.sql.catalyst" in line for line in of_archive)


def run_apart(*arguments: str) -> str:
    """In a process of its own, whose JVM has no options of the tests'; what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    run = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def start_with(archive: str, loaded: str) -> None:
    """To be run apart. loaded: a file that gets a line for each class that the JVM loads."""
    options = f"-XX:SharedArchiveFile={shlex.quote(archive)} -Xlog:class+load:file={loaded}"
    Jvm(SparkOptions.model_validate({"master": "local[1]", "conf": {JAVA_OPTIONS: options}})).stop()
