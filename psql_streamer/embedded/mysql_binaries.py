"""Where MySQL's server program is on this machine; else Debian's packages, unpacked into a cache folder.

Debian has MySQL in its unstable release alone. Its packages and all that they need are fetched with an apt of their own
below the cache folder, from the mirror that this machine's apt knows, and run with their own C library.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from psql_streamer.embedded.account import Account
from psql_streamer.embedded.kafka_jars import cache_folder
from psql_streamer.embedded.mariadb_binaries import unpack
from psql_streamer.errors import StreamerError

_PACKAGE = "mysql-server-core"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_FETCH_SECONDS = 600
_INSTALL = "install mysql-server, or name a running server"
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
class MysqlBinaries:
    """An installation. base: its --basedir. unpacked: not where its packages want it, with its own C library."""

    base: Path
    unpacked: bool

    def server_command(self) -> Sequence[Path | str]:
        """What starts the server."""
        server = self.base / "sbin/mysqld"
        if not self.unpacked:
            return [server]
        [libraries] = self.base.glob("lib/*-linux-*")
        [loader] = libraries.glob("ld-linux-*.so.*")
        return [loader, "--library-path", str(libraries), server]

    def install_command(self, data_dir: Path, tmp_dir: Path) -> Sequence[Path]:
        """What makes a data folder, in which root has no password."""
        arguments = [
            "--no-defaults",
            "--initialize-insecure",
            f"--basedir={self.base}",
            f"--datadir={data_dir}",
            f"--tmpdir={tmp_dir}",
            "--innodb-redo-log-capacity=32M",
        ]
        return [*map(Path, self.server_command()), *map(Path, arguments)]

    def environment(self) -> dict[str, str]:
        """What the program needs of the environment: no settings of the caller's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MYSQL", "LC_", "LD_"))}
        return kept | {"LC_ALL": "C"}

    def version(self) -> tuple[int, int]:
        """As the server says itself. Raises StreamerError when it does not run."""
        try:
            shown = subprocess.run(
                [*self.server_command(), "--no-defaults", "--version"],
                capture_output=True,
                text=True,
                timeout=60,
                env=self.environment(),
            )
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise StreamerError(f"the MySQL server in {self.base} does not run ({error})", _INSTALL) from error
        found = re.search(r"Ver (\d+)\.(\d+)", shown.stdout)
        if found is None or "MariaDB" in shown.stdout:
            raise StreamerError(f"the MySQL server in {self.base} does not run ({shown.stderr.strip()})", _INSTALL)
        return int(found[1]), int(found[2])

    def reachable_by(self, account: Account, copy_to: Path) -> MysqlBinaries:
        """The same, or a copy in `copy_to` where `account` may not reach unpacked ones (below /root, say)."""
        if account is None or not self.unpacked:
            return self
        shutil.copytree(self.base, copy_to / self.base.name, symlinks=True)
        return MysqlBinaries(copy_to / self.base.name, unpacked=True)


def mysql_binaries() -> MysqlBinaries:
    """The machine's own installation, else Debian's packages, fetched at the first call (70 MB).

    Nothing is installed, and no root is needed. Raises StreamerError, with the reason, where neither is to be had.
    """
    for base in (Path("/usr"), Path("/usr/local"), Path("/usr/local/mysql")):
        if (base / "sbin/mysqld").exists() and not (base / "sbin/mariadbd").exists():
            return MysqlBinaries(base, unpacked=False)
    folder = cache_folder() / "mysql"
    if not folder.is_dir():
        _fetch(folder)
    return MysqlBinaries(folder / "usr", unpacked=True)


def _fetch(folder: Path) -> None:
    """Several processes may call it at once: an installation becomes visible only when it is whole."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None or not _KEYRING.exists():
        raise StreamerError("no MySQL server on this machine, and no apt-get of Debian to fetch one with", _INSTALL)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching", dir=folder.parent) as scratch:
        root = Path(scratch, "apt")
        environment = _private_apt(root)
        _run_apt(environment, "update")
        _run_apt(environment, "--yes", "--download-only", "install", _PACKAGE)
        whole = unpack(sorted((root / "cache/archives").glob("*.deb")), Path(scratch, "whole"))
        needed = _only_needed(whole, Path(scratch, "needed"))
        try:
            needed.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


def _private_apt(root: Path) -> Mapping[str, str]:
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
        raise StreamerError("this machine's apt knows no mirror of Debian", f"run apt-get update, or {_INSTALL}")
    return found[0]


def _run_apt(environment: Mapping[str, str], *arguments: str) -> None:
    try:
        done = subprocess.run(
            ["apt-get", "--quiet", *arguments],  # noqa: S607 - where it is, is the distribution's matter
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment,
            timeout=_FETCH_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise StreamerError(f"apt-get fetched no MySQL server in {_FETCH_SECONDS} s", _INSTALL) from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise StreamerError(f"apt-get could not fetch a MySQL server ({said})", _INSTALL)


def _only_needed(whole: Path, needed: Path) -> Path:
    for pattern in _NEEDED:
        for path in whole.glob(pattern):
            target = needed / path.relative_to(whole)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    for pattern in _NOT_NEEDED:
        for path in needed.glob(f"usr/lib/*-linux-*/{pattern}"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return needed
