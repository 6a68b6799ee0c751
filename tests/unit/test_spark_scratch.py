"""The folder of Spark's files, and those that killed processes left."""

from __future__ import annotations

import shutil
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


def test_what_belongs_to_somebody_who_lives_stays(temporary: Path) -> None:
    first, second = Scratch(), Scratch()
    assert first.path.is_dir()
    assert second.path.is_dir()
    first.remove()
    second.remove()
    assert list(temporary.iterdir()) == []


def test_a_link_and_a_file_with_such_a_name_stay(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (temporary / "psql-streamer-spark-link").symlink_to(elsewhere)
    (temporary / "psql-streamer-spark-file").touch()
    Scratch().remove()
    assert {one.name for one in temporary.iterdir()} == {
        "elsewhere",
        "psql-streamer-spark-link",
        "psql-streamer-spark-file",
    }


@pytest.mark.skipif(shutil.which("systemd-tmpfiles") is None, reason="systemd is not installed")
def test_what_removes_old_temporary_files_leaves_the_folder_of_somebody_who_lives(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rules = tmp_path_factory.mktemp("rules") / "tmp.conf"
    rules.write_text(f"D {temporary} 0700 - - 0s\n")
    scratch, other = Scratch(), temporary / "nobodys"
    (scratch.path / "blockmgr" / "0c").mkdir(parents=True)
    other.mkdir()
    done = subprocess.run(["systemd-tmpfiles", "--clean", rules], capture_output=True, text=True, check=False)
    assert not other.exists(), done.stderr
    assert (scratch.path / "blockmgr" / "0c").is_dir()
    scratch.remove()


def test_a_folder_for_temporary_files_that_has_gone_is_told(temporary: Path) -> None:
    temporary.rmdir()
    with pytest.raises(HandlerUnavailable, match=f"cannot be made in {temporary}: No such file or directory"):
        Scratch()
