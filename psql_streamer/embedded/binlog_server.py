"""What an embedded MariaDB and an embedded MySQL have in common: a data folder, a loopback port, a binary log."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from psql_streamer.embedded.account import Account, give, popen_as, server_account
from psql_streamer.embedded.ports import LOOPBACK, free_ports, greeting
from psql_streamer.embedded.server import EmbeddedServer
from psql_streamer.errors import StreamerError

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0


class Binaries(Protocol):
    """The programs of an installation. base: its --basedir."""

    @property
    def base(self) -> Path: ...

    def version(self) -> tuple[int, int]: ...

    def server_command(self) -> Sequence[Path | str]: ...

    def install_command(self, data_dir: Path, tmp_dir: Path) -> Sequence[Path]: ...

    def environment(self) -> dict[str, str]: ...

    def reachable_by(self, account: Account, copy_to: Path) -> Binaries: ...


USER = "root"
"""The account that may do everything, from this machine alone and without a password."""


class BinlogServer(EmbeddedServer):
    """A server in a data folder of its own, on a free loopback port.

    name: as in messages. binaries: what runs, and where its programs are copied to, if its account cannot reach them.
    data_dir: made when missing or empty, and kept; None: a temporary one, removed by `close`.
    settings: read at every start.

    Works as root too: the server then runs as an unprivileged account, which must be able to reach data_dir.
    """

    def __init__(self, name: str, binaries: Binaries, data_dir: Path | None, settings: Mapping[str, str]) -> None:
        self.version = binaries.version()
        self.settings = dict(settings)
        self.port = free_ports(1)[0]
        self._account = server_account(name, ("mysql", "nobody"))
        # A unix socket's path may have about 100 bytes: a folder directly below the temporary one, not below data_dir.
        self._run_dir = Path(tempfile.mkdtemp(prefix=f"psql-streamer-{name.lower()}"))
        give(self._run_dir, self._account)
        self.data_dir = data_dir if data_dir is not None else self._run_dir / "data"
        super().__init__(f"{name} {'.'.join(map(str, self.version))}", self._run_dir / "server.log")
        self._binaries = binaries.reachable_by(self._account, self._run_dir / "install")

    @property
    def host(self) -> str:
        """The address it listens on."""
        return LOOPBACK

    def dsn(self) -> str:
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
        self._spawn([*self._binaries.server_command(), "--no-defaults", *arguments], **self._popen_options())
        self._wait_until_it_answers()

    def stop(self, *, kill: bool = False) -> None:
        """Shut down in order, or at once with SIGKILL."""
        self._end(signal.SIGKILL if kill else signal.SIGTERM, signal.SIGKILL, _STOP_SECONDS)

    def restart(self, *, kill: bool = False) -> None:
        """Stop and start, with the same port and data."""
        self.stop(kill=kill)
        self.start()

    def close(self) -> None:
        """Stop, and remove what is temporary."""
        self.stop(kill=self.data_dir.is_relative_to(self._run_dir))
        shutil.rmtree(self._run_dir, ignore_errors=True)

    def _make_data_dir(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        give(self.data_dir, self._account)
        command = self._binaries.install_command(self.data_dir, self._run_dir)
        made = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **self._popen_options()
        )
        if made.returncode != 0:
            account = f" as {self._account.pw_name}" if self._account else ""
            said = (made.stderr.strip() or made.stdout.strip() or "it said nothing").splitlines()[-1]
            raise StreamerError(
                f"{command[0].name} could not make {self.data_dir}{account} ({said})",
                "give a data folder that this account can reach and write",
            )

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self.running and time.monotonic() < deadline:
            if greeting(self.port):
                return
            time.sleep(0.02)
        self.stop(kill=True)
        raise self._did_not_start()

    def _popen_options(self) -> dict[str, Any]:
        """Popen's arguments: no settings of the caller's, a working folder that the account can enter."""
        return {"cwd": self._run_dir, "env": self._binaries.environment(), **popen_as(self._account)}
