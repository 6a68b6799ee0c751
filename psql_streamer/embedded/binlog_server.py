"""What an embedded MariaDB and an embedded MySQL have in common: a data folder, a loopback port, a binary log."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psql_streamer.embedded.account import choose_account, give, make_account_options
from psql_streamer.embedded.installation import Installation
from psql_streamer.embedded.ports import LOOPBACK, free_ports, read_greeting
from psql_streamer.embedded.server import KillableServer
from psql_streamer.errors import StreamerError

USER = "root"
"""The account that may do everything, from this machine alone and without a password."""


class BinlogServer(KillableServer):
    """A server in a data folder of its own, on a free loopback port.

    name: as in messages. binaries: what runs, and where its programs are copied to, if its account cannot reach them.
    data_dir: made when missing or empty, and kept; None: a temporary one, removed by `close`.
    settings: read at every start.

    Works as root too: the server then runs as an unprivileged account, which must be able to reach data_dir.
    """

    def __init__(self, name: str, binaries: Installation, data_dir: Path | None, settings: Mapping[str, str]) -> None:
        self.version = binaries.read_version()
        self.settings = dict(settings)
        self.port = free_ports(1)[0]
        self._account = choose_account(name, ("mysql", "nobody"))
        super().__init__(f"{name} {'.'.join(map(str, self.version))}", data_dir)
        give(self._run_dir, self._account)
        self._binaries = binaries.make_reachable(self._account, self._run_dir / "install")

    @property
    def host(self) -> str:
        """The address it listens on."""
        return LOOPBACK

    def build_dsn(self) -> str:
        """As a source's `dsn` takes it, for the account that may do everything."""
        return f"mysql://{USER}@{LOOPBACK}:{self.port}/"

    def start(self) -> None:
        """Return when the server answers; makes the data folder on the first start."""
        if not (self.data_dir / "mysql").is_dir():
            self._make_data_dir()
        places = {
            "basedir": str(self._binaries.base),
            "datadir": str(self.data_dir),
            "tmpdir": str(self._run_dir),
            "socket": str(self._run_dir / "socket"),
            "pid_file": str(self._run_dir / "pid"),
            "bind_address": LOOPBACK,
            "port": str(self.port),
        }
        arguments = [f"--{name}={value}" for name, value in (self.settings | places).items()]
        self._spawn([*self._binaries.make_server_command(), "--no-defaults", *arguments], **self._make_popen_options())
        self._await_answer()

    def _make_data_dir(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        give(self.data_dir, self._account)
        command = self._binaries.make_install_command(self.data_dir, self._run_dir)
        made = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **self._make_popen_options()
        )
        if made.returncode != 0:
            account = f" as {self._account.pw_name}" if self._account else ""
            said = (made.stderr.strip() or made.stdout.strip() or "it said nothing").splitlines()[-1]
            raise StreamerError(
                f"{command[0].name} could not make {self.data_dir}{account} ({said})",
                "give a data folder that this account can reach and write",
            )

    def _answers(self) -> bool:
        return bool(read_greeting(self.port))

    def _make_popen_options(self) -> dict[str, Any]:
        """Popen's arguments: no settings of the caller's, a working folder that the account can enter."""
        return {"cwd": self._run_dir, "env": self._binaries.make_environment(), **make_account_options(self._account)}
