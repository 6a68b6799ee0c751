"""Where the service keeps what is its own when nobody says where: paths that a new release must find again."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from psql_streamer.config import load
from psql_streamer.embedded.cache import make_cache_folder
from psql_streamer.errors import StreamerError

HANDFUL = {"PG_HOST": "db.example.com", "PG_DATABASE": "shop", "KAFKA_BROKERS": "k1:9092"}


@pytest.fixture(autouse=True)
def _folders_of_a_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "{}/home"}, "home/.local/state"),
        ({"HOME": "{}/home", "XDG_STATE_HOME": "{}/state"}, "state"),
        ({"HOME": "{}/home", "XDG_STATE_HOME": ""}, "home/.local/state"),
        ({"HOME": "{}/home", "XDG_STATE_HOME": "relative/state"}, "home/.local/state"),
        ({"XDG_STATE_HOME": "{}/state"}, "state"),
    ],
)
def test_positions_are_in_the_users_state_folder(tmp_path: Path, environ: Mapping[str, str], expected: str) -> None:
    placed = {name: value.replace("{}", str(tmp_path)) for name, value in environ.items()}
    folder = load(None, {**HANDFUL, **placed}).lmdb.parent
    assert folder == tmp_path / expected / "psql-streamer"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_where_no_variable_names_a_home_positions_are_under_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
    assert load(None, HANDFUL).lmdb == Path("/.local/state/psql-streamer/positions")


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, "home/.cache"), ("", "home/.cache"), ("relative/cache", "home/.cache"), ("{}/cache", "cache")],
)
def test_jars_are_in_the_users_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str
) -> None:
    if given is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", given.replace("{}", str(tmp_path)))
    assert make_cache_folder() == tmp_path / expected / "psql-streamer"
    assert make_cache_folder().is_dir()


def test_where_xdg_cache_home_cannot_be_used_they_are_under_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("no folder can be made in a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert make_cache_folder() == tmp_path / "home/.cache/psql-streamer"


def test_without_a_usable_home_they_are_in_a_private_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder can be made in a file")
    folder = make_cache_folder()
    assert folder.parent == tmp_path / "tmp"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert make_cache_folder() == folder


def test_a_temporary_folder_that_somebody_else_may_have_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder can be made in a file")
    folder = make_cache_folder()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(StreamerError, match=r"belongs to another user: set XDG_CACHE_HOME"):
        make_cache_folder()
