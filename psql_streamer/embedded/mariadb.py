"""A MariaDB server of one's own, with a binary log that is ready to be streamed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from psql_streamer.embedded.binlog_server import BinlogServer
from psql_streamer.embedded.mariadb_binaries import MariadbBinaries, provide_mariadb_binaries

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


class EmbeddedMariadb(BinlogServer):
    """MariaDB. binaries: what runs; None: the machine's own, else the distribution's packages in the cache folder.

    data_dir: as BinlogServer has it. settings: override the server's settings (`binlog_row_image`: "MINIMAL").
    """

    def __init__(
        self,
        binaries: MariadbBinaries | None = None,
        data_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("MariaDB", binaries or provide_mariadb_binaries(), data_dir, _SETTINGS | dict(settings or {}))
