"""A PostgreSQL server of one's own, ready for logical replication."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import psycopg2
from psycopg2.extensions import make_dsn

from psql_streamer.embedded.account import choose_account, give, make_account_options
from psql_streamer.embedded.ports import LOOPBACK, free_ports
from psql_streamer.embedded.postgres_binaries import find_server_binaries, make_binaries_reachable, read_major_version
from psql_streamer.embedded.server import EmbeddedServer
from psql_streamer.errors import StreamerError

__all__ = ["EmbeddedPostgres", "find_server_binaries"]

_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "50",
    "shared_buffers": "64MB",
    # The data dies with the machine's temporary folder anyway; a crash of the server alone stays safe.
    "fsync": "off",
    "full_page_writes": "off",
}

# "Shutting Down the Server" in PostgreSQL's documentation: the postmaster's signals.
_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class EmbeddedPostgres(EmbeddedServer):
    """A server in a data folder of its own, on a unix socket and a free loopback port; everybody is trusted.

    bin_dir: folder of initdb and postgres, see server_binaries.
    data_dir: made when missing or empty, and kept; None: a temporary one, removed by `close`.
    settings: override the server's settings; read at every start.

    Works as root too: the server then runs as an unprivileged account, which must be able to reach data_dir.
    """

    at_once = _STOP_SIGNALS["immediate"]

    def __init__(self, bin_dir: Path, data_dir: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        version = read_major_version(bin_dir)
        if version is None:
            raise StreamerError(f"no PostgreSQL server in {bin_dir}", "name the folder that holds initdb and postgres")
        self.version = version
        self.settings = _SETTINGS | dict(settings or {})
        self.port = free_ports(1)[0]
        # initdb and postgres refuse to run as root, and initdb wants an account with a name.
        self._account = choose_account("PostgreSQL", ("postgres", "nobody"))
        # A unix socket's path may have about 100 bytes: a folder directly below the temporary one, not below data_dir.
        self.socket_dir = Path(tempfile.mkdtemp(prefix="psql-streamer-pg"))
        self.own(self.socket_dir)
        self.data_dir = data_dir if data_dir is not None else self.socket_dir / "data"
        super().__init__(f"PostgreSQL {version}", self.socket_dir / "server.log")
        self._bin_dir = make_binaries_reachable(bin_dir, self._account, self.socket_dir / "install")

    def start(self) -> None:
        """Return when the server answers; makes the data folder on the first start."""
        if not (self.data_dir / "PG_VERSION").exists():
            self._run_initdb()
        self._write_settings()
        self._spawn([self._bin_dir / "postgres", "-D", self.data_dir], **self._make_popen_options())
        self._await_answer()

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Shut down as pg_ctl does; `immediate` is a crash: the next start recovers from the WAL."""
        self._end(_STOP_SIGNALS[mode])

    def restart(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Stop and start, with the same port and socket."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop, and remove the socket folder (with the data, unless a data_dir was given)."""
        self.stop("immediate" if self.data_dir.is_relative_to(self.socket_dir) else "fast")
        shutil.rmtree(self.socket_dir, ignore_errors=True)

    def build_dsn(self, database: str = "postgres", *, tcp: bool = False) -> str:
        """A libpq connection string for the superuser `postgres`, over the unix socket unless `tcp`."""
        host = LOOPBACK if tcp else str(self.socket_dir)
        return str(make_dsn(host=host, port=self.port, user="postgres", dbname=database))

    def own(self, path: Path) -> None:
        """Let a file or folder belong to the account that the server runs as."""
        give(path, self._account)

    @property
    def bin_dir(self) -> Path:
        """Where the programs run from (pg_recvlogical, psql, ...)."""
        return self._bin_dir

    def _run_initdb(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.own(self.data_dir)
        made = subprocess.run(
            [
                self._bin_dir / "initdb",
                *("--pgdata", self.data_dir),
                *("--username", "postgres"),
                *("--auth", "trust"),
                *("--encoding", "UTF8"),
                "--no-locale",
                "--no-sync",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            **self._make_popen_options(),
        )
        if made.returncode != 0:
            account = f" as {self._account.pw_name}" if self._account else ""
            raise StreamerError(
                f"initdb could not make {self.data_dir}{account} ({made.stderr.strip() or 'it said nothing'})",
                "give a data folder that this account can reach and write",
            )
        with (self.data_dir / "postgresql.conf").open("a") as conf:
            conf.write("include_if_exists = 'embedded.conf'\n")

    def _write_settings(self) -> None:
        fixed = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": str(self.socket_dir),
        }
        settings = {name: value.replace("'", "''") for name, value in (self.settings | fixed).items()}
        conf = self.data_dir / "embedded.conf"
        conf.write_text("".join(f"{name} = '{value}'\n" for name, value in settings.items()))
        self.own(conf)

    def _answers(self) -> bool:
        try:
            psycopg2.connect(self.build_dsn(), connect_timeout=5).close()
        except psycopg2.OperationalError:
            return False
        return True

    def _make_popen_options(self) -> dict[str, Any]:
        """Popen's arguments: no inherited locale or PG* settings, a working folder that the account can enter."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
        return {"cwd": self.socket_dir, "env": environment | {"LC_ALL": "C"}, **make_account_options(self._account)}
