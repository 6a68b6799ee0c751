"""Where MariaDB's server programs are on this machine; else Debian's packages, unpacked into a cache folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from psql_streamer.embedded.cache import fill, make_cache_folder
from psql_streamer.embedded.installation import Installation, run_apt_get, unpack
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
    "usr/lib/mysql/plugin/auth_ed25519.so",
    "usr/lib/mysql/plugin/file_key_management.so",
)
"""What a server needs of its packages, and plug-ins for accounts and encryption: 40 of their 110 MB."""

_MARIADB_FETCH_SECONDS = 300


@dataclass(frozen=True, slots=True)
class MariadbBinaries(Installation):
    """An installation with sbin/mariadbd below its base."""

    product = "MariaDB"
    remedy = "install mariadb-server, or name a running server"

    def make_server_command(self) -> Sequence[Path]:
        return [self.base / "sbin/mariadbd"]

    def make_install_command(self, data_dir: Path, tmp_dir: Path) -> Sequence[Path]:
        arguments = [
            "--no-defaults",
            f"--basedir={self.base}",
            f"--datadir={data_dir}",
            f"--tmpdir={tmp_dir}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
        return [self.base / "bin/mariadb-install-db", *map(Path, arguments)]

    def make_environment(self) -> dict[str, str]:
        """With their own libraries."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MYSQL", "MARIADB", "LC_"))}
        folders = [str(folder) for folder in sorted(self.base.glob("lib/*-linux-*"))]
        libraries = {"LD_LIBRARY_PATH": os.pathsep.join(folders)} if self.unpacked else {}
        return kept | {"LC_ALL": "C"} | libraries


def provide_mariadb_binaries() -> MariadbBinaries:
    """The machine's own installation, else the packages of its distribution, fetched at the first call (12 MB).

    Nothing is installed, and no root is needed. Raises StreamerError where neither is to be had.
    """
    for base in (Path("/usr"), Path("/usr/local"), Path("/usr/local/mysql")):
        if (base / "sbin/mariadbd").exists() and (base / "bin/mariadb-install-db").exists():
            return MariadbBinaries(base, unpacked=False)
    folder = make_cache_folder() / "mariadb-server"
    if not folder.is_dir():
        _fetch(folder)
    return MariadbBinaries(folder / "usr", unpacked=True)


def _fetch(folder: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise StreamerError(
            "no MariaDB server on this machine, and no apt-get to fetch one with", MariadbBinaries.remedy
        )
    fill(folder, lambda scratch: unpack(_download_packages(scratch), _NEEDED, scratch))


def _download_packages(into: Path) -> list[Path]:
    """Debian packages as files. Of the names that a package may have, the first that there is counts."""
    for names in (*_PACKAGES, _LIBAIO):
        failures = [_download(name, into) for name in names if not list(into.glob(f"{names[0]}_*.deb"))]
        if all(failures):
            raise StreamerError(
                f"apt-get could not download {' or '.join(names)} ({failures[-1]})",
                f"run apt-get update, or {MariadbBinaries.remedy}",
            )
    return sorted(into.glob("*.deb"))


def _download(name: str, into: Path) -> str:
    return run_apt_get(["download", name], into, dict(os.environ), _MARIADB_FETCH_SECONDS)
