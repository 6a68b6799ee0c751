"""Server programs of MariaDB or MySQL: the machine's own, or Debian's packages, unpacked into a cache folder."""

from __future__ import annotations

import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from psql_streamer.embedded.account import Account
from psql_streamer.errors import StreamerError


@dataclass(frozen=True, slots=True)
class Installation(ABC):
    """base: its --basedir. unpacked: not where its packages want it.

    product: its name. remedy: what to do where there is none.
    """

    product: ClassVar[str]
    remedy: ClassVar[str]

    base: Path
    unpacked: bool

    @abstractmethod
    def make_server_command(self) -> Sequence[Path | str]:
        """What starts the server. ValueError when its files are not all there."""

    @abstractmethod
    def make_install_command(self, data_dir: Path, tmp_dir: Path) -> Sequence[Path]:
        """What makes a data folder, in which root has no password."""

    @abstractmethod
    def make_environment(self) -> dict[str, str]:
        """What the programs need of the environment: no settings of the caller's."""

    def read_version(self) -> tuple[int, int]:
        """As the server says itself. Raises StreamerError when it does not run."""
        try:
            command = [*self.make_server_command(), "--no-defaults", "--version"]
            shown = subprocess.run(command, capture_output=True, text=True, timeout=60, env=self.make_environment())
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise self._make_failure(str(error)) from error
        found = re.search(r"Ver (\d+)\.(\d+)", shown.stdout)
        # MariaDB's server is there as mysqld too.
        if found is None or ("MariaDB" in shown.stdout) is not (self.product == "MariaDB"):
            raise self._make_failure(shown.stderr.strip())
        return int(found[1]), int(found[2])

    def make_reachable(self, account: Account, copy_to: Path) -> Self:
        """The same, or a copy in `copy_to` where `account` may not reach unpacked ones (below /root, say)."""
        if account is None or not self.unpacked:
            return self
        shutil.copytree(self.base, copy_to / self.base.name, symlinks=True)
        return replace(self, base=copy_to / self.base.name)

    def _make_failure(self, said: str) -> StreamerError:
        return StreamerError(f"the {self.product} server in {self.base} does not run ({said})", self.remedy)


def unpack(packages: Sequence[Path], needed: Sequence[str], scratch: Path) -> Path:
    """A folder below `scratch` with those files of Debian packages that the patterns name."""
    whole, kept = scratch / "whole", scratch / "needed"
    for package in packages:
        subprocess.run(["dpkg", "-x", package, whole], check=True, capture_output=True)  # noqa: S607 - as apt-get
    for pattern in needed:
        for path in whole.glob(pattern):
            target = kept / path.relative_to(whole)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    return kept


def run_apt_get(arguments: Sequence[str], folder: Path, environment: dict[str, str], seconds: float) -> str:
    """What apt-get says is wrong; "" when nothing is."""
    try:
        done = subprocess.run(
            ["apt-get", "--quiet", *arguments],  # noqa: S607 - where it is, is the distribution's matter
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return f"nothing for {seconds:.0f} s"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
