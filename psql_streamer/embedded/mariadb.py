"""A MariaDB server of one's own, with a binary log that is ready to be streamed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psql_streamer.embedded.mariadb_binaries import (
    MariadbBinaries,
    mariadb_binaries,
    reachable_binaries,
    server_account,
)
from psql_streamer.embedded.ports import LOOPBACK, free_ports, greeting
from psql_streamer.embedded.server import EmbeddedServer
from psql_streamer.errors import StreamerError

_SETTINGS = {
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "server_id": "1",
    "gtid_strict_mode": "ON",
    "log_slave_updates": "ON",
    "max_connections": "50",
    "innodb_buffer_pool_size": "32M",
    "innodb_log_file_size": "32M",
    "performance_schema": "OFF",
    # The data dies with the machine's temporary folder anyway; a crash of the server alone stays safe.
    "innodb_flush_log_at_trx_commit": "2",
    "sync_binlog": "0",
}

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0

USER = "root"
"""The account that may do everything, from this machine alone and without a password."""


class EmbeddedMariadb(EmbeddedServer):
    """A server in a data folder of its own, on a free loopback port.

    binaries: what runs; None: the machine's own, else the distribution's packages in the cache folder.
    data_dir: made when missing or empty, and kept; None: a temporary one, removed by `close`.
    settings: override the server's settings (`binlog_row_image`: "MINIMAL"); read at every start.

    Works as root too: the server then runs as an unprivileged account, which must be able to reach data_dir.
    """

    def __init__(
        self,
        binaries: MariadbBinaries | None = None,
        data_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        found = binaries or mariadb_binaries()
        self.version = found.version()
        self.settings = _SETTINGS | dict(settings or {})
        self.port = free_ports(1)[0]
        self._account = server_account()
        # A unix socket's path may have about 100 bytes: a folder directly below the temporary one, not below data_dir.
        self._run_dir = Path(tempfile.mkdtemp(prefix="psql-streamer-mariadb"))
        self._own(self._run_dir)
        self.data_dir = data_dir if data_dir is not None else self._run_dir / "data"
        super().__init__(f"MariaDB {'.'.join(map(str, self.version))}", self._run_dir / "server.log")
        self._binaries = reachable_binaries(found, self._account, self._run_dir / "install")

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
            self._install_db()
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
        self._spawn([self._binaries.server, "--no-defaults", *arguments], **self._popen_options())
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

    def _install_db(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._own(self.data_dir)
        made = subprocess.run(
            [
                self._binaries.install_db,
                "--no-defaults",
                f"--basedir={self._binaries.base}",
                f"--datadir={self.data_dir}",
                f"--tmpdir={self._run_dir}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            **self._popen_options(),
        )
        if made.returncode != 0:
            account = f" as {self._account.pw_name}" if self._account else ""
            said = (made.stderr.strip() or made.stdout.strip() or "it said nothing").splitlines()[-1]
            raise StreamerError(
                f"mariadb-install-db could not make {self.data_dir}{account} ({said})",
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

    def _own(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)

    def _popen_options(self) -> dict[str, Any]:
        """Popen's arguments: no settings of the caller's, a working folder that the account can enter."""
        options: dict[str, Any] = {"cwd": self._run_dir, "env": self._binaries.environment()}
        if self._account is not None:
            options |= {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
        return options
