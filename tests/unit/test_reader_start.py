"""A Python that is gone, as after an upgrade of the machine, is named by its path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from psql_streamer.errors import SourceUnavailable
from sources.postgres.reader_process import _start_process


@pytest.mark.parametrize(
    ("is_there", "why"), [(False, "no such file or directory"), (True, "permission denied")], ids=["gone", "no program"]
)
def test_a_python_that_cannot_be_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, why: str
) -> None:
    python = tmp_path / "python"
    if is_there:
        python.touch(0o644)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(SourceUnavailable, match=f"^the reader process cannot be started with {python}: {why}: put"):
        _start_process(0)
