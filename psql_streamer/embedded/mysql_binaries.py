"""Where MySQL's server program is on this machine; else Debian's packages, unpacked into a cache folder.

Debian has MySQL in its unstable release alone. Its packages and all that they need are fetched with an apt of their own
below the cache folder, from the mirror that this machine's apt knows, and run with their own C library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from psql_streamer.embedded.cache import fill, make_cache_folder
from psql_streamer.embedded.installation import Installation, run_apt_get, unpack
from psql_streamer.errors import StreamerError

_PACKAGE = "mysql-server-core"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_MYSQL_FETCH_SECONDS = 600
_NEEDED = ("usr/sbin/mysqld", "usr/share/mysql/english", "usr/share/mysql/charsets", "usr/lib/*-linux-*")
_NOT_NEEDED = ("gconv", "perl", "libicutest*", "libicutu*", "libperl*", "audit", "engines-3")
_APT_CONF = """
Dir "{root}/";
Dir::State "{root}/state/";
Dir::State::status "{root}/state/status";
Dir::Cache "{root}/cache/";
Dir::Etc "{root}/etc/";
Dir::Etc::sourcelist "{root}/etc/sources.list";
Dir::Etc::sourceparts "-";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
// A mirror that is behind is good enough for a server that lives for the length of a test.
Acquire::Check-Valid-Until "false";
Debug::NoLocking "true";
"""


@dataclass(frozen=True, slots=True)
class MysqlBinaries(Installation):
    """An installation. An unpacked one runs with its own C library."""

    product = "MySQL"
    remedy = "install mysql-server, or name a running server"

    def make_server_command(self) -> Sequence[Path | str]:
        server = self.base / "sbin/mysqld"
        if not self.unpacked:
            return [server]
        [libraries] = self.base.glob("lib/*-linux-*")
        [loader] = libraries.glob("ld-linux-*.so.*")
        return [loader, "--library-path", str(libraries), server]

    def make_install_command(self, data_dir: Path, tmp_dir: Path) -> Sequence[Path]:
        arguments = [
            "--no-defaults",
            "--initialize-insecure",
            f"--basedir={self.base}",
            f"--datadir={data_dir}",
            f"--tmpdir={tmp_dir}",
            "--innodb-redo-log-capacity=32M",
        ]
        return [*map(Path, self.make_server_command()), *map(Path, arguments)]

    def make_environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MYSQL", "LC_", "LD_"))}
        return kept | {"LC_ALL": "C"}


def provide_mysql_binaries() -> MysqlBinaries:
    """The machine's own installation, else Debian's packages, fetched at the first call (70 MB).

    Nothing is installed, and no root is needed. Raises StreamerError, with the reason, where neither is to be had.
    """
    for base in (Path("/usr"), Path("/usr/local"), Path("/usr/local/mysql")):
        if (base / "sbin/mysqld").exists() and not (base / "sbin/mariadbd").exists():
            return MysqlBinaries(base, unpacked=False)
    folder = make_cache_folder() / "mysql"
    if not folder.is_dir():
        _fetch(folder)
    return MysqlBinaries(folder / "usr", unpacked=True)


def _fetch(folder: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None or not _KEYRING.exists():
        raise StreamerError(
            "no MySQL server on this machine, and no apt-get of Debian to fetch one with", MysqlBinaries.remedy
        )
    fill(folder, _fetch_needed)


def _fetch_needed(scratch: Path) -> Path:
    root = scratch / "apt"
    environment = _make_private_apt(root)
    _run_apt(environment, "update")
    _run_apt(environment, "--yes", "--download-only", "install", _PACKAGE)
    needed = unpack(sorted((root / "cache/archives").glob("*.deb")), _NEEDED, scratch)
    for pattern in _NOT_NEEDED:
        for path in needed.glob(f"usr/lib/*-linux-*/{pattern}"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return needed


def _make_private_apt(root: Path) -> dict[str, str]:
    """An apt whose folders and sources are its own; the environment that makes apt-get use it."""
    for folder in ("state/lists/partial", "cache/archives/partial", "etc/preferences.d", "etc/apt.conf.d"):
        (root / folder).mkdir(parents=True)
    (root / "state/status").touch()
    (root / "etc/sources.list").write_text(f"deb [signed-by={_KEYRING}] {_mirror()} sid main\n")
    configuration = root / "apt.conf"
    configuration.write_text(_APT_CONF.format(root=root))
    return {**os.environ, "APT_CONFIG": str(configuration), "DEBIAN_FRONTEND": "noninteractive"}


def _mirror() -> str:
    """Debian's archive, as this machine's apt knows it."""
    shown = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages"],  # noqa: S607
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    found = [line.split()[-1] for line in shown.splitlines() if line.startswith("Debian Debian ")]
    if not found:
        raise StreamerError(
            "this machine's apt knows no mirror of Debian", f"run apt-get update, or {MysqlBinaries.remedy}"
        )
    return found[0]


def _run_apt(environment: dict[str, str], *arguments: str) -> None:
    said = run_apt_get(arguments, Path("/"), environment, _MYSQL_FETCH_SECONDS)
    if said:
        raise StreamerError(f"apt-get could not fetch a MySQL server ({said})", MysqlBinaries.remedy)
