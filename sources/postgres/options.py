"""The options of a `postgres` source."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

import psycopg2
from psycopg2.extensions import parse_dsn
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from psql_streamer.errors import SourceRefused
from psql_streamer.lsn import NO_LSN, Lsn
from psql_streamer.named_files import find_unreadable
from psql_streamer.options import ByteSize, PositiveByteSize, PositiveDuration, SourceOptions, require_form
from sources.postgres.dsn_values import find_unusable_values
from sources.postgres.snapshot.options import SnapshotMode, SnapshotOption, SnapshotOptions

_DEFAULT_PORT = 5432

_MOST_MESSAGES = 100_000_000


def _parse_lsn(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError('is not an LSN such as 418152976 or "16/B374D848"')
    try:
        return Lsn.parse(str(value))
    except ValueError:
        raise ValueError('is not an LSN such as 418152976 or "16/B374D848"') from None


def _wrap_publication(value: object) -> object:
    return [value] if isinstance(value, str) else value


_LsnOption = Annotated[Lsn, BeforeValidator(_parse_lsn)]
"""An LSN: a number as the Go service has it, or PostgreSQL's own notation."""

_NO_DSN = "is not a libpq connection string"
_WRITE_DSN = "write host=... dbname=... user=..., values with spaces in single quotes"

_SLOT_NAME = require_form(
    "[a-z0-9_]+", "no name of a replication slot: it may have the letters a to z in lower case, digits and _ alone"
)

_VERIFYING = ("verify-ca", "verify-full")
_ROOTS_OF_SYSTEM = "system"
"""In place of a file's name (PostgreSQL documentation, "libpq: Parameter Key Words")."""


def _require_connection_string(value: SecretStr) -> SecretStr:
    if not _is_dsn(value.get_secret_value()):
        raise ValueError(f"{_NO_DSN}: {_WRITE_DSN}")
    given = parse_dsn(value.get_secret_value())
    for problem in find_unusable_values(given):
        raise ValueError(problem)
    # With any other sslmode libpq does without the file.
    if given.get("sslmode") in _VERIFYING and given.get("sslrootcert") != _ROOTS_OF_SYSTEM:
        for problem in find_unreadable({"sslrootcert": given.get("sslrootcert")}):
            raise ValueError(problem)
    return value


def require_dsn(text: str) -> None:
    """SourceRefused for what is no connection string."""
    if not _is_dsn(text):
        raise SourceRefused(f"url {_NO_DSN}", _WRITE_DSN)


def _is_dsn(text: str) -> bool:
    """libpq's own message quotes the part that it does not understand, which may be a password."""
    try:
        parse_dsn(text)
    except psycopg2.ProgrammingError:
        return False
    return True


def _list_servers(dsn: str) -> Iterator[str]:
    """Where a connection string leads: host:port for each of its hosts, the folder's path for a Unix socket.

    What it leaves out libpq takes from the environment, and then from its defaults:
    https://www.postgresql.org/docs/current/libpq-connect.html
    """
    given = parse_dsn(dsn)
    if "service" in given and not given.keys() & {"host", "hostaddr"}:
        yield f'the server of service "{given["service"]}"'
        return
    hosts = _split_list(given.get("host") or os.environ.get("PGHOST", ""))
    addresses = _split_list(given.get("hostaddr") or os.environ.get("PGHOSTADDR", ""))
    ports = _split_list(given.get("port") or os.environ.get("PGPORT", ""))
    count = max(len(hosts), len(addresses))
    for address, host, port in zip(*(_fill_up(items, count) for items in (addresses, hosts, ports)), strict=True):
        yield f"{(address or host or 'the local socket').rstrip('/').lower()}:{port or _DEFAULT_PORT}"


def _split_list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]


def _fill_up(items: list[str], count: int) -> list[str]:
    """A single item, a port for example, is for all of them."""
    return items * count if len(items) == 1 else (items + [""] * count)[:count]


class PostgresOptions(SourceOptions):
    """[source.NAME] type = "postgres".

    batch_size, batch_bytes: upper bounds of a micro-batch in messages and bytes of WAL; batches are smaller whenever
    the service keeps up. receive_timeout: seconds after which a server that does not answer counts as lost.
    wal_position_override: start here and not at the stored position, once for each value. wal_retain: how many bytes of
    WAL the confirmed position stays behind, so that one can go back. slot_failover: whether standbys keep the slot, to
    be read from when they are promoted. snapshot: what is read of the rows that the tables have already.
    """

    of_go_service: ClassVar[Mapping[str, Any]] = {"snapshot": SnapshotMode.NEVER.value}

    dsn: Annotated[SecretStr, AfterValidator(_require_connection_string)] = Field(min_length=1)
    publications: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_wrap_publication), Field(min_length=1)
    ] = Field(alias="publication")
    replication_slot: Annotated[str, _SLOT_NAME] = Field(min_length=1, max_length=63)
    timeout: PositiveDuration = 2.0
    receive_timeout: Annotated[PositiveDuration, Field(ge=1.0)] = 30.0
    batch_size: int = Field(default=10_000, gt=0, le=_MOST_MESSAGES)
    batch_bytes: Annotated[PositiveByteSize, Field(le=1 << 30)] = 3 << 20
    batch_flush_interval: PositiveDuration = 1.0
    wal_position_override: _LsnOption = NO_LSN
    wal_retain: ByteSize = 0
    slot_failover: bool = False
    snapshot: SnapshotOption = SnapshotOptions()

    @property
    def connection_string(self) -> str:
        """The dsn in the clear: for libpq alone."""
        return self.dsn.get_secret_value()

    def list_resources(self) -> Iterable[str]:
        """Its replication slot, which has one reader: on every server that the dsn names."""
        return (
            f'replication slot "{self.replication_slot}" on {server}'
            for server in _list_servers(self.connection_string)
        )
