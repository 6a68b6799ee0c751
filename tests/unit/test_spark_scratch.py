"""The folder of Spark's files, and those that killed processes left."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from psql_streamer.errors import HandlerUnavailable
from psql_streamer.spark.scratch import Scratch

MAKE_ONE_AND_DIE = """
import os, signal
from psql_streamer.spark.scratch import Scratch
print(Scratch().path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_removed_by_the_next() -> None:
    killed = subprocess.run([sys.executable, "-c", MAKE_ONE_AND_DIE], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    scratch = Scratch()
    assert not left.exists()
    scratch.remove()


def test_what_belongs_to_somebody_who_lives_or_to_others_stays(temporary: Path) -> None:
    other = temporary / "psql-streamer-spark-without-a-lock"
    other.mkdir()
    first, second = Scratch(), Scratch()
    assert first.path.is_dir()
    assert second.path.is_dir()
    assert other.is_dir()
    first.remove()
    second.remove()
    assert [folder for folder in temporary.iterdir() if folder != other] == []


def test_a_folder_for_temporary_files_that_has_gone_is_told(temporary: Path) -> None:
    temporary.rmdir()
    with pytest.raises(HandlerUnavailable, match=f"cannot be made in {temporary}: No such file or directory"):
        Scratch()
