"""The folder in which downloads are kept."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from psql_streamer.errors import StreamerError


def make_cache_folder() -> Path:
    """$XDG_CACHE_HOME/psql-streamer, else ~/.cache/psql-streamer, else (no usable home) a private temporary folder."""
    for parent in _list_cache_parents():
        folder = parent / "psql-streamer"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    folder = Path(tempfile.gettempdir(), f"psql-streamer-cache-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    # Programs are run from here: nobody else may have made the folder.
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise StreamerError(f"{folder} belongs to another user", "set XDG_CACHE_HOME to a folder of your own")
    return folder


def _list_cache_parents() -> list[Path]:
    parents = [Path(os.environ["XDG_CACHE_HOME"])] if os.environ.get("XDG_CACHE_HOME") else []
    with suppress(RuntimeError):  # neither HOME nor an account entry
        parents.append(Path.home() / ".cache")
    return [parent for parent in parents if parent.is_absolute()]


def fill(folder: Path, fetch: Callable[[Path], Path]) -> None:
    """Make the folder. fetch: is given a temporary folder beside it, and returns what in there is to become it.

    Several processes may call it at once: a download becomes visible only when it is whole.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching", dir=folder.parent) as scratch:
        whole = fetch(Path(scratch))
        try:
            whole.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
