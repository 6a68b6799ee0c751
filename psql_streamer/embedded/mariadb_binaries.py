"""Where MariaDB's server programs are on this machine; else Debian's packages, unpacked into a cache folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from psql_streamer.embedded.account import Account
from psql_streamer.embedded.kafka_jars import cache_folder
from psql_streamer.errors import StreamerError

_PACKAGES = (("mariadb-server",), ("mariadb-server-core",), ("mariadb-client-core",), ("liburing2",))
_LIBAIO = ("libaio1t64", "libaio1")
_NEEDED = (
    "usr/sbin/mariadbd",
    "usr/bin/mariadb-install-db",
    "usr/bin/my_print_defaults",
    "usr/bin/resolveip",
    "usr/share/mysql/*.sql",
    "usr/share/mysql/charsets",
    "usr/share/mysql/english",
    "usr/lib/*/*.so*",
)
"""What a server needs of its packages: 40 of their 110 MB."""

_INSTALL = "install mariadb-server, or name a running server"
_FETCH_SECONDS = 300


@dataclass(frozen=True, slots=True)
class MariadbBinaries:
    """An installation. base: its --basedir, with sbin/mariadbd below. unpacked: not where its packages want it."""

    base: Path
    unpacked: bool

    @property
    def server(self) -> Path:
        """The server program."""
        return self.base / "sbin/mariadbd"

    def server_command(self) -> Sequence[Path]:
        """What starts the server."""
        return [self.server]

    def install_command(self, data_dir: Path, tmp_dir: Path) -> Sequence[Path]:
        """What makes a data folder."""
        arguments = [
            "--no-defaults",
            f"--basedir={self.base}",
            f"--datadir={data_dir}",
            f"--tmpdir={tmp_dir}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
        return [self.base / "bin/mariadb-install-db", *map(Path, arguments)]

    def reachable_by(self, account: Account, copy_to: Path) -> MariadbBinaries:
        """The same, or a copy in `copy_to` where `account` may not reach unpacked ones (below /root, say)."""
        if account is None or not self.unpacked:
            return self
        shutil.copytree(self.base, copy_to / self.base.name, symlinks=True)
        return MariadbBinaries(copy_to / self.base.name, unpacked=True)

    def environment(self) -> dict[str, str]:
        """What the programs need of the environment: no settings of the caller's, and their own libraries."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MYSQL", "MARIADB", "LC_"))}
        folders = [str(folder) for folder in sorted(self.base.glob("lib/*-linux-*"))]
        libraries = {"LD_LIBRARY_PATH": os.pathsep.join(folders)} if self.unpacked else {}
        return kept | {"LC_ALL": "C"} | libraries

    def version(self) -> tuple[int, int]:
        """As the server says itself. Raises StreamerError when it does not run."""
        try:
            shown = subprocess.run(
                [self.server, "--no-defaults", "--version"],
                capture_output=True,
                text=True,
                timeout=60,
                env=self.environment(),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StreamerError(f"{self.server} does not run ({error})", _INSTALL) from error
        found = re.search(r"Ver (\d+)\.(\d+)", shown.stdout)
        if found is None:
            raise StreamerError(f"{self.server} does not run ({shown.stderr.strip()})", _INSTALL)
        return int(found[1]), int(found[2])


def mariadb_binaries() -> MariadbBinaries:
    """The machine's own installation, else the packages of its distribution, fetched at the first call (12 MB).

    Nothing is installed, and no root is needed. Raises StreamerError where neither is to be had.
    """
    for base in (Path("/usr"), Path("/usr/local"), Path("/usr/local/mysql")):
        if (base / "sbin/mariadbd").exists() and (base / "bin/mariadb-install-db").exists():
            return MariadbBinaries(base, unpacked=False)
    folder = cache_folder() / "mariadb"
    if not folder.is_dir():
        _fetch(folder)
    return MariadbBinaries(folder / "usr", unpacked=True)


def _fetch(folder: Path) -> None:
    """Several processes may call it at once: an installation becomes visible only when it is whole."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise StreamerError("no MariaDB server on this machine, and no apt-get to fetch one with", _INSTALL)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching", dir=folder.parent) as scratch:
        packages = download_packages((*_PACKAGES, _LIBAIO), Path(scratch))
        whole = unpack(packages, Path(scratch, "whole"))
        needed = _only_needed(whole, Path(scratch, "needed"))
        try:
            needed.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


def download_packages(wanted: Sequence[Sequence[str]], into: Path) -> list[Path]:
    """Debian packages as files. wanted: for each the names that it may have; the first that there is counts."""
    for names in wanted:
        failures = [_download(name, into) for name in names if not list(into.glob(f"{names[0]}_*.deb"))]
        if all(failures):
            raise StreamerError(
                f"apt-get could not download {' or '.join(names)} ({failures[-1]})",
                f"run apt-get update, or {_INSTALL}",
            )
    return sorted(into.glob("*.deb"))


def _download(name: str, into: Path) -> str:
    """What apt-get says is wrong; "" when the package is there."""
    try:
        done = subprocess.run(
            ["apt-get", "--quiet", "download", name],  # noqa: S607 - where it is, is the distribution's matter
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=into,
            timeout=_FETCH_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"nothing for {_FETCH_SECONDS} s"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it said nothing"])[-1]


def unpack(packages: Sequence[Path], into: Path) -> Path:
    """The files of Debian packages, below a folder."""
    for package in packages:
        subprocess.run(["dpkg", "-x", package, into], check=True, capture_output=True)  # noqa: S607 - as above
    return into


def _only_needed(whole: Path, needed: Path) -> Path:
    for pattern in _NEEDED:
        for path in whole.glob(pattern):
            target = needed / path.relative_to(whole)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    return needed
