"""A MySQL server of one's own, with a binary log that is ready to be streamed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from psql_streamer.embedded.binlog_server import BinlogServer
from psql_streamer.embedded.mysql_binaries import MysqlBinaries, provide_mysql_binaries

_SETTINGS = {
    "log_bin": "binlog",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON",
    "server_id": "1",
    "max_connections": "50",
    "innodb_buffer_pool_size": "32M",
    "innodb_redo_log_capacity": "32M",
    "performance_schema": "OFF",
    "mysqlx": "OFF",
    "secure_file_priv": "NULL",
    "innodb_flush_log_at_trx_commit": "2",
    "sync_binlog": "0",
}


class EmbeddedMysql(BinlogServer):
    """MySQL. binaries: what runs; None: the machine's own, else the distribution's packages in the cache folder.

    data_dir: as BinlogServer has it. settings: override the server's settings.
    """

    def __init__(
        self,
        binaries: MysqlBinaries | None = None,
        data_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("MySQL", binaries or provide_mysql_binaries(), data_dir, _SETTINGS | dict(settings or {}))
