"""A checkout whose Python does not have the package, or what it needs, says what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from psql_streamer import entry_points, launcher, plugins
from psql_streamer.errors import ConfigError


@pytest.fixture
def without_metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(entry_points, "entry_points", lambda **_: ())
    entry_points._read_entry_points.cache_clear()
    yield
    entry_points._read_entry_points.cache_clear()


@pytest.mark.usefixtures("without_metadata")
def test_without_an_installation_the_command_that_installs_is_named() -> None:
    with pytest.raises(ConfigError, match=r'^"postgres" cannot be found, as no source can: .* run `pip install \.`'):
        plugins.load_source_class("postgres")


def test_a_python_without_the_libraries_is_told_which_is_missing_and_how_it_gets_them() -> None:
    checkout = Path(__file__).parents[2]
    # -S: without site-packages, in which all libraries are.
    ended = subprocess.run([sys.executable, "-S", "-m", "psql_streamer", "validate"], cwd=checkout, capture_output=True)
    [line] = ended.stderr.decode().splitlines()
    assert line.startswith(f"psql-streamer: {sys.executable} lacks the library ")
    assert f"`{sys.executable} -m pip install {checkout}`" in line
    assert (ended.returncode, ended.stdout) == (1, b"")


def test_a_python_that_is_too_old_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "hexversion", 0x030A0DF0)
    assert launcher.main() == 1
    assert capsys.readouterr().err.endswith(": use Python 3.11 or later\n")
