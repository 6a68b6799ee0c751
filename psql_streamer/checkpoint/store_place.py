"""Whether there can be a file of positions at a path."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from psql_streamer.errors import StoreError
from psql_streamer.shortage import find_limit

MOUNT_REMEDY = "name a path on another disk, a volume of the container for example, or mount this one to be written to"

_REMEDIES = {
    errno.ENAMETOOLONG: "name a shorter path",
    errno.ENOTDIR: "name a file in a folder: a part of this path is a file",
    errno.EROFS: MOUNT_REMEDY,
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room on the disk, or raise this user's quota there",
    errno.ELOOP: "name another path: the symbolic links of this one lead in a circle",
}


def require_place(path: Path) -> None:
    """StoreError where something else is, or what is there cannot be seen. A file that is not there can be made."""
    try:
        _read_mode(name_owner_file(path))  # the longest of the names beside it
        mode = _read_mode(path)
    except OSError as error:
        raise make_opening_error(path, error) from None
    if stat.S_ISDIR(mode):
        raise StoreError(f"lmdb: {path} is a folder", f'name a file in it: lmdb = "{path / "positions"}"')
    if mode and not stat.S_ISREG(mode):
        raise StoreError(f"lmdb: {path} is a device, a pipe or a socket", "name a file")


def name_owner_file(path: Path) -> Path:
    """The file that names the process that has the one at `path`."""
    return path.with_name(path.name + "-owner")


def make_opening_error(path: Path, error: OSError) -> StoreError:
    """For what the system says of the file, or of the one that names its owner."""
    said = str(error.strerror).lower()
    remedy = _REMEDIES.get(error.errno or 0) or find_limit(said) or _find_remedy(path)
    return StoreError(f"lmdb: {path} cannot be opened ({said})", remedy)


def _read_mode(path: Path) -> int:
    """Of what is there; 0 for nothing. OSError where it cannot be seen."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0


def _find_remedy(path: Path) -> str:
    if os.access(path.parent, os.W_OK | os.X_OK) and name_owner_file(path).exists():
        return f"make sure that this user may read and write {path} and the files {path.name}-*"
    return f"make sure that the folder {path.parent} exists and that this user may write to it"
